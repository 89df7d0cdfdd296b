"""Several messages of one topic in one value: what a burst of one client leaves in the log.

A client that sends faster than a commit takes has many messages in each. As rows of their own
they would repeat topic, publisher and time, and cost a key each in the write-ahead log, in memory
and in the index. As a bundle they are one row. Integers are big-endian::

    kind=2 (1) | flags (1) | published_at (8) | publisher length (2)
      [ expires_at (8) | properties length (4) ]            if flags.extended
      publisher | [ properties ] | count (2) | payload length (4) each | payloads
    flags: as those of a message (``codec``)

Up to ``count`` it is what a message would be but for its first byte. The offsets of a bundle are
consecutive, and its key has the last of them: no other message lies in between, so rows in the
order of their keys are messages in the order of their offsets, and whoever looks for the first
message after an offset finds its row with one seek. A reader that stops at an offset must look
``REACH`` further, where the row that holds it may be.

Invariant: ``decode(encode(run)) == run``; a run of one is written as a message.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from perdure.errors import StorageCorrupt
from perdure.limits import OFFSET_MAX
from perdure.model import Message
from perdure.storage import codec
from perdure.storage.codec import decode_message, encode_head, encode_message, head_length

if TYPE_CHECKING:
    from mypy_extensions import i64

KIND: Final = 2
"""First byte of a bundle, where a message has its version, 1."""

MESSAGES_MAX: Final = 64
"""Messages of a bundle: more would save little, and whoever wants one reads all of them."""

PAYLOAD_BYTES_MAX: Final = 32 * 1024
"""Bytes of payload in a bundle."""

REACH: Final = MESSAGES_MAX - 1
"""How far after an offset the key of its row may be."""

_COUNT: Final = struct.Struct(">H")
_pack_lengths: Final = [struct.Struct(f">{count}I").pack for count in range(MESSAGES_MAX + 1)]
"""For each count of payloads."""
_KIND_BYTE: Final = bytes([KIND])
_MESSAGE_BYTE: Final = bytes([codec.VERSION])


def run_end(messages: list[Message], first: int, *, placed: bool = True) -> int:
    """Where the run ends that begins at an index: what may be one row.

    Args:
        messages: by ascending offset.
        first: index of the first of the run.
        placed: they have their offsets; else they will follow each other without a gap.

    Returns:
        The index after the last of the run; the run has at least one message.
    """
    head = messages[first]
    stop = first + 1
    end = min(len(messages), first + MESSAGES_MAX)
    offset = head.offset
    left = PAYLOAD_BYTES_MAX - len(head.payload)
    while stop < end:
        message = messages[stop]
        offset += 1
        left -= len(message.payload)
        if (
            left < 0
            or (placed and message.offset != offset)
            or message.topic != head.topic
            or message.published_at_us != head.published_at_us
            or message.publisher != head.publisher
            or message.qos != head.qos
            or message.retain != head.retain
            or message.expires_at_us != head.expires_at_us
            or message.properties != head.properties
        ):
            break
        stop += 1
    return stop


def encode_run(messages: list[Message], first: int, stop: int) -> bytes:
    """The value of a run that ``run_end`` found: of a message, or of a bundle."""
    head = messages[first]
    count = stop - first
    if count == 1:
        return encode_message(head)
    payloads = [message.payload for message in messages[first:stop]]
    lengths = _lengths(payloads)
    payloads[0] = encode_head(head, KIND) + count.to_bytes(2, "big") + lengths + payloads[0]
    return b"".join(payloads)


def is_bundle(value: bytes, start: int = 0) -> bool:
    """Whether the value that begins there is a bundle's."""
    return value.startswith(_KIND_BYTE, start)


def is_bundle_or_later(value: bytes) -> bool:
    """Whether a value is a bundle's, or of a kind that a later release writes."""
    return value >= _KIND_BYTE


def count_in(value: bytes, offset: int = 0) -> int:
    """How many messages a value holds.

    Args:
        value: of a row, or without one.
        offset: in the row's key.

    Raises:
        StorageCorrupt: it is neither a message nor a bundle.
    """
    if not is_bundle(value):
        return 1
    count: int = _COUNT.unpack_from(value, _body(value, offset))[0]
    return count


def extent(value: bytes) -> tuple[i64, i64]:
    """How many messages a value holds, and the bytes of their payloads, without making them; no
    messages = it is neither a message nor a bundle of this release.

    Args:
        value: of a row.
    """
    size: i64 = len(value)
    if size < codec.PLAIN_SIZE:
        return 0, 0
    body: i64 = codec.PLAIN_SIZE + codec.uint16_at(value, 10)
    if value[1] & codec.EXTENDED:
        if size < codec.EXTENDED_SIZE:
            return 0, 0
        body += codec.EXTENDED_SIZE - codec.PLAIN_SIZE + codec.uint32_at(value, 20)
    if value[0] == codec.VERSION:
        if body > size:
            return 0, 0
        return 1, size - body
    if value[0] != KIND or body + _COUNT.size > size:
        return 0, 0
    lengths = _payload_lengths(value, body, 0)
    return len(lengths), size - _first_payload(body, lengths)


def count_of(value: bytes, offset: int, after: int, until: int) -> int:
    """How many messages of a row are in ``(after, until]``.

    Args:
        value: the row's.
        offset: in the row's key.
        after, until: offsets.
    """
    count = count_in(value, offset)
    return max(min(offset, until) - max(offset - count, after), 0)


def decode_row(topic: str, offset: int, value: bytes, after: int, until: int) -> list[Message]:
    """The messages of a row that are in ``(after, until]``, by offset.

    Raises:
        StorageCorrupt: the value is neither a message nor a bundle.
        FormatTooNew: a later release wrote it.
    """
    if not is_bundle(value):
        return [decode_message(topic, offset, value)] if after < offset <= until else []
    body = _body(value, offset)
    lengths = _payload_lengths(value, body, offset)
    head = decode_message(topic, offset, _MESSAGE_BYTE + value[1:body])
    qos, retain, publisher, properties = head.qos, head.retain, head.publisher, head.properties
    expires_at_us, published_at_us = head.expires_at_us, head.published_at_us
    found: list[Message] = []
    at = offset - len(lengths)
    start = _first_payload(body, lengths)
    for length in lengths:
        at += 1
        end = start + length
        if after < at <= until:
            found.append(
                Message(
                    topic,
                    value[start:end],
                    qos,
                    retain,
                    publisher,
                    properties,
                    expires_at_us,
                    published_at_us,
                    at,
                )
            )
        start = end
    return found


def split_row(offset: int, value: bytes, after: int, until: int) -> list[tuple[int, bytes]]:
    """The messages of a row in ``(after, until]`` as rows of their own: offset and value.

    Raises:
        StorageCorrupt: the value is a bundle that does not decode.
    """
    if not is_bundle(value):
        return [(offset, value)] if after < offset <= until else []
    body = _body(value, offset)
    lengths = _payload_lengths(value, body, offset)
    head = _MESSAGE_BYTE + value[1:body]
    found: list[tuple[int, bytes]] = []
    at = offset - len(lengths)
    start = _first_payload(body, lengths)
    for length in lengths:
        at += 1
        end = start + length
        if after < at <= until:
            found.append((at, head + value[start:end]))
        start = end
    return found


def reach(until: int) -> int:
    """The last offset that the key of a row with an offset up to ``until`` may have."""
    return min(until, OFFSET_MAX - REACH) + REACH


def _lengths(payloads: list[bytes]) -> bytes:
    """The length of each payload, packed."""
    length = len(payloads[0])
    for payload in payloads:
        if len(payload) != length:
            return _pack_lengths[len(payloads)](*[len(payload) for payload in payloads])
    # Of what one device sends all are often of one length.
    return length.to_bytes(4, "big") * len(payloads)


def _body(value: bytes, offset: int) -> int:
    """Where the count of a bundle is."""
    body = head_length(offset, value)
    if body + _COUNT.size > len(value):
        raise _cut_short(offset)
    return body


def _payload_lengths(value: bytes, body: int, offset: int) -> tuple[int, ...]:
    """Of each payload."""
    count: int = _COUNT.unpack_from(value, body)[0]
    try:
        lengths: tuple[int, ...] = struct.unpack_from(f">{count}I", value, body + _COUNT.size)
    except struct.error as error:
        raise _cut_short(offset) from error
    if not count or _first_payload(body, lengths) + sum(lengths) != len(value):
        raise _cut_short(offset)
    return lengths


def _first_payload(body: int, lengths: tuple[int, ...]) -> int:
    """Where the first payload begins."""
    return body + _COUNT.size + 4 * len(lengths)


def _cut_short(offset: int) -> StorageCorrupt:
    return StorageCorrupt(f"the bundle at {offset} does not decode: it has another length")
