"""Layout 1, skip-scan: learned streams, and one index entry for each level that varies.

``devices/42/temperature`` resolves to the stream ``devices/+/temperature`` and the varying token
``42`` (``topic.structure``). Integers are big-endian::

    g00000001.data     stream (8) | offset (8) | varying tokens joined by "/"   -> message
    g00000001.index    stream (8) | level (1) | hash (8) | offset (8)           -> (empty)

``level`` counts the varying levels of the stream from 0; ``hash`` is BLAKE2b of the token. A
filter takes the streams that may match it. Where it fixes no varying level, the stream is read as
it lies: a ``+`` costs nothing. Else one iterator for each fixed level leaps over the index, to
the next offset that the others have too. Hashes collide, so the token itself decides at the end.
The streams are then merged by offset.

The topic structure is kept in the default table, and what is new of it is written with the
batch that needs it.

Invariants: a message has one data row and one index row per varying token; its topic is the
stream's pattern with the tokens put in.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from heapq import merge
from typing import Final, TypeAlias, final

from perdure.errors import StorageCorrupt, UsageError
from perdure.limits import OFFSET_MAX
from perdure.model import Message
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.codec import decode_message, encode_message
from perdure.storage.rocksdb.engine import META, Engine, Operations, prefix_end
from perdure.storage.rocksdb.layout import Finding, table_names
from perdure.topic.records import NodeRecord, decode_record
from perdure.topic.structure import StreamMatch, StructureTrie

LAYOUT: Final = 1

_TOPICS_MAX: Final = 65_536
"""Topics whose keys are kept ready, and topics kept rebuilt, count each."""

LEAPS_MAX: Final = 256
"""Each filter that is leapt over holds its own iterators open."""

_FILTERS_MAX: Final = 4_096
"""Filters whose streams are kept, count."""

_pack_offset = struct.Struct(">Q").pack
_unpack_data = struct.Struct(">QQ").unpack_from
_unpack_index_offset = struct.Struct(">Q").unpack_from
_INDEX_OFFSET_AT: Final = 17
_DATA_HEAD: Final = 16

Row: TypeAlias = tuple[int, bytes, bytes]
"""Offset, data key, data value."""

_Constraints: TypeAlias = tuple[tuple[int, str], ...]


def token_hash(token: str) -> bytes:
    """Hash of a varying token in the index."""
    return blake2b(token.encode(), digest_size=8).digest()


@final
class SkipScanLayout:
    """One generation in layout 1.

    Args:
        engine: gives the open engine (it is another one after a recovery).
        generation: whose tables these are.
        trie: the generation's topic structure.
        leaps_max: filters on one stream beyond which it is read as it lies and each topic is
            tried.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        generation: int,
        trie: StructureTrie,
        *,
        leaps_max: int = LEAPS_MAX,
    ) -> None:
        self._engine = engine
        self._generation = generation
        self._trie = trie
        self._leaps_max = leaps_max
        self._data, self._index = table_names(generation)
        self._keys: dict[str, tuple[bytes, bytes, tuple[bytes, ...]]] = {}
        self._topics: dict[bytes, str] = {}
        self._matches: dict[str, tuple[int, list[StreamMatch]]] = {}
        self._offered: tuple[NodeRecord, ...] = ()

    @classmethod
    def load(
        cls, engine: Callable[[], Engine], generation: int, thresholds: tuple[int, ...]
    ) -> SkipScanLayout:
        """The generation as it is on disk."""
        prefix = keys.generation_nodes(generation)
        rows = engine().items(META, prefix, prefix_end(prefix))
        records = [decode_record(value) for _, value in rows]
        return cls(engine, generation, StructureTrie.load(records, thresholds=thresholds))

    @property
    def tables(self) -> tuple[str, ...]:
        return (self._data, self._index)

    @property
    def stream_count(self) -> int:
        return self._trie.stream_count

    # -- writing ---------------------------------------------------------------------------

    def append(self, operations: Operations, message: Message) -> None:
        known = self._keys.get(message.topic)
        if known is None:
            known = self._learn(message.topic)
        stream, varying, index = known
        at = _pack_offset(message.offset)
        operations += (self._data, stream + at + varying, encode_message(message))
        for prefix in index:
            operations += (self._index, prefix + at, b"")

    def _learn(self, topic: str) -> tuple[bytes, bytes, tuple[bytes, ...]]:
        resolved = self._trie.resolve(topic)
        stream = _pack_offset(resolved.stream)
        index = [
            b"%b%c%b" % (stream, level, token_hash(token))
            for level, token in enumerate(resolved.varying)
        ]
        known = (stream, "/".join(resolved.varying).encode(), tuple(index))
        if len(self._keys) >= _TOPICS_MAX:
            self._keys.clear()
        self._keys[topic] = known
        return known

    def unpersisted(self) -> Operations:
        operations: Operations = []
        self._offered = self._trie.unpersisted()
        for record in self._offered:
            key = keys.generation_node(self._generation, record.node_id)
            operations += (META, key, record.encode())
        return operations

    def mark_persisted(self) -> None:
        self._trie.mark_persisted(self._offered)
        self._offered = ()

    # -- reading ---------------------------------------------------------------------------

    def scan(
        self, filters: Sequence[str], *, after_offset: int, until_offset: int
    ) -> Iterator[Message]:
        last = -1
        for offset, key, value in self._rows(filters, after_offset, until_offset):
            if offset != last:
                last = offset
                yield decode_message(self._topic(key), offset, value)

    def count(
        self, filters: Sequence[str], *, after_offset: int, until_offset: int, limit: int
    ) -> int:
        found = 0
        for stream, constraints in self._plan(filters).items():
            if constraints is None:
                head = _pack_offset(stream)
                first, end = head + _pack_offset(after_offset + 1), _end(head, until_offset)
                for _ in self._engine().keys(self._data, first, end):
                    found += 1
                    if found >= limit:
                        return limit
            else:
                last = -1
                for row in self._stream_rows(stream, constraints, after_offset, until_offset):
                    if row[0] != last:
                        last = row[0]
                        found += 1
                        if found >= limit:
                            return limit
        return found

    def _plan(self, filters: Sequence[str]) -> dict[int, set[_Constraints] | None]:
        """The streams to read, each with what its tokens must be; None = all of the stream."""
        plan: dict[int, set[_Constraints] | None] = {}
        for topic_filter in filters:
            for match in self._streams_matching(topic_filter):
                if not match.constraints:
                    plan[match.stream] = None
                    continue
                known = plan.setdefault(match.stream, set())
                if known is not None:
                    known.add(match.constraints)
        return plan

    def _streams_matching(self, topic_filter: str) -> list[StreamMatch]:
        known = self._matches.get(topic_filter)
        if known is not None and known[0] == self._trie.stream_count:
            return known[1]
        found = self._trie.streams_matching(topic_filter)
        if len(self._matches) >= _FILTERS_MAX:
            self._matches.clear()
        self._matches[topic_filter] = (self._trie.stream_count, found)
        return found

    def _rows(self, filters: Sequence[str], after: int, until: int) -> Iterator[Row]:
        """Rows that match, by offset; one that matches twice may come twice in a row."""
        plan = self._plan(filters)
        parts = [
            self._stream_rows(stream, constraints, after, until)
            for stream, constraints in plan.items()
        ]
        return parts[0] if len(parts) == 1 else merge(*parts)

    def _stream_rows(
        self, stream: int, constraints: set[_Constraints] | None, after: int, until: int
    ) -> Iterator[Row]:
        if constraints is None:
            return self._whole(stream, after, until)
        if len(constraints) > self._leaps_max:
            return self._tried(stream, constraints, after, until)
        parts = [self._leap(stream, each, after, until) for each in sorted(constraints)]
        return parts[0] if len(parts) == 1 else merge(*parts)

    def _whole(self, stream: int, after: int, until: int) -> Iterator[Row]:
        """All rows of a stream."""
        head = _pack_offset(stream)
        first, end = head + _pack_offset(after + 1), _end(head, until)
        for key, value in self._engine().items(self._data, first, end):
            yield _unpack_data(key)[1], key, value

    def _tried(
        self, stream: int, constraints: set[_Constraints], after: int, until: int
    ) -> Iterator[Row]:
        """Rows of a stream that fulfil one of many constraints."""
        by_levels: dict[tuple[int, ...], set[tuple[str, ...]]] = {}
        for each in constraints:
            levels = tuple([level for level, _ in each])
            by_levels.setdefault(levels, set()).add(tuple([token for _, token in each]))
        for row in self._whole(stream, after, until):
            tokens = _tokens(row[1])
            for levels, wanted in by_levels.items():
                if tuple([tokens[level] for level in levels]) in wanted:
                    yield row
                    break

    def _leap(
        self, stream: int, constraints: _Constraints, after: int, until: int
    ) -> Iterator[Row]:
        """Rows of a stream whose tokens are these, found through the index."""
        head = _pack_offset(stream)
        end = _end(head, until)
        data = self._engine().seeker(self._data, end)
        for offset in self._offsets(head, constraints, after, until):
            key = data.seek(head + _pack_offset(offset))
            if key is None or _unpack_data(key)[1] != offset:
                raise StorageCorrupt(
                    f"stream {stream} of generation {self._generation} has an index entry "
                    f"for {offset} and no message"
                )
            tokens = _tokens(key)
            if all(tokens[level] == token for level, token in constraints):
                yield offset, key, data.value()

    def _offsets(
        self, head: bytes, constraints: _Constraints, after: int, until: int
    ) -> Iterator[int]:
        """Offsets at which all levels have the wanted hashes."""
        prefixes = [b"%b%c%b" % (head, level, token_hash(token)) for level, token in constraints]
        first = after + 1
        if len(prefixes) == 1:
            prefix = prefixes[0]
            low, end = prefix + _pack_offset(first), _end(prefix, until)
            for key in self._engine().keys(self._index, low, end):
                yield _unpack_index_offset(key, _INDEX_OFFSET_AT)[0]
            return
        seekers = [
            (prefix, self._engine().seeker(self._index, _end(prefix, until))) for prefix in prefixes
        ]
        offset, agreed, turn = first, 0, 0
        while True:
            prefix, seeker = seekers[turn]
            found = seeker.seek(prefix + _pack_offset(offset))
            if found is None:
                return
            at: int = _unpack_index_offset(found, _INDEX_OFFSET_AT)[0]
            agreed = agreed + 1 if at == offset else 1
            offset = at
            if agreed == len(seekers):
                yield offset
                offset, agreed = offset + 1, 0
            turn = (turn + 1) % len(seekers)

    def _topic(self, key: bytes) -> str:
        """The topic of a data key, rebuilt."""
        part = key[:8] + key[_DATA_HEAD:]
        topic = self._topics.get(part)
        if topic is None:
            stream = _unpack_data(key)[0]
            varying = key[_DATA_HEAD:]
            try:
                # No token and one empty token are both no bytes: the pattern tells.
                tokens = varying.decode().split("/") if varying else []
                if not varying and "+" in self._trie.pattern(stream).split("/"):
                    tokens = [""]
                topic = self._trie.topic(stream, tokens)
            except (UsageError, UnicodeDecodeError) as error:
                raise StorageCorrupt(
                    f"generation {self._generation} has no stream for key {key.hex()}"
                ) from error
            if len(self._topics) >= _TOPICS_MAX:
                self._topics.clear()
            self._topics[part] = topic
        return topic

    # -- the rest --------------------------------------------------------------------------

    def streams(self) -> list[tuple[int, str]]:
        return self._trie.streams()

    def inherit(self) -> StructureTrie:
        """The topic structure with which the next generation begins."""
        return self._trie.inherit()

    def check(self, *, since_offset: int, until_offset: int) -> Iterator[Finding | int]:
        messages = 0
        engine = self._engine()
        for key, value in engine.items(self._data, b"", _pack_offset(2**64 - 1)):
            messages += 1
            try:
                topic = self._topic(key)
                message = decode_message(topic, _unpack_data(key)[1], value)
                expected = self._learn(topic)
            except (StorageCorrupt, struct.error) as error:
                yield Finding(self._data, key.hex(), str(error))
                continue
            at = _pack_offset(message.offset)
            if not since_offset <= message.offset < until_offset:
                yield Finding(self._data, key.hex(), "a message of another generation")
            if expected[0] + at + expected[1] != key:
                yield Finding(self._data, key.hex(), f"{topic!r} belongs to another stream")
                continue
            for prefix in expected[2]:
                if engine.get(self._index, prefix + at) is None:
                    yield Finding(self._data, key.hex(), "a varying level has no index entry")
        for key in engine.keys(self._index, b"", _pack_offset(2**64 - 1)):
            yield from self._check_index(engine, key)
        yield messages

    def _check_index(self, engine: Engine, key: bytes) -> Iterator[Finding]:
        head = key[:8] + key[_INDEX_OFFSET_AT:]
        row = engine.seeker(self._data, prefix_end(head)).seek(head) if len(key) == 25 else None
        if row is None:
            yield Finding(self._index, key.hex(), "an index entry has no message")
            return
        tokens, level = _tokens(row), key[8]
        if level >= len(tokens) or token_hash(tokens[level]) != key[9:_INDEX_OFFSET_AT]:
            yield Finding(self._index, key.hex(), "an index entry belongs to another token")


def _end(prefix: bytes, until: int) -> bytes:
    """The first key after those of a prefix up to an offset."""
    return prefix + _pack_offset(min(until, OFFSET_MAX) + 1)


def _tokens(key: bytes) -> list[str]:
    """The varying tokens of a data key of a stream that has some."""
    try:
        return key[_DATA_HEAD:].decode().split("/")
    except UnicodeDecodeError as error:
        raise StorageCorrupt(f"data key {key.hex()} is not UTF-8") from error
