"""The value of an entry in the layout ``compact``, drawn; golden bytes hold it.

Integers are big-endian, times are microseconds::

    flags (1) | serial (7) | [deadline (7)] if flags.deadline
      | length of the head (2, or 4 if flags.long) | head | payload to the end
    head   presence (1) | published_at (7)
             [publisher length (2) | publisher]        if presence.publisher
             [properties length (4) | properties]      if presence.properties
             [the later of the two deadlines (7)]      if presence.later
             [count (1) | identifiers (4 each)]        if presence.identifiers
             [log offset (8)]                          if presence.offset
             [extra length (4) | extra]                if presence.extra
           | topic
    flags     bit 0 PUBREL, 1 QoS 2, 2 RETAIN, 3 deadline, 4 long, 5-6 published QoS,
              7 published RETAIN
    presence  bit 0 publisher, 1 properties, 2 the deadline is forget_at (else the expiry),
              3 later, 4 identifiers, 5 offset, 6 extra, 7 the log offset is the serial

The functions in ``lua/compact.lua`` read flags, serial, deadline and the length of the head, and
nothing else: a PUBREL keeps the head and loses the payload; its deadline is always forget_at.
Invariant: ``decode(encode(x)) == x``.
"""

from __future__ import annotations

import struct
from typing import Final

from perdure.errors import StorageCorrupt, UsageError
from perdure.model import Message
from perdure.storage.device_queue import EntryState, NewEntry, QueuedEntry

PUBREL: Final = 0x01
_QOS_2: Final = 0x02
_RETAIN: Final = 0x04
DEADLINE: Final = 0x08
_LONG: Final = 0x10
_PUBLISHED_QOS_SHIFT: Final = 5
_PUBLISHED_RETAIN: Final = 0x80

_PUBLISHER: Final = 0x01
_PROPERTIES: Final = 0x02
_FORGET: Final = 0x04
_LATER: Final = 0x08
_IDENTIFIERS: Final = 0x10
_OFFSET: Final = 0x20
_EXTRA: Final = 0x40
_OFFSET_IS_SERIAL: Final = 0x80

_SEVEN: Final = 56
"""Bits of a number in seven bytes; the byte above it holds flags."""
_MASK: Final = (1 << _SEVEN) - 1
_SHORT_HEAD: Final = 0xFFFF
_IDENTIFIERS_MAX: Final = 255

_PUBLISH_STATE: Final = EntryState.PUBLISH
_PUBREL_STATE: Final = EntryState.PUBREL

_WORD: Final = struct.Struct(">Q")
_pack_word = _WORD.pack
_unpack_word = _WORD.unpack_from
_pack_short = struct.Struct(">HQ").pack
_pack_long = struct.Struct(">IQ").pack


def encode(new: NewEntry) -> tuple[int, bytes]:
    """The flags and what follows the serial, which the server may have to give."""
    message = new.message
    flags = message.qos << _PUBLISHED_QOS_SHIFT
    if new.qos == 2:
        flags |= _QOS_2
    if new.retain:
        flags |= _RETAIN
    if message.retain:
        flags |= _PUBLISHED_RETAIN
    expires_at_us, payload = message.expires_at_us, message.payload
    if new.state is EntryState.PUBREL:
        flags |= PUBREL
        expires_at_us, payload = 0, b""
    topic = message.topic.encode()
    presence, optional, deadline = 0, b"", b""
    if expires_at_us or new.forget_at_us:
        flags |= DEADLINE
        presence, first, later = _deadlines(expires_at_us, new.forget_at_us)
        deadline = first.to_bytes(7, "big")
        if later:
            optional = later.to_bytes(7, "big")
    if message.publisher or message.properties or new.identifiers or message.offset or new.extra:
        more, optional = _optional(new, optional)
        presence |= more
    length = 8 + len(optional) + len(topic)
    word = presence << _SEVEN | message.published_at_us
    if length <= _SHORT_HEAD:
        head = _pack_short(length, word)
    else:
        flags |= _LONG
        head = _pack_long(length, word)
    return flags, b"".join((deadline, head, optional, topic, payload))


def _deadlines(expires_at_us: int, forget_at_us: int) -> tuple[int, int, int]:
    """(presence, the deadline, the later one or 0)."""
    if not forget_at_us:
        return 0, expires_at_us, 0
    if not expires_at_us:
        return _FORGET, forget_at_us, 0
    if forget_at_us < expires_at_us:
        return _FORGET | _LATER, forget_at_us, expires_at_us
    return _LATER, expires_at_us, forget_at_us


def _optional(new: NewEntry, later: bytes) -> tuple[int, bytes]:
    message = new.message
    presence = 0
    parts: list[bytes] = []
    if message.publisher:
        publisher = message.publisher.encode()
        presence |= _PUBLISHER
        parts += (len(publisher).to_bytes(2, "big"), publisher)
    if message.properties:
        presence |= _PROPERTIES
        parts += (len(message.properties).to_bytes(4, "big"), message.properties)
    parts.append(later)
    if new.identifiers:
        count = len(new.identifiers)
        if count > _IDENTIFIERS_MAX:
            raise UsageError(f"an entry holds {_IDENTIFIERS_MAX} subscription identifiers at most")
        presence |= _IDENTIFIERS
        parts.append(struct.pack(f">B{count}I", count, *new.identifiers))
    if message.offset:
        # As in the broker's own queues, where it costs nothing.
        if message.offset == new.serial:
            presence |= _OFFSET_IS_SERIAL
        else:
            presence |= _OFFSET
            parts.append(_pack_word(message.offset))
    if new.extra:
        presence |= _EXTRA
        parts += (len(new.extra).to_bytes(4, "big"), new.extra)
    return presence, b"".join(parts)


def decode(packet_id: int, record: bytes) -> QueuedEntry:
    """The entry in a record."""
    try:
        return _decode(packet_id, record)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise StorageCorrupt(f"entry {packet_id} does not decode: {error}") from error


def _decode(packet_id: int, record: bytes) -> QueuedEntry:
    word = _unpack_word(record)[0]
    flags, serial = word >> _SEVEN, word & _MASK
    at, deadline = 8, 0
    if flags & DEADLINE:
        deadline = int.from_bytes(record[8:15], "big")
        at = 15
    size = 4 if flags & _LONG else 2
    end = at + size + int.from_bytes(record[at : at + size], "big")
    at += size
    word = _unpack_word(record, at)[0]
    presence, published_at_us = word >> _SEVEN, word & _MASK
    at += 8
    if end > len(record) or at > end:
        raise StorageCorrupt(f"entry {packet_id} is cut short")
    is_pubrel = bool(flags & PUBREL)
    publisher, properties, later = "", b"", 0
    identifiers: tuple[int, ...] = ()
    offset, extra = 0, b""
    if presence & ~_FORGET:
        at, publisher, properties, later, identifiers, offset, extra = _read_optional(
            record, at, presence, serial
        )
        if at > end:
            raise StorageCorrupt(f"entry {packet_id} is cut short")
    expires_at_us, forget_at_us = 0, 0
    if is_pubrel:
        forget_at_us = deadline
    elif presence & _FORGET:
        forget_at_us, expires_at_us = deadline, later
    else:
        expires_at_us, forget_at_us = deadline, later
    return QueuedEntry(
        serial,
        packet_id,
        _PUBREL_STATE if is_pubrel else _PUBLISH_STATE,
        Message(
            record[at:end].decode(),
            record[end:],
            flags >> _PUBLISHED_QOS_SHIFT & 3,
            bool(flags & _PUBLISHED_RETAIN),
            publisher,
            properties,
            expires_at_us,
            published_at_us,
            offset,
        ),
        2 if flags & _QOS_2 else 1,
        bool(flags & _RETAIN),
        identifiers,
        forget_at_us,
        extra,
    )


def _read_optional(
    record: bytes, at: int, presence: int, serial: int
) -> tuple[int, str, bytes, int, tuple[int, ...], int, bytes]:
    """(where the topic begins, publisher, properties, the later deadline, identifiers, log offset,
    extra); the other way round than ``_optional``."""
    publisher, properties, later = "", b"", 0
    identifiers: tuple[int, ...] = ()
    offset, extra = 0, b""
    if presence & _PUBLISHER:
        length = int.from_bytes(record[at : at + 2], "big")
        publisher = record[at + 2 : at + 2 + length].decode()
        at += 2 + length
    if presence & _PROPERTIES:
        length = int.from_bytes(record[at : at + 4], "big")
        properties = record[at + 4 : at + 4 + length]
        at += 4 + length
    if presence & _LATER:
        later = int.from_bytes(record[at : at + 7], "big")
        at += 7
    if presence & _IDENTIFIERS:
        count = record[at]
        identifiers = struct.unpack_from(f">{count}I", record, at + 1)
        at += 1 + 4 * count
    if presence & _OFFSET:
        offset = _unpack_word(record, at)[0]
        at += 8
    elif presence & _OFFSET_IS_SERIAL:
        offset = serial
    if presence & _EXTRA:
        length = int.from_bytes(record[at : at + 4], "big")
        extra = record[at + 4 : at + 4 + length]
        at += 4 + length
    return at, publisher, properties, later, identifiers, offset, extra
