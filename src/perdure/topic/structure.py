"""Learned topic structure: which levels of the topics in a log vary.

A trie for each generation turns a topic into a **stream** (``devices/+/temperature``) and the
tokens at its varying levels (``("42",)``). The log's keys are built from both. Knows nothing of
keys, messages or disks: it hands out records of its nodes and is rebuilt from them.

How it learns: a node takes static children up to a threshold for its depth; the next token gets
the node's ``+`` child, and so does every new token after it. Static children stay, and no static
child is added to a node that has a ``+``. So a topic resolves to the same stream for as long as
the trie lives, and messages of one topic never change their order by moving to another stream.

A trie that is full takes no more nodes: a topic that would need some goes to the **overflow**,
where every level varies and all topics with so many levels are one stream. Once that has begun it
holds for every such topic, so that none moves.

Invariants:

- A topic's stream never changes, not even over ``load``, whatever the thresholds then are.
- Tokens that resolve to ``+`` are not kept, and a long one does: memory is bounded by
  ``FULL * nodes_max``, the levels of the longest topic and ``TOKEN_LENGTH_MAX``.
- A topic that begins with ``$`` has another root, so a ``+`` learned in the first level of other
  topics has nothing to do with it [MQTT-4.7.2-1].
- Every node that ``resolve`` relied on is known to ``unpersisted`` until ``mark_persisted``.
  Whoever writes a batch of messages writes ``unpersisted()`` into it, so a failed write
  leaves nothing behind that a later message depends on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from perdure.errors import StorageCorrupt, UsageError
from perdure.topic.records import (
    DOLLAR_OVERFLOW_ROOT_ID,
    DOLLAR_ROOT_ID,
    FIRST_NODE_ID,
    OVERFLOW_ROOT_ID,
    ROOT_ID,
    NodeRecord,
)
from perdure.topic.structure_nodes import PLUS, Node, Resolved, StreamMatch, subtree

THRESHOLDS: Final = (100, 10)
"""Static children of a node at depth 0, 1, ...; the last one holds for all deeper levels."""

NODES_MAX: Final = 50_000
"""Nodes of a trie after which every new token becomes ``+``, count.

A filter ``#`` reads every stream, so this also bounds how many a reader has to merge.
"""

FULL: Final = 2
"""Times ``nodes_max``: so many nodes there are, beside those of the overflow. Below each of the
static ones a topic may go on in as many levels as it likes."""

TOKEN_LENGTH_MAX: Final = 256
"""A longer token varies, characters: what is learned is kept in memory and in each generation, and
50,000 nodes of 13,000 bytes each would be 650 MB."""


@final
class StructureTrie:
    """The learned topic structure of one generation. Takes valid topics and filters.

    Args:
        thresholds: static children of a node at depth 0, 1, ...; the last one holds for all
            deeper levels; 0 = the level always varies.
        nodes_max: nodes after which every new token becomes ``+``.
    """

    __slots__ = (
        "_dollar_overflow",
        "_dollar_root",
        "_next_id",
        "_nodes",
        "_nodes_max",
        "_overflow",
        "_root",
        "_streams",
        "_thresholds",
        "_unpersisted",
    )

    def __init__(
        self, *, thresholds: tuple[int, ...] = THRESHOLDS, nodes_max: int = NODES_MAX
    ) -> None:
        if not thresholds or min(thresholds) < 0:
            raise UsageError("thresholds must be at least one number, none below 0")
        self._thresholds = thresholds
        self._nodes_max = nodes_max
        self._root = Node(ROOT_ID, ROOT_ID, "")
        self._dollar_root = Node(DOLLAR_ROOT_ID, DOLLAR_ROOT_ID, "")
        self._overflow = Node(OVERFLOW_ROOT_ID, OVERFLOW_ROOT_ID, "")
        self._dollar_overflow = Node(DOLLAR_OVERFLOW_ROOT_ID, DOLLAR_OVERFLOW_ROOT_ID, "")
        self._nodes: dict[int, Node] = {}
        self._streams: dict[int, Node] = {}
        self._unpersisted: dict[int, Node] = {}
        self._next_id = FIRST_NODE_ID

    @classmethod
    def load(
        cls,
        records: Iterable[NodeRecord],
        *,
        thresholds: tuple[int, ...] = THRESHOLDS,
        nodes_max: int = NODES_MAX,
    ) -> StructureTrie:
        """The trie whose records these are, in any order.

        Raises:
            StorageCorrupt: a record's parent is missing, or two nodes are in one place.
        """
        trie = cls(thresholds=thresholds, nodes_max=nodes_max)
        nodes = trie._nodes
        roots = (trie._root, trie._dollar_root, trie._overflow, trie._dollar_overflow)
        known = {root.node_id: root for root in roots}
        paths: dict[int, tuple[str, ...]] = dict.fromkeys(known, ())
        for record in sorted(records, key=_node_id):
            parent = known.get(record.parent_id) or nodes.get(record.parent_id)
            if parent is None or record.node_id < FIRST_NODE_ID or record.node_id in nodes:
                raise StorageCorrupt(f"topic structure: node {record.node_id} has no place")
            if (record.token == PLUS and parent.wildcard) or record.token in parent.children:
                raise StorageCorrupt(f"topic structure: node {record.node_id} is there twice")
            node = Node(record.node_id, record.parent_id, record.token)
            if record.token == PLUS:
                parent.wildcard = node
            else:
                parent.children[record.token] = node
            nodes[record.node_id] = node
            path = paths[record.node_id] = (*paths[record.parent_id], record.token)
            if record.is_stream:
                node.levels = path
                trie._streams[record.node_id] = node
            trie._next_id = record.node_id + 1
        return trie

    def seed(self, patterns: Iterable[str]) -> None:
        """Take levels that vary as learned, and those around them as they are.

        No stream is there yet: a stream is there from its first topic on. The nodes are
        unpersisted.

        Args:
            patterns: topics with ``+`` where a level varies.
        """
        for pattern in patterns:
            node = self._dollar_root if pattern.startswith("$") else self._root
            for token in pattern.split("/"):
                child = node.wildcard if token == PLUS else node.children.get(token)
                node = self._add(node, token) if child is None else child

    @property
    def node_count(self) -> int:
        """Number of nodes without the roots."""
        return len(self._nodes)

    @property
    def stream_count(self) -> int:
        """Number of streams; ``streams_matching`` answers the same until it changes."""
        return len(self._streams)

    @property
    def has_overflowed(self) -> bool:
        """Whether it was full once."""
        return self._overflow.wildcard is not None or self._dollar_overflow.wildcard is not None

    def resolve(self, topic: str) -> Resolved:
        """The stream of a topic and its varying tokens; learns from the topic if it is new."""
        node = self._dollar_root if topic.startswith("$") else self._root
        varying: list[str] = []
        for token in topic.split("/"):
            child = node.children.get(token)
            if child is None:
                child = node.wildcard
                if child is None:
                    return self._learn(topic)
                varying.append(token)
            node = child
        if not node.levels:
            return self._learn(topic)
        if varying:
            return Resolved(node.node_id, tuple(varying), ())
        return node.resolved

    def pattern(self, stream: int) -> str:
        """The levels of a stream as text, with ``+`` where it varies.

        Raises:
            UsageError: there is no such stream.
        """
        return "/".join(self._stream(stream).levels)

    def topic(self, stream: int, varying: Iterable[str]) -> str:
        """The topic that resolved to this stream and these varying tokens.

        Raises:
            UsageError: there is no such stream, or it has another number of varying levels.
        """
        tokens = iter(varying)
        found = [
            next(tokens, None) if level == PLUS else level for level in self._stream(stream).levels
        ]
        if None in found or next(tokens, None) is not None:
            raise UsageError(f"stream {stream} has another number of varying levels")
        return "/".join([level for level in found if level is not None])

    def streams(self) -> list[tuple[int, str]]:
        """All streams with their patterns, in order of creation."""
        return sorted((stream, "/".join(node.levels)) for stream, node in self._streams.items())

    def streams_matching(self, topic_filter: str) -> list[StreamMatch]:
        """The streams that may hold topics which match a filter, in order of creation.

        A topic of such a stream matches if its varying tokens fulfil the constraints; no topic
        of another stream matches.
        """
        levels = topic_filter.split("/")
        # [MQTT-4.7.2-1] a wildcard in the first level starts, as any other level, at the root
        # that has no `$` topics.
        is_dollar = topic_filter.startswith("$")
        root = self._dollar_root if is_dollar else self._root
        overflow = self._dollar_overflow if is_dollar else self._overflow
        found: list[StreamMatch] = []
        nothing: tuple[tuple[int, str], ...] = ()
        # (node, index of the filter's level to apply to its children, varying levels so far,
        # constraints so far)
        todo = [(root, 0, 0, nothing), (overflow, 0, 0, nothing)]
        while todo:
            node, index, varying_count, constraints = todo.pop()
            if index == len(levels):
                if node.levels:
                    found.append(StreamMatch(node.node_id, node.levels, constraints))
                continue
            level = levels[index]
            if level == "#":
                # The node itself too: `a/#` matches `a` (section 4.7.1.2).
                found += [
                    StreamMatch(each.node_id, each.levels, constraints) for each in subtree(node)
                ]
                continue
            wildcard = node.wildcard
            if level == PLUS:
                todo += [
                    (child, index + 1, varying_count, constraints)
                    for child in node.children.values()
                ]
                if wildcard is not None:
                    todo.append((wildcard, index + 1, varying_count + 1, constraints))
                continue
            known = node.children.get(level)
            if known is not None:
                # A token with a static child never took the `+`.
                todo.append((known, index + 1, varying_count, constraints))
            elif wildcard is not None:
                demanded = (*constraints, (varying_count, level))
                todo.append((wildcard, index + 1, varying_count + 1, demanded))
        found.sort(key=_stream_id)
        return found

    def inherit(self) -> StructureTrie:
        """The trie for the next generation: what has been learned, without the tokens.

        Kept are the ``+`` nodes and the levels that lead to them. Where a level varies, the
        static children that were there first are not kept: those tokens vary from now on. No
        stream is kept; a stream is there from its first topic on. All nodes are unpersisted.

        Nothing of a trie that has overflowed is: whoever has filled it has filled its heirs too
        else, and topics that matter more are learned soon.
        """
        heir = StructureTrie(thresholds=self._thresholds, nodes_max=self._nodes_max)
        if self.has_overflowed:
            return heir
        keep = self._leading_to_wildcards()
        todo = [(self._root, heir._root), (self._dollar_root, heir._dollar_root)]
        while todo:
            node, copy = todo.pop()
            if node.wildcard is not None:
                todo.append((node.wildcard, heir._add(copy, PLUS)))
                continue
            for token, child in node.children.items():
                if child.node_id in keep:
                    todo.append((child, heir._add(copy, token)))
        return heir

    def unpersisted(self) -> tuple[NodeRecord, ...]:
        """Records to be written with the next batch, in order of creation."""
        if not self._unpersisted:
            return ()
        return tuple([self._unpersisted[node_id].record() for node_id in sorted(self._unpersisted)])

    def mark_persisted(self, records: Iterable[NodeRecord]) -> None:
        """Take note that records were written. A node that changed since stays unpersisted."""
        for record in records:
            node = self._unpersisted.get(record.node_id)
            if node is not None and record.is_stream == bool(node.levels):
                del self._unpersisted[record.node_id]

    def _learn(self, topic: str) -> Resolved:
        """Resolve a topic that ``resolve`` found incomplete: add its nodes and make it a stream."""
        tokens = topic.split("/")
        is_dollar = topic.startswith("$")
        node = self._dollar_root if is_dollar else self._root
        missing = _missing(node, tokens)
        overflows = missing > 0 and (
            self.has_overflowed or len(self._nodes) + missing > FULL * self._nodes_max
        )
        if overflows:
            node = self._dollar_overflow if is_dollar else self._overflow
        levels: list[str] = []
        varying: list[str] = []
        changed: dict[int, Node] = {}
        thresholds = self._thresholds
        for depth, token in enumerate(tokens):
            child = node.children.get(token)
            if child is None:
                child = node.wildcard
                if child is None:
                    threshold = thresholds[min(depth, len(thresholds) - 1)]
                    varies = (
                        overflows
                        or len(node.children) >= threshold
                        or len(self._nodes) >= self._nodes_max
                        or len(token) > TOKEN_LENGTH_MAX
                    )
                    child = self._add(node, PLUS if varies else token)
                    changed[child.node_id] = child
                if child.token == PLUS:
                    varying.append(token)
            levels.append(child.token)
            node = child
        if not node.levels:  # in the overflow, nothing may be missing
            node.levels = tuple(levels)
            self._streams[node.node_id] = node
            self._unpersisted[node.node_id] = node
            changed[node.node_id] = node
        created = tuple([each.record() for each in changed.values()])
        return Resolved(node.node_id, tuple(varying), created)

    def _add(self, parent: Node, token: str) -> Node:
        node = Node(self._next_id, parent.node_id, token)
        self._next_id += 1
        if token == PLUS:
            parent.wildcard = node
        else:
            parent.children[token] = node
        self._nodes[node.node_id] = node
        self._unpersisted[node.node_id] = node
        return node

    def _stream(self, stream: int) -> Node:
        node = self._streams.get(stream)
        if node is None:
            raise UsageError(f"there is no stream {stream}")
        return node

    def _leading_to_wildcards(self) -> set[int]:
        """The ids of the nodes that have a ``+`` somewhere below them."""
        found: set[int] = set()
        for node in self._nodes.values():
            if node.token == PLUS:
                above = node.parent_id
                while above >= FIRST_NODE_ID and above not in found:
                    found.add(above)
                    above = self._nodes[above].parent_id
        return found


def _missing(root: Node, tokens: list[str]) -> int:
    """How many nodes a topic lacks below a root."""
    node = root
    for depth, token in enumerate(tokens):
        child = node.children.get(token) or node.wildcard
        if child is None:
            return len(tokens) - depth
        node = child
    return 0


def _node_id(record: NodeRecord) -> int:
    return record.node_id


def _stream_id(match: StreamMatch) -> int:
    return match.stream
