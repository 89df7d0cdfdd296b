"""Finds which levels of a log's topics vary, and proposes it for the log's next generation.

The log learns while it writes, from the order in which topics come, with thresholds that know
nothing of them. Here all topics are there at once. Each task counts those of its part in a sketch,
a tree of levels that stays small; the sketches are put together, and then it is decided, level by
level from the top: a level varies where it has

- more values than ``VARYING`` (fewer, if there would be too many streams), or
- ``FEW`` values or more, most of which have a digit in them, as numbers and serial numbers do and
  words do not.

Where a level varies, what is below its values is put together before it is looked at. The
thresholds leave twice the room that the levels which do not vary need now. Knows no Spark.

Invariant: sketches give the same proposal in whatever parts the topics came, as long as no level
has more than ``VALUES_MAX`` values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, final

import pyarrow as pa
import pyarrow.compute as pc

from perdure.pipeline.structures import TABLES_MAX, covering, table_name
from perdure.pipeline.tables import CATCH_ALL
from perdure.topic.matching import intersects
from perdure.topic.proposal import VERSION, Proposal, ProposedPattern

VALUES_MAX: Final = 1_000
"""Values of a level that a sketch keeps apart; with more, the level surely varies."""

NODES_MAX: Final = 200_000
"""Levels of a sketch; beyond it, fewer values are kept apart."""

LEVELS_MAX: Final = 64
"""Topics with more levels are left for the log to learn."""

VARYING: Final = 100
FEW: Final = 4
STREAMS_MAX: Final = 1_000
"""Each stream costs every wildcard read an iterator."""

THRESHOLD_MIN: Final = 10
THRESHOLD_MAX: Final = 200

PATTERN_COUNTS: Final = pa.schema([("pattern", pa.string()), ("messages", pa.int64())])
PATTERN_COUNTS_DDL: Final = "pattern string, messages bigint"

_PLUS: Final = "+"


class _Node:
    """A level: what may follow it, and the messages whose topic ends here."""

    __slots__ = ("children", "messages")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.messages = 0

    def join(self, other: _Node) -> int:
        """Take in another level with what is below it; returns how many levels became one."""
        joined = 1
        self.messages += other.messages
        for token, child in other.children.items():
            own = self.children.get(token)
            if own is None:
                self.children[token] = child
            else:
                joined += own.join(child)
        return joined


@final
class Sketch:
    """Topics with their counts, in bounded memory.

    Args:
        values_max: values of a level that are kept apart.
        nodes_max: levels altogether, about.
    """

    def __init__(self, *, values_max: int = VALUES_MAX, nodes_max: int = NODES_MAX) -> None:
        self._values_max = values_max
        self._nodes_max = nodes_max
        self._nodes = 0
        self.root = _Node()
        self.dollar_root = _Node()

    def add(self, pattern: str, messages: int) -> None:
        """Count messages of a topic, or of a pattern that another sketch has made."""
        node = self.dollar_root if pattern.startswith("$") else self.root
        levels = pattern.split("/")
        if len(levels) > LEVELS_MAX:
            return
        for token in levels:
            children = node.children
            child = children.get(_PLUS) or children.get(token)
            if child is None:
                if children and (token == _PLUS or len(children) >= self._values_max):
                    self._put_together(node)
                    child = node.children[_PLUS]
                else:
                    child = children[token] = _Node()
                    self._nodes += 1
            node = child
        node.messages += messages
        while self._nodes > self._nodes_max and self._values_max > FEW:
            self._values_max //= 2
            for root in (self.root, self.dollar_root):
                self._shrink(root)

    def rows(self) -> list[tuple[str, int]]:
        """What was counted, for another sketch to ``add``."""
        return [
            (pattern, messages)
            for root in (self.root, self.dollar_root)
            for pattern, messages in _leaves(root, ())
        ]

    def _put_together(self, node: _Node) -> None:
        whole = _Node()
        for child in node.children.values():
            self._nodes -= whole.join(child)
        node.children = {_PLUS: whole}
        self._nodes += 1
        self._shrink(whole)

    def _shrink(self, node: _Node) -> None:
        """Put the levels together that have too many values now."""
        if len(node.children) > self._values_max:
            self._put_together(node)
            return
        for child in node.children.values():
            self._shrink(child)


def _leaves(node: _Node, levels: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    if node.messages:
        yield "/".join(levels), node.messages
    for token, child in node.children.items():
        yield from _leaves(child, (*levels, token))


def count_batches(batches: Iterable[Any]) -> Iterator[Any]:
    """Count the topics of record batches; the body of a Spark task."""
    sketch = Sketch()
    for batch in batches:
        counted = pc.value_counts(batch.column("topic"))
        topics, counts = counted.field("values"), counted.field("counts")
        for topic, messages in zip(topics.to_pylist(), counts.to_pylist(), strict=True):
            sketch.add(topic, messages)
    rows = sketch.rows()
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([pattern for pattern, _ in rows], pa.string()),
            pa.array([messages for _, messages in rows], pa.int64()),
        ],
        schema=PATTERN_COUNTS,
    )


# -- deciding ------------------------------------------------------------------------------


def propose(
    counts: Iterable[tuple[str, int]],
    streams: Sequence[str],
    *,
    database: str,
    through_offset: int,
    streams_max: int = STREAMS_MAX,
) -> Proposal:
    """The structure that fits the topics.

    Args:
        counts: patterns with their messages, of all sketches.
        streams: patterns of the current generation.
        database: id of the database.
        through_offset: the log was read up to here.
        streams_max: let more levels vary rather than have more streams.
    """
    rows = list(counts)
    varying = VARYING
    while True:
        patterns, thresholds = _decide(rows, varying)
        if len(patterns) <= streams_max or varying <= FEW:
            break
        varying //= 2
    structures = [
        ProposedPattern(
            pattern, messages, sum(1 for stream in streams if intersects(stream, pattern))
        )
        for pattern, messages in sorted(patterns.items(), key=lambda each: (-each[1], each[0]))
    ]
    return Proposal(
        VERSION,
        database,
        through_offset,
        sum(messages for _, messages in rows),
        thresholds,
        tuple(structures),
        _tables([each.pattern for each in structures]),
    )


def _decide(
    rows: Sequence[tuple[str, int]], varying: int
) -> tuple[dict[str, int], tuple[int, ...]]:
    """Patterns with their messages, and thresholds."""
    sketch = Sketch(values_max=VALUES_MAX, nodes_max=10 * NODES_MAX)
    for pattern, messages in rows:
        sketch.add(pattern, messages)
    found: dict[str, int] = {}
    widest: dict[int, int] = {}

    def visit(node: _Node, levels: tuple[str, ...]) -> None:
        if node.messages:
            pattern = "/".join(levels)
            found[pattern] = found.get(pattern, 0) + node.messages
        children = node.children
        if varies(children, varying):
            whole = _Node()
            for child in children.values():
                whole.join(child)
            visit(whole, (*levels, _PLUS))
            return
        if children:
            widest[len(levels)] = max(widest.get(len(levels), 0), len(children))
        for token, child in children.items():
            visit(child, (*levels, token))

    visit(sketch.root, ())
    # A level of topics that begin with $ is the broker's own; its first one never varies.
    for token, child in sketch.dollar_root.children.items():
        visit(child, (token,))
    depths = max(widest, default=0) + 1
    thresholds = [
        min(max(2 * widest.get(depth, 0), THRESHOLD_MIN), THRESHOLD_MAX) for depth in range(depths)
    ]
    return found, tuple(thresholds)


def varies(tokens: Iterable[str], varying: int) -> bool:
    """Whether a level with these values varies."""
    values = list(tokens)
    if _PLUS in values or len(values) > varying:
        return True
    numbered = sum(1 for value in values if any(char.isdigit() for char in value))
    return len(values) >= FEW and 2 * numbered > len(values)


def _tables(patterns: Sequence[str]) -> dict[str, str]:
    """Tables for an archive; the names of columns are for people to change."""
    found: dict[str, str] = {}
    for pattern in dict.fromkeys(covering(patterns).values()):
        levels = pattern.split("/")
        if _PLUS not in levels or len(found) == TABLES_MAX:
            continue
        named = [
            f"{{level_{index}}}" if level == _PLUS else level
            for index, level in enumerate(levels, 1)
        ]
        found[table_name(pattern, {*found, CATCH_ALL})] = "/".join(named)
    return found
