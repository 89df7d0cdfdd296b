"""Several entries of one private stream in one value: what a group gives to a member in one step.

As rows of their own they would repeat the group's key and the flags, and cost a key each in the
write-ahead log and in memory, and another when they are trimmed. Messages that stand behind each
other in the log, of one publisher to one topic, are one piece. Integers are big-endian::

    kind=2 (1) | flags (1) | identifier count (2) | group key length (2) | piece count (2)
      | identifiers (4 each) | group key
      | ( last offset (8) | topic length (2) | length (4) ) each | ( topic | piece ) each
    flags: as those of an inbox entry (``codec``)
    piece: a message (``codec``) or a bundle (``bundle``), as in the log; last offset: in the log

The offsets of the entries are consecutive, and the row's key has the last of them (as that of a
bundle of the log): rows in the order of their keys are entries in the order of their offsets.

Invariant: ``decode(last, encode(run)) == run``.
"""

from __future__ import annotations

import struct
from sys import intern
from typing import Final

from perdure.errors import StorageCorrupt
from perdure.model import InboxEntry, Message
from perdure.storage.bundle import decode_row, encode_run, run_end
from perdure.storage.codec import decode_entry

KIND: Final = 2
"""First byte of a run, where an entry has its version, 1."""

ENTRIES_MAX: Final = 256
"""Entries of a run: whoever wants one reads all of them."""

_HEAD: Final = struct.Struct(">BBHHH")
_PLACE: Final = struct.Struct(">qHI")
_pack_place: Final = _PLACE.pack
_KIND_BYTE: Final = bytes([KIND])
_QOS: Final = 0x03
_RETAIN: Final = 0x04


def can_be_run(entries: list[InboxEntry]) -> bool:
    """Whether entries that are alike but for their messages follow each other without a gap."""
    count = len(entries)
    return 1 < count <= ENTRIES_MAX and entries[-1].offset - entries[0].offset == count - 1


def encode_entries(entries: list[InboxEntry]) -> bytes:
    """The value of a run.

    Args:
        entries: ``can_be_run``; each has a message, none a serial number or a lifetime of its own.
    """
    first = entries[0]
    group_key = first.group_key.encode()
    identifiers = first.identifiers
    flags = first.qos | _RETAIN if first.retain else first.qos
    messages: list[Message] = []
    for entry in entries:
        message = entry.message
        assert message is not None
        messages.append(message)
    places: list[bytes] = []
    pieces: list[bytes] = []
    start, count = 0, len(messages)
    while start < count:
        stop = run_end(messages, start)
        topic = messages[start].topic.encode()
        piece = encode_run(messages, start, stop)
        places.append(_pack_place(messages[stop - 1].offset, len(topic), len(piece)))
        pieces.append(topic)
        pieces.append(piece)
        start = stop
    head = _HEAD.pack(KIND, flags, len(identifiers), len(group_key), len(places))
    return b"".join(
        [head, struct.pack(f">{len(identifiers)}I", *identifiers), group_key, *places, *pieces]
    )


def decode_entries(last: int, value: bytes) -> list[InboxEntry]:
    """The entries in the value of a row, by offset.

    Args:
        last: the offset in the row's key.
        value: of a run, or of one entry.

    Raises:
        StorageCorrupt: it is neither.
        FormatTooNew: a later release wrote it.
    """
    if not value.startswith(_KIND_BYTE):
        return [decode_entry(last, value)]
    try:
        _, flags, identifier_count, group_length, count = _HEAD.unpack_from(value)
        at = _HEAD.size
        identifiers = struct.unpack_from(f">{identifier_count}I", value, at)
        at += 4 * identifier_count
        group_key = intern(value[at : at + group_length].decode())
        at += group_length
        body = at + count * _PLACE.size
        messages: list[Message] = []
        for _ in range(count):
            log_offset, topic_length, length = _PLACE.unpack_from(value, at)
            at += _PLACE.size
            start = body + topic_length
            topic = intern(value[body:start].decode())
            body = start + length
            if body > len(value):
                raise _cut_short(last)
            messages += decode_row(topic, log_offset, value[start:body], -1, log_offset)
    except (struct.error, UnicodeDecodeError) as error:
        raise StorageCorrupt(f"inbox entries at {last} do not decode: {error}") from error
    if not messages or body != len(value):
        raise _cut_short(last)
    first = last - len(messages) + 1
    return [
        InboxEntry(
            first + number,
            message,
            qos=flags & _QOS,
            retain=(flags & _RETAIN) != 0,
            identifiers=identifiers,
            group_key=group_key,
        )
        for number, message in enumerate(messages)
    ]


def _cut_short(last: int) -> StorageCorrupt:
    return StorageCorrupt(f"inbox entries at {last} do not decode: another length")
