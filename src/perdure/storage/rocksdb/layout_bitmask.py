"""Layout 2, bitmask: a fixed-width index of topic levels, read with seek and skip.

The ancestor of the learned layout, kept for comparison and for logs whose topics share no
structure. Integers are big-endian::

    g00000001.data     epoch (4) | topic index (8) | offset (8)
                         -> topic length (2) | topic | message
    g00000001.index    (empty)

``epoch`` is the offset shifted right by 31 bits, about 36 minutes. The topic index has four
fields of 16 bits: a hash of each of the first three levels, and one of the rest joined by "/".
A missing level hashes as "/", which no level can be.

A filter becomes a mask of the fields that it fixes and their value. In each epoch the reader
seeks to the lowest index with that value under the mask; at an index that does not fit it
computes the next one that does and seeks there. The true topic decides at the end. What was found
in an epoch is sorted by offset, so a page of a large epoch costs as much as all of it: the
weakness that layout 1 does not have.

Invariant: a message has one row, and its key follows from its topic and offset.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, final

from perdure.errors import StorageCorrupt
from perdure.limits import OFFSET_MAX
from perdure.model import Message
from perdure.storage.codec import decode_message
from perdure.storage.contract import Counted, Finding
from perdure.storage.rocksdb.effort import Effort
from perdure.storage.rocksdb.engine import Engine, Operations
from perdure.storage.rocksdb.iterators import Seeker
from perdure.storage.rocksdb.layout import TOPIC_LENGTH_MAX, table_names
from perdure.storage.rows import Rows, rows_of
from perdure.topic.matching import compile_filter

LAYOUT: Final = 2

_EPOCH_BITS: Final = 31
_FIELDS: Final = 4
_FIELD_BITS: Final = 16
_INDEX_BITS: Final = _FIELDS * _FIELD_BITS
_FIELD_MASK: Final = (1 << _FIELD_BITS) - 1
_TOPICS_MAX: Final = 65_536
_KEY = struct.Struct(">IQQ")
_TOPIC_LENGTH = struct.Struct(">H")
_ALL_END: Final = b"\xff" * 21


def level_hash(level: str) -> int:
    """Hash of a level, or of several joined, in the topic index."""
    return int.from_bytes(blake2b(level.encode(), digest_size=2).digest())


_MISSING: Final = level_hash("/")


def topic_index(topic: str) -> int:
    """The index of a topic."""
    return _combine(_fields(topic.split("/")))


def filter_query(topic_filter: str) -> tuple[int, int]:
    """Value and mask: an index ``x`` may match if ``x & mask == value``."""
    levels = topic_filter.split("/")
    open_ended = levels[-1] == "#"
    if open_ended:
        levels.pop()
    hashes = _fields(levels)
    fixed = [
        (index < len(levels) and levels[index] != "+")
        if open_ended
        else (index >= len(levels) or levels[index] != "+")
        for index in range(_FIELDS)
    ]
    if len(levels) >= _FIELDS:
        fixed[-1] = not open_ended and "+" not in levels[_FIELDS - 1 :]
    mask = _combine([_FIELD_MASK if each else 0 for each in fixed])
    return _combine(hashes) & mask, mask


def next_index(index: int, value: int, mask: int) -> int | None:
    """The lowest number from ``index`` on with ``value`` under ``mask``; None = there is none."""
    conflict = (index ^ value) & mask
    if not conflict:
        return index
    bit = conflict.bit_length() - 1
    if index >> bit & 1:
        # Too high at this bit: the lowest free bit above it that is 0 goes up by one.
        free = ~(index | mask) & ((1 << _INDEX_BITS) - 1)
        free = free >> bit + 1 << bit + 1
        if not free:
            return None
        bit = (free & -free).bit_length() - 1
        index |= 1 << bit
    else:
        index |= 1 << bit
    # Below the bit that went up everything starts again: free bits at 0, fixed bits as wanted.
    above = index >> bit << bit
    return above | (value & ((1 << bit) - 1))


@final
class BitmaskLayout:
    """One generation in layout 2."""

    def __init__(self, engine: Callable[[], Engine], generation: int) -> None:
        self._engine = engine
        self._generation = generation
        self._data, self._index = table_names(generation)
        self._keys: dict[str, tuple[int, bytes]] = {}

    @property
    def tables(self) -> tuple[str, ...]:
        return (self._data, self._index)

    @property
    def stream_count(self) -> int:
        return 0

    def append(self, operations: Operations, messages: list[Message]) -> Rows:
        rows = rows_of(messages, bundled=False)
        for topic, offset, value in zip(rows.topics, rows.offsets, rows.values, strict=True):
            known = self._keys.get(topic)
            if known is None:
                encoded = topic.encode()
                known = (topic_index(topic), _TOPIC_LENGTH.pack(len(encoded)) + encoded)
                if len(topic) <= TOPIC_LENGTH_MAX:
                    if len(self._keys) >= _TOPICS_MAX:
                        self._keys.clear()
                    self._keys[topic] = known
            key = _KEY.pack(offset >> _EPOCH_BITS, known[0], offset)
            operations += (self._data, key, known[1] + value)
        return rows

    def append_rows(self, operations: Operations, rows: Rows) -> Rows:
        return self.append(operations, rows.messages())  # it has no bundles

    def unpersisted(self) -> Operations:
        return []

    def mark_persisted(self) -> None:
        return

    def ended(self) -> None:
        self._keys.clear()

    def scan(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        effort: Effort | None = None,
    ) -> Iterator[Message]:
        until = min(until_offset, OFFSET_MAX)
        engine = self._engine()
        seeker = engine.seeker(self._data, _ALL_END)
        epoch = (after_offset + 1) >> _EPOCH_BITS
        while epoch <= until >> _EPOCH_BITS:
            key = seeker.seek(_KEY.pack(epoch, 0, 0))
            if key is None:
                return
            epoch = _KEY.unpack(key)[0]
            found: dict[int, bytes] = {}
            for topic_filter in dict.fromkeys(filters):
                self._search(seeker, topic_filter, epoch, (after_offset, until), found)
            for offset in sorted(found):
                value = engine.get(self._data, found[offset])
                if value is None:
                    raise StorageCorrupt(f"the message at {offset} cannot be read again")
                topic, rest = _split(value, offset)
                yield decode_message(topic, offset, rest)
            epoch += 1

    def count(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        effort: Effort | None = None,
    ) -> Counted:
        found = 0
        for message in self.scan(filters, after_offset=after_offset, until_offset=until_offset):
            found += 1
            if found >= limit:
                return Counted(found, message.offset)
        return Counted(found, until_offset)

    def _search(
        self,
        seeker: Seeker,
        topic_filter: str,
        epoch: int,
        bounds: tuple[int, int],
        found: dict[int, bytes],
    ) -> None:
        """Add the offsets and keys of an epoch's messages that match."""
        after, until = bounds
        value, mask = filter_query(topic_filter)
        matches = compile_filter(topic_filter).matches
        index: int | None = next_index(0, value, mask)
        while index is not None:
            key = seeker.seek(_KEY.pack(epoch, index, after + 1))
            while key is not None:
                at_epoch, at_index, offset = _KEY.unpack(key)
                if at_epoch != epoch:
                    return
                if at_index & mask != value or not after < offset <= until:
                    break
                if offset not in found and matches(_split(seeker.value(), offset)[0]):
                    found[offset] = key
                key = seeker.next()
            if key is None:
                return
            # What stopped the walk is another topic's, before the range, or beyond it.
            if at_index & mask == value and offset > until:
                at_index += 1
            if at_index >= 1 << _INDEX_BITS:
                return
            index = next_index(at_index, value, mask)

    def streams(self) -> list[tuple[int, str]]:
        return []

    def check(self, *, since_offset: int, until_offset: int) -> Iterator[Finding | int]:
        messages = 0
        for key, value in self._engine().items(self._data, b"", _ALL_END):
            messages += 1
            try:
                epoch, index, offset = _KEY.unpack(key)
                topic, rest = _split(value, offset)
                decode_message(topic, offset, rest)
            except (StorageCorrupt, struct.error) as error:
                yield Finding(self._data, key.hex(), str(error))
                continue
            if not since_offset <= offset < until_offset:
                yield Finding(self._data, key.hex(), "a message of another generation")
            if epoch != offset >> _EPOCH_BITS or index != topic_index(topic):
                yield Finding(self._data, key.hex(), f"{topic!r} has another key")
        yield messages


def _fields(levels: list[str]) -> list[int]:
    """The fields of an index; a wildcard's value is masked out later."""
    hashes = [level_hash(level) for level in levels[: _FIELDS - 1]]
    if len(levels) >= _FIELDS:
        hashes.append(level_hash("/".join(levels[_FIELDS - 1 :])))
    return hashes + [_MISSING] * (_FIELDS - len(hashes))


def _combine(fields: list[int]) -> int:
    combined = 0
    for each in fields:
        combined = combined << _FIELD_BITS | each
    return combined


def _split(value: bytes, offset: int) -> tuple[str, bytes]:
    """Topic and message of a row's value."""
    try:
        end = 2 + _TOPIC_LENGTH.unpack_from(value)[0]
        if end > len(value):
            raise StorageCorrupt(f"message at {offset} is cut short")
        return value[2:end].decode(), value[end:]
    except (struct.error, UnicodeDecodeError) as error:
        raise StorageCorrupt(f"topic of the message at {offset} does not decode") from error
