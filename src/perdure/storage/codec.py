"""The values on disk, drawn; each begins with a version, and golden files hold them all. Several in
one value begin with 2 there: a ``bundle`` of messages, an ``entry_run`` of entries.

Integers are big-endian. ``message``, wherever one is stored::

    version=1 (1) | flags (1) | published_at (8) | publisher length (2)
      [ expires_at (8) | properties length (4) ]            if flags.extended
      publisher | [ properties ] | payload to the end
    flags: bits 0-1 QoS, bit 2 RETAIN, bit 3 extended

The topic is not in it: the log rebuilds it from the key. Where there is no such key::

    inbox entry   version=1 (1) | flags (1) | identifier count (2) | group key length (2)
                  [ serial (8) | forget_at (8) ]                        if flags.placed
                  | identifiers (4 each) | group key
                  [ offset (8) | topic length (2) | topic | message ]   if flags.message
                  flags: bits 0-1 QoS, bit 2 RETAIN, bit 3 message (else a tombstone),
                  bit 4 placed (serial or forget_at is not 0)
    retained      offset (8) | message                      (the topic is the key)
    cursor        version=1 (1) | offset (8) | serial (8) | sent (8)
                  | settled count (4) | released count (4) | distances from serial (4 each)
    records       version=1 (1) | MessagePack array of the struct's fields in order

Knows no keys and no engine. Invariant: ``decode(encode(x)) == x``; bytes of a later version raise
``FormatTooNew``, all others that do not decode raise ``StorageCorrupt``.
"""

from __future__ import annotations

import struct
from sys import intern
from typing import TYPE_CHECKING, Final, TypeVar, final

import msgspec

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.model import Cursor, GroupRecord, InboxEntry, Message, SessionRecord, Subscription

if TYPE_CHECKING:
    # A machine word in the compiled build; an int is asked at each step whether it is one.
    from mypy_extensions import i64

VERSION: Final = 1

_QOS: Final = 0x03
_RETAIN: Final = 0x04
EXTENDED: Final = 0x08
"""The flag of a value that has an expiry or properties."""
_HAS_MESSAGE: Final = 0x08
_PLACED: Final = 0x10

_PLAIN = struct.Struct(">BBqH")
_EXTENDED_HEAD = struct.Struct(">BBqHqI")
_ENTRY = struct.Struct(">BBHH")
_ENTRY_PLACE = struct.Struct(">QQ")
_ENTRY_MESSAGE = struct.Struct(">qH")
_CURSOR = struct.Struct(">BqqqII")
_CURSOR_COUNTS_AT: Final = 25
_OFFSET = struct.Struct(">q")
_EXTENSION = struct.Struct(">qI")

PLAIN_SIZE: Final[int] = _PLAIN.size
EXTENDED_SIZE: Final[int] = _EXTENDED_HEAD.size
_EXTENSION_SIZE: Final[int] = _EXTENSION.size
_CURSOR_SIZE: Final[int] = _CURSOR.size
_unpack_plain: Final = _PLAIN.unpack_from
_unpack_extension: Final = _EXTENSION.unpack_from
_pack_plain: Final = _PLAIN.pack
_pack_extended: Final = _EXTENDED_HEAD.pack
_pack_cursor: Final = _CURSOR.pack
_unpack_cursor: Final = _CURSOR.unpack_from


@final
class _Publisher:
    """The publisher of the message that was decoded last: the next one is mostly of the same."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        # Together: whoever decodes in another thread sees both or neither.
        self.known: tuple[bytes, str] = (b"", "")


_last_publisher: Final = _Publisher()


def encode_message(message: Message) -> bytes:
    """The value of a message."""
    return encode_head(message, VERSION) + message.payload


def encode_head(message: Message, kind: int) -> bytes:
    """The value of a message up to its payload, which a bundle begins with, too.

    Args:
        kind: first byte of the value.
    """
    publisher = message.publisher.encode()
    flags = message.qos | _RETAIN if message.retain else message.qos
    if message.expires_at_us or message.properties:
        properties = message.properties
        head = _pack_extended(
            kind,
            flags | EXTENDED,
            message.published_at_us,
            len(publisher),
            message.expires_at_us,
            len(properties),
        )
        return b"".join((head, publisher, properties))
    return _pack_plain(kind, flags, message.published_at_us, len(publisher)) + publisher


def head_length(offset: int, value: bytes) -> int:
    """Length of what ``encode_head`` gave, whatever its kind."""
    try:
        if value[1] & EXTENDED:
            _, _, _, publisher, _, properties = _EXTENDED_HEAD.unpack_from(value)
            return int(_EXTENDED_HEAD.size + publisher + properties)
        return int(PLAIN_SIZE + _unpack_plain(value)[3])
    except (struct.error, IndexError) as error:
        raise StorageCorrupt(f"message at {offset} does not decode: {error}") from error


def decode_message(
    topic: str, offset: int, value: bytes, start: int = 0, stop: int = -1
) -> Message:
    """The message in a value, or in the bytes ``[start, stop)`` of many; -1 = to the end."""
    if stop < 0:
        stop = len(value)
    # With their types known, the compiled form takes no objects for them.
    version: int
    flags: int
    published_at_us: int
    publisher_length: int
    expires_at_us: int = 0
    properties_length: int = 0
    properties = b""
    try:
        version, flags, published_at_us, publisher_length = _unpack_plain(value, start)
        if version != VERSION:
            raise _wrong_version("message", version)
        start += PLAIN_SIZE
        if flags & EXTENDED:
            expires_at_us, properties_length = _unpack_extension(value, start)
            start += _EXTENSION_SIZE
        publisher_end = start + publisher_length
        end = publisher_end + properties_length
        if end > stop:
            raise StorageCorrupt(f"message at {offset} is cut short")
        if properties_length:
            properties = value[publisher_end:end]
        raw = value[start:publisher_end]
        known = _last_publisher.known
        if raw == known[0]:
            publisher = known[1]
        else:
            publisher = raw.decode()
            _last_publisher.known = (raw, publisher)
    except (struct.error, UnicodeDecodeError) as error:
        raise StorageCorrupt(f"message at {offset} does not decode: {error}") from error
    return Message(
        topic,
        value[end:stop],
        flags & _QOS,
        (flags & _RETAIN) != 0,
        publisher,
        properties,
        expires_at_us,
        published_at_us,
        offset,
    )


def encode_retained(message: Message) -> bytes:
    """The value of a retained message."""
    return _OFFSET.pack(message.offset) + encode_message(message)


def retained_size(message: Message) -> int:
    """What a retained message counts in bytes: its value and its topic."""
    return len(encode_retained(message)) + len(message.topic.encode())


def decode_retained(topic: str, value: bytes) -> Message:
    """The message in the value of a retained topic."""
    if len(value) < _OFFSET.size:
        raise StorageCorrupt(f"retained message of {topic!r} is cut short")
    return decode_message(topic, _OFFSET.unpack_from(value)[0], value[_OFFSET.size :])


def encode_entry(entry: InboxEntry) -> bytes:
    """The value of an entry of a private stream."""
    message = entry.message
    flags = entry.qos | (_RETAIN if entry.retain else 0) | (_HAS_MESSAGE if message else 0)
    group_key = entry.group_key.encode()
    identifiers = entry.identifiers
    placed = entry.serial or entry.forget_at_us
    if placed:
        flags |= _PLACED
    parts = [
        _ENTRY.pack(VERSION, flags, len(identifiers), len(group_key)),
        _ENTRY_PLACE.pack(entry.serial, entry.forget_at_us) if placed else b"",
        struct.pack(f">{len(identifiers)}I", *identifiers),
        group_key,
    ]
    if message is not None:
        topic = message.topic.encode()
        parts += (_ENTRY_MESSAGE.pack(message.offset, len(topic)), topic, encode_message(message))
    return b"".join(parts)


def decode_entry(offset: int, value: bytes) -> InboxEntry:
    """The entry of a private stream in a value."""
    try:
        version, flags, identifier_count, group_length = _ENTRY.unpack_from(value)
        position = _ENTRY.size
        serial = forget_at_us = 0
        if version != VERSION:
            raise _wrong_version("inbox entry", version)
        if flags & _PLACED:
            serial, forget_at_us = _ENTRY_PLACE.unpack_from(value, position)
            position += _ENTRY_PLACE.size
        identifiers = struct.unpack_from(f">{identifier_count}I", value, position)
        position += 4 * identifier_count
        # A session may keep a thousand entries in memory: one text for all of them.
        group_key = intern(value[position : position + group_length].decode())
        position += group_length
        message = None
        if flags & _HAS_MESSAGE:
            message_offset, topic_length = _ENTRY_MESSAGE.unpack_from(value, position)
            position += _ENTRY_MESSAGE.size
            topic = intern(value[position : position + topic_length].decode())
            message = decode_message(topic, message_offset, value[position + topic_length :])
        elif position != len(value):
            raise StorageCorrupt(f"inbox entry at {offset} has {len(value)} bytes")
    except (struct.error, UnicodeDecodeError) as error:
        raise StorageCorrupt(f"inbox entry at {offset} does not decode: {error}") from error
    return InboxEntry(
        offset,
        message,
        qos=flags & _QOS,
        retain=bool(flags & _RETAIN),
        identifiers=identifiers,
        group_key=group_key,
        serial=serial,
        forget_at_us=forget_at_us,
    )


def encode_cursor(cursor: Cursor) -> bytes:
    """The value of a cursor."""
    settled, released, serial = cursor.settled, cursor.released, cursor.serial
    head = _pack_cursor(VERSION, cursor.offset, serial, cursor.sent, len(settled), len(released))
    if not settled and not released:
        return head
    distances = [number - serial for number in settled + released]
    return head + struct.pack(f">{len(distances)}I", *distances)


def uint16_at(value: bytes, at: i64) -> i64:
    """A number of two bytes that stands at a place.

    Compiled, bytes by themselves cost a tenth of a slice and a call.
    """
    high: i64 = value[at]
    low: i64 = value[at + 1]
    return high << 8 | low


def uint32_at(value: bytes, at: i64) -> i64:
    """A number of four bytes that stands at a place."""
    return uint16_at(value, at) << 16 | uint16_at(value, at + 2)


def is_cursor(value: bytes, start: i64, end: i64) -> bool:
    """Whether there is a cursor between two places of some bytes, which ``decode_cursor`` takes."""
    at = start + _CURSOR_COUNTS_AT
    rest = end - start - _CURSOR_SIZE
    if rest < 0 or end > len(value) or value[start] != VERSION:
        return False
    return rest == 4 * (uint32_at(value, at) + uint32_at(value, at + 4))


def decode_cursor(value: bytes) -> Cursor:
    """The cursor in a value."""
    try:
        version, offset, serial, sent, settled, released = _unpack_cursor(value)
        if version != VERSION:
            raise _wrong_version("cursor", version)
        if len(value) == _CURSOR_SIZE and not settled and not released:
            return Cursor(offset, serial, (), (), sent)
        distances = struct.unpack(f">{settled + released}I", value[_CURSOR_SIZE:])
    except struct.error as error:
        raise StorageCorrupt(f"cursor does not decode: {error}") from error
    numbers = tuple([serial + distance for distance in distances])
    return Cursor(offset, serial, numbers[:settled], numbers[settled:], sent)


_encode = msgspec.msgpack.Encoder().encode
_session_decoder = msgspec.msgpack.Decoder(SessionRecord)
_subscription_decoder = msgspec.msgpack.Decoder(Subscription)
_group_decoder = msgspec.msgpack.Decoder(GroupRecord)
_VERSION_BYTE = bytes([VERSION])


def encode_record(record: msgspec.Struct) -> bytes:
    """The value of a session, subscription, group or other array-like struct."""
    return _VERSION_BYTE + _encode(record)


def decode_session(value: bytes) -> SessionRecord:
    """The session record in a value."""
    return decode_record(_session_decoder, "session", value)


def decode_subscription(value: bytes) -> Subscription:
    """The subscription in a value."""
    return decode_record(_subscription_decoder, "subscription", value)


def decode_group(value: bytes) -> GroupRecord:
    """The group record in a value."""
    return decode_record(_group_decoder, "group", value)


_Record = TypeVar("_Record")


def decode_record(decoder: msgspec.msgpack.Decoder[_Record], name: str, value: bytes) -> _Record:
    """The struct in a value; fields that a later release appended are ignored."""
    if value[:1] != _VERSION_BYTE:
        raise _wrong_version(name, value[0] if value else 0)
    try:
        return decoder.decode(memoryview(value)[1:])
    except ValueError as error:
        raise StorageCorrupt(f"{name} record does not decode: {error}") from error


def _wrong_version(name: str, version: int) -> StorageCorrupt | FormatTooNew:
    if version > VERSION:
        return FormatTooNew(f"{name} record has version {version}; this release reads {VERSION}")
    return StorageCorrupt(f"{name} record has no version")
