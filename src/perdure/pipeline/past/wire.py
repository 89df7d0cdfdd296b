"""What the broker and the process that reads its archive tell each other. Knows no Arrow.

The process is told lines of JSON on its standard input: first ``PastSettings``, then a
``PageRequest`` each, ``stop`` at the end. It answers on its standard output, in the order of the
requests, each a length of four bytes and a ``PageAnswer`` in MessagePack.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

from perdure.config.schema import TablesConfig
from perdure.errors import StorageCorrupt
from perdure.model import Message
from perdure.storage.codec import decode_message, encode_message

LENGTH_BYTES: Final = 4
ANSWER_BYTES_MAX: Final = 1 << 30
"""More is no answer: one message is larger than a page may be, and not larger than MQTT has it."""


@final
class PastSettings(msgspec.Struct, frozen=True):
    """What a process is told first.

    Attributes:
        tables: where the archive is.
        database: identity of the broker's log.
        window_bytes: of rows that are held for one filter, about.
        held_bytes_max: of rows that are held for all filters, about.
    """

    tables: TablesConfig
    database: str
    window_bytes: int
    held_bytes_max: int


@final
class PageRequest(msgspec.Struct, frozen=True):
    """A page that is wanted.

    Attributes:
        number: of the request.
        filter: topic filter.
        after_offset, until_offset: exclusive and inclusive.
        rows_max: messages, at least 1.
        bytes_max: of them; the first comes whatever it has.
    """

    number: int
    filter: str
    after_offset: int
    until_offset: int
    rows_max: int
    bytes_max: int


@final
class PageAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A page, or why there is none.

    Attributes:
        number: of the request.
        messages: topic, offset and value (``storage.codec``), by offset.
        through_offset: everything that the archive has up to here has been given.
        missing: what the archive has not of the range up to there; empty = it has all.
        code: of the error; empty = there is a page.
        error, hint: for people.
    """

    number: int
    messages: list[tuple[str, int, bytes]] = []
    through_offset: int = 0
    missing: str = ""
    code: str = ""
    error: str = ""
    hint: str = ""


_answers: Final = msgspec.msgpack.Decoder(PageAnswer)


def framed(answer: PageAnswer) -> bytes:
    """An answer as it is written."""
    data = msgspec.msgpack.encode(answer)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def answer_length(head: bytes) -> int:
    """How many bytes follow the first ones of an answer.

    Raises:
        StorageCorrupt: that is no answer.
    """
    length = int.from_bytes(head, "big")
    if length > ANSWER_BYTES_MAX:
        raise StorageCorrupt(f"an answer of {length} bytes")
    return length


def parse_answer(data: bytes) -> PageAnswer:
    """An answer as it was read.

    Raises:
        StorageCorrupt: it is none.
    """
    try:
        return _answers.decode(data)
    except msgspec.MsgspecError as error:
        raise StorageCorrupt(f"no answer: {error}") from error


def packed(message: Message) -> tuple[str, int, bytes]:
    """A message as an answer has it."""
    return message.topic, message.offset, encode_message(message)


def messages_of(answer: PageAnswer) -> list[Message]:
    """The messages of an answer.

    Raises:
        StorageError: one does not decode.
    """
    return [decode_message(topic, offset, value) for topic, offset, value in answer.messages]
