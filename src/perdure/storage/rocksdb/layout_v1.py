"""Layouts 1 and 4, skip-scan: learned streams, and index entries for the levels that vary.

``devices/42/temperature`` resolves to the stream ``devices/+/temperature`` and the varying token
``42`` (``topic.structure``). Integers are big-endian::

    g00000001.data     stream (8) | offset (8) | varying tokens joined by "/"   -> message
    g00000001.index    stream (8) | level (1) | hash (8) | last offset (8)
                                                                -> other offsets (8 each)

An index entry stands for a run: rows of one write that have the token. Its key has the offset of
the last of them, its value those of the others, ascending; at most ``RUN_OFFSETS_MAX`` in all, and
at most ``RUN_SPAN`` between the first and the last. In layout 1 each row has an entry of its own,
with an empty value: a run of one is the same in both. A generation goes on as it began.

``level`` counts the varying levels of the stream from 0; ``hash`` is BLAKE2b of the token. A
filter takes the streams that may match it. Where it fixes no varying level, the stream is read as
it lies: a ``+`` costs nothing. Else one iterator for each fixed level leaps over the index, to
the next offset that the others have too. Hashes collide, so the token itself decides at the end.
The streams are then merged by offset.

Consecutive messages of one topic may be one row, a bundle (``storage.bundle``), whose offset is
that of the last of them.

The reader is in ``layout_v1_scan``; what checks and mends is in ``layout_v1_index``. The topic
structure is kept in the default table, and what is new of it is written with the batch that needs
it.

Invariants: a message is in one data row, which is in one index entry per varying token; its topic
is the stream's pattern with the tokens put in. Of the runs of a token none begins before the one
before it has ended, so the order of their keys is the order of all their offsets. It holds because
no write has offsets from between those of another: a batch takes its offsets in one go where it
enters the log (``give_offsets``, ``batch_codec.decode``) and is written before another takes some;
a page of a cluster's log (``ordered.view``) gathers batches that follow each other, and is written
before one that is not in it. What puts entries between others makes single ones of them
(``layout_v1_index``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, final
from weakref import WeakKeyDictionary

from perdure.errors import StorageCorrupt, UsageError
from perdure.model import Message
from perdure.storage.bundle import count_of, decode_row, reach
from perdure.storage.contract import Counted, Finding
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.effort import Effort
from perdure.storage.rocksdb.engine import META, Engine, Operations, prefix_end
from perdure.storage.rocksdb.layout import TOPIC_LENGTH_MAX, table_names
from perdure.storage.rocksdb.layout_v1_index import IndexEntries, Parts
from perdure.storage.rocksdb.layout_v1_keys import (
    DATA_HEAD,
    INDEXED_LEVELS,
    RUN_OFFSETS_MAX,
    RUN_SPAN,
    index_prefix,
    pack_offset,
    unpack_data,
    unpack_offset,
)
from perdure.storage.rocksdb.layout_v1_scan import (
    MARK,
    PICKED_CONSTRAINTS_MAX,
    Constraints,
    Plan,
    Row,
    Scanner,
)
from perdure.storage.rows import Rows, rows_of
from perdure.topic.any_filter import FEW
from perdure.topic.filter_set import FilterSet
from perdure.topic.records import NodeRecord, decode_record
from perdure.topic.recurring import Recurring
from perdure.topic.structure import StructureTrie
from perdure.topic.structure_nodes import StreamMatch

LAYOUT: Final = 4

SINGLES_LAYOUT: Final = 1
"""Of generations that an earlier release has begun: each row has index entries of its own."""

_TOPICS_MAX: Final = 65_536
"""Topics whose keys are kept ready, and topics kept rebuilt, count each."""

NODES_MAX: Final = 16_384
"""Nodes of a topic structure, beyond which every new level varies. Each stream costs a seek for
each page of a read of ``#``, about 2.5 us."""

_FILTERS_MAX: Final = 4_096
"""Filters whose streams are kept, count."""


@final
class SkipScanLayout:
    """One generation in layout 1 or 4.

    Args:
        engine: gives the open engine (it is another one after a recovery).
        generation: whose tables these are.
        trie: the generation's topic structure.
        layout: ``LAYOUT`` or ``SINGLES_LAYOUT``: how its index is written.
        scanner: reads its rows.

    Attributes:
        index_entries: whether its rows and its index agree, and what makes them.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        generation: int,
        trie: StructureTrie,
        *,
        layout: int = LAYOUT,
        scanner: Scanner | None = None,
    ) -> None:
        self._engine = engine
        self._run_max: int = RUN_OFFSETS_MAX if layout == LAYOUT else 1
        self._generation = generation
        self._trie = trie
        self._data, self._index = table_names(generation)
        self._scanner = scanner or Scanner(engine, self._data, self._index)
        self._keys: dict[str, Parts] = {}
        self._recurring = Recurring()
        self._topics: dict[bytes, str] = {}
        self._matches: dict[str, tuple[int, list[StreamMatch]]] = {}
        self._plans: WeakKeyDictionary[FilterSet, tuple[int, Plan]] = WeakKeyDictionary()
        self._offered: tuple[NodeRecord, ...] = ()
        self.index_entries = IndexEntries(engine, self._data, self._index, self.topic, self._learn)

    @classmethod
    def load(
        cls,
        engine: Callable[[], Engine],
        generation: int,
        thresholds: tuple[int, ...],
        *,
        layout: int = LAYOUT,
    ) -> SkipScanLayout:
        """The generation as it is on disk."""
        prefix = keys.generation_nodes(generation)
        rows = engine().items(META, prefix, prefix_end(prefix))
        records = [decode_record(value) for _, value in rows]
        trie = StructureTrie.load(records, thresholds=thresholds, nodes_max=NODES_MAX)
        return cls(engine, generation, trie, layout=layout)

    @classmethod
    def new(
        cls,
        engine: Callable[[], Engine],
        generation: int,
        thresholds: tuple[int, ...],
        *,
        layout: int = LAYOUT,
    ) -> SkipScanLayout:
        """A generation that has learned nothing yet."""
        trie = StructureTrie(thresholds=thresholds, nodes_max=NODES_MAX)
        return cls(engine, generation, trie, layout=layout)

    def seed(self, patterns: tuple[str, ...]) -> None:
        """Begin with levels that are known to vary; only before the first message."""
        self._trie.seed(patterns)

    @property
    def tables(self) -> tuple[str, ...]:
        return (self._data, self._index)

    @property
    def scanner(self) -> Scanner:
        """Reads its rows."""
        return self._scanner

    @property
    def stream_count(self) -> int:
        return self._trie.stream_count

    # -- writing ---------------------------------------------------------------------------

    def append(self, operations: Operations, messages: list[Message]) -> Rows:
        return self.append_rows(operations, rows_of(messages))

    def append_rows(self, operations: Operations, rows: Rows) -> Rows:
        known = self._keys
        data = self._data
        offsets = rows.packed_offsets()
        # Most prefixes may come once: only others have a list.
        firsts: dict[bytes, bytes] = {}
        runs: dict[bytes, list[bytes]] = {}
        staged: dict[bytes, Operations] = {}
        of_stream: Operations = []
        last = b""
        start = 0
        for topic, value in zip(rows.topics, rows.values):  # noqa: B905 - compiled to a bare loop
            found = known.get(topic)
            if found is None:
                found = self._learn(topic)
            stream, varying, prefixes = found
            at = offsets[start : start + 8]
            start += 8
            if stream != last:
                last = stream
                of_stream = staged.setdefault(stream, [])
            of_stream.append(data)
            of_stream.append(b"%b%b%b" % (stream, at, varying))
            of_stream.append(value)
            for prefix in prefixes:
                if runs:
                    run = runs.get(prefix)
                    if run is not None:
                        run.append(at)
                        continue
                first = firsts.setdefault(prefix, at)
                if first is not at:
                    runs[prefix] = [first, at]
        # By stream, and the index by token: RocksDB begins to look where it has put the last one,
        # which is a fifth of what a write costs.
        for stream in sorted(staged):
            operations += staged[stream]
        index = self._index
        for prefix in sorted(firsts):
            if runs:
                run = runs.get(prefix)
                if run is not None:
                    is_short = rows.offsets[-1] - rows.offsets[0] <= RUN_SPAN
                    self._stage_run(operations, prefix, run, is_short)
                    continue
            operations.append(index)
            operations.append(prefix + firsts[prefix])
            operations.append(b"")
        return rows

    def _stage_run(
        self, operations: Operations, prefix: bytes, run: list[bytes], is_short: bool
    ) -> None:
        """Add the index entries of several rows.

        Args:
            operations: get them.
            prefix: what they begin with.
            run: the offsets of the rows, packed and ascending.
            is_short: no two of them are too far apart for one entry.
        """
        index, run_max = self._index, self._run_max
        start, count = 0, len(run)
        while start < count:
            stop = min(start + run_max, count)
            if not is_short:
                end = pack_offset(unpack_offset(run[start])[0] + RUN_SPAN)
                stop = bisect_right(run, end, start, stop)
            operations.append(index)
            operations.append(prefix + run[stop - 1])
            operations.append(b"".join(run[start : stop - 1]))
            start = stop

    def _learn(self, topic: str) -> Parts:
        resolved = self._trie.resolve(topic)
        stream = pack_offset(resolved.stream)
        index = [
            index_prefix(stream, level, token)
            for level, token in enumerate(resolved.varying[:INDEXED_LEVELS])
        ]
        known = (stream, "/".join(resolved.varying).encode(), tuple(index))
        if len(topic) <= TOPIC_LENGTH_MAX and self._recurring.is_recurring(topic):
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

    def ended(self) -> None:
        self._keys.clear()
        self._recurring = Recurring()

    # -- reading ---------------------------------------------------------------------------

    def scan(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        effort: Effort | None = None,
    ) -> Iterator[Message]:
        return self._read(self.plan(filters), after_offset, until_offset, effort)

    def rows(self, after_offset: int, until_offset: int) -> Iterator[tuple[str, int, bytes]]:
        """All rows with messages in ``(after, until]``, by offset: topic, last offset, value."""
        plan: Plan = {stream: None for stream, _ in self._trie.streams()}
        last = -1
        for offset, key, value in self._scanner.rows(plan, after_offset, reach(until_offset)):
            if offset != last:
                last = offset
                yield self.topic(key), offset, value

    def _read(self, plan: Plan, after: int, until: int, effort: Effort | None) -> Iterator[Message]:
        last = -1
        for offset, key, value in self._scanner.rows(plan, after, reach(until), effort):
            if key == MARK:
                assert effort is not None
                effort.through_offset = min(offset, until)
                return
            if offset != last:
                last = offset
                yield from decode_row(self.topic(key), offset, value, after, until)

    def count(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        effort: Effort | None = None,
    ) -> Counted:
        rows = self._scanner.rows(self.plan(filters), after_offset, reach(until_offset), effort)
        return _counted(rows, after_offset, until_offset, limit)

    def stream_messages(
        self, stream: int, constraints: set[Constraints] | None, after: int, until: int, limit: int
    ) -> int:
        """Number of messages of one stream in ``(after, until]``, at most ``limit``."""
        rows = self._scanner.stream_rows(stream, constraints, after, reach(until))
        return _counted(rows, after, until, limit).count

    def plan(self, filters: Sequence[str]) -> Plan:
        """The streams to read, each with what its tokens must be; None = all of the stream."""
        if not isinstance(filters, FilterSet) or len(filters) <= FEW:
            return self._plan(filters)
        known = self._plans.get(filters)
        if known is None or known[0] != self._trie.stream_count:
            known = self._plans[filters] = (self._trie.stream_count, self._plan(filters))
        return known[1]

    def _plan(self, filters: Sequence[str]) -> Plan:
        plan: Plan = {}
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

    def topic(self, key: bytes) -> str:
        """The topic of a data key, rebuilt."""
        part = key[:8] + key[DATA_HEAD:]
        topic = self._topics.get(part)
        if topic is None:
            stream = unpack_data(key)[0]
            varying = key[DATA_HEAD:]
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
            if len(topic) <= TOPIC_LENGTH_MAX:
                if len(self._topics) >= _TOPICS_MAX:
                    self._topics.clear()
                self._topics[part] = topic
        return topic

    # -- the rest --------------------------------------------------------------------------

    def streams(self) -> list[tuple[int, str]]:
        return self._trie.streams()

    def pattern(self, stream: int) -> str:
        """The levels of a stream, with ``+`` where it varies."""
        return self._trie.pattern(stream)

    def is_picked(self, stream: int, constraints: set[Constraints]) -> bool:
        """Whether constraints say all that varies, so that each row fulfils one at most and its
        key is known from the index; and are few enough to be looked up there."""
        varying = self.pattern(stream).split("/").count("+")
        return len(constraints) <= PICKED_CONSTRAINTS_MAX and all(
            len(each) == varying for each in constraints
        )

    def successor(self, generation: int, *, layout: int = LAYOUT) -> SkipScanLayout:
        """The layout of the next generation, which begins with what this one has learned."""
        return SkipScanLayout(self._engine, generation, self._trie.inherit(), layout=layout)

    def check(self, *, since_offset: int, until_offset: int) -> Iterator[Finding | int]:
        return self.index_entries.check(since_offset=since_offset, until_offset=until_offset)


def _counted(rows: Iterator[Row], after: int, until: int, limit: int) -> Counted:
    """How many messages of some rows are in ``(after, until]``, at most ``limit``."""
    found, last = 0, -1
    for offset, key, value in rows:
        through = min(offset, until)
        if key == MARK:
            return Counted(found, through)
        if offset != last:
            last = offset
            found += count_of(value, offset, after, until)
            if found >= limit:
                # The messages of a row have consecutive offsets.
                return Counted(limit, through - (found - limit))
    return Counted(found, until)
