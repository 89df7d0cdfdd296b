"""The rows of a broker's state in a server, drawn; pure functions of their arguments.

Integers are big-endian, so byte order is number order; values are those of ``storage.codec``
where nothing else is said.

::

    table     owner             key                           value
    meta      -                 "F"                           format: version=1 (1)
                                "H"                           highest offset (8)
                                "G" generation (4)            header (``Header``)
                                "N" generation (4)            messages (8) bytes (8)
                                "P" generation (4) offset (8) messages when it was reached (8)
    rows      client id         "s"                           session record
                                "c"                           cursor
                                "r" packet identifier (2)     (empty): awaiting release
                                "u" since (8) name            subscription
    clients   -                 client id
    inbox     client id         offset (8)                    entry
    groups    -                 group key                     group record
    members   group key         client id
    returned  group key         offset (8)                    entry
    retained  -                 topic, levels joined by 0x00  offset (8) message
    log       generation (4)    last offset (8)               block
    added     client id         offset (8)                    block of one message

    block     version=1 (1) | for each message: offset (8) topic length (2) message length (4)
              topic message

The messages that one transaction records make one block (more if they are large), so a server
has a row for each commit, not for each message. Blocks do not overlap. *Added* to a session's queue
is a message that was recorded before the subscription that wants it: queues only grow at their
end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.model import Message
from perdure.storage.codec import decode_message, encode_message

FORMAT_KEY: Final = b"F"
HIGH_KEY: Final = b"H"
FORMAT: Final = b"\x01"
RECORD_KEY: Final = b"s"
CURSOR_KEY: Final = b"c"
NOBODY: Final = b""
"""Owner of the rows that belong to the whole database."""

BLOCK_BYTES_MAX: Final = 512 * 1024
"""A block that has come to this size is ended, so that reading one stays cheap."""

LAYOUT: Final = 3
"""Layout number of generations that consist of blocks (``GenerationInfo.layout``)."""

_VERSION: Final = 1
_U64: Final = struct.Struct(">Q")
_U32: Final = struct.Struct(">I")
_U16: Final = struct.Struct(">H")
_COUNTERS: Final = struct.Struct(">QQ")
_MESSAGE: Final = struct.Struct(">qHI")


class Header(msgspec.Struct, frozen=True, array_like=True):
    """A generation's bounds.

    Attributes:
        generation: number, from 1.
        since_offset: its first possible offset.
        until_offset: the first offset after it; 0 = current.
        created_at_us: wall time.
    """

    generation: int
    since_offset: int
    until_offset: int
    created_at_us: int


header_decoder: Final = msgspec.msgpack.Decoder(Header)


def number(value: int) -> bytes:
    """An offset or count as a key or value; below 0 means 0, where nothing is stored."""
    return _U64.pack(max(0, value))


def parse_number(value: bytes) -> int:
    """The number in a key or value."""
    try:
        result: int = _U64.unpack(value)[0]
    except struct.error as error:
        raise StorageCorrupt(f"a number has {len(value)} bytes") from error
    return result


def generation_owner(generation: int) -> bytes:
    """Owner of a generation's blocks."""
    return _U32.pack(generation)


def header_key(generation: int) -> bytes:
    """Key of a generation's header."""
    return b"G" + _U32.pack(generation)


def counters_key(generation: int) -> bytes:
    """Key of a generation's counters."""
    return b"N" + _U32.pack(generation)


def point_key(generation: int, offset: int) -> bytes:
    """Key of one sparse count."""
    return b"P" + _U32.pack(generation) + _U64.pack(offset)


def parse_generation(key: bytes) -> int:
    """The generation in a key of meta."""
    return int.from_bytes(key[1:5])


def parse_point(key: bytes) -> int:
    """The offset in the key of a sparse count."""
    return int.from_bytes(key[5:13])


def counters(messages: int, size: int) -> bytes:
    """Value of a generation's counters."""
    return _COUNTERS.pack(messages, size)


def parse_counters(value: bytes) -> tuple[int, int]:
    """Messages and bytes of a generation."""
    try:
        messages, size = _COUNTERS.unpack(value)
    except struct.error as error:
        raise StorageCorrupt("counters of a generation do not decode") from error
    return messages, size


def release_key(packet_id: int) -> bytes:
    """Key of a packet identifier that awaits release."""
    return b"r" + _U16.pack(packet_id)


def subscription_key(since_offset: int, name: str) -> bytes:
    """Key of a subscription."""
    return b"u" + _U64.pack(since_offset) + name.encode()


def encode_blocks(messages: Iterable[Message]) -> Iterator[tuple[int, bytes]]:
    """Blocks of messages that ascend, each with its last offset."""
    parts: list[bytes] = [bytes([_VERSION])]
    size = 1
    last = 0
    for message in messages:
        topic = message.topic.encode()
        value = encode_message(message)
        parts += (_MESSAGE.pack(message.offset, len(topic), len(value)), topic, value)
        size += _MESSAGE.size + len(topic) + len(value)
        last = message.offset
        if size >= BLOCK_BYTES_MAX:
            yield last, b"".join(parts)
            del parts[1:]
            size = 1
    if size > 1:
        yield last, b"".join(parts)


def decode_block(value: bytes) -> list[Message]:
    """The messages of a block."""
    try:
        return [
            decode_message(topic.decode(), offset, message)
            for offset, topic, message in block_rows(value)
        ]
    except UnicodeDecodeError as error:
        raise StorageCorrupt(f"a block of the log does not decode: {error}") from error


def block_rows(value: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Offset, topic and message of each message of a block, not decoded."""
    if value[:1] != bytes([_VERSION]):
        if value[:1] > bytes([_VERSION]):
            raise FormatTooNew(f"a block of the log has version {value[0]}")
        raise StorageCorrupt("a block of the log has no version")
    position, end = 1, len(value)
    while position < end:
        try:
            offset, topic_length, length = _MESSAGE.unpack_from(value, position)
        except struct.error as error:
            raise StorageCorrupt(f"a block of the log does not decode: {error}") from error
        topic = position + _MESSAGE.size
        body = topic + topic_length
        position = body + length
        if position > end:
            raise StorageCorrupt(f"a block of the log is cut short at {offset}")
        yield offset, value[topic:body], value[body:position]
