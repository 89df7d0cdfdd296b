"""The nodes of a learned topic structure, and what it answers (``structure``)."""

from __future__ import annotations

from typing import Final, final

from perdure.topic.records import NodeRecord

PLUS: Final = "+"
"""Stands for a level that varies."""


@final
class Resolved:
    """Where a topic belongs.

    Attributes:
        stream: id of its stream.
        varying: its tokens at the stream's varying levels, in order.
        created: records of the nodes that it added or changed; empty for a known structure.
    """

    __slots__ = ("created", "stream", "varying")

    def __init__(
        self, stream: int, varying: tuple[str, ...], created: tuple[NodeRecord, ...]
    ) -> None:
        self.stream = stream
        self.varying = varying
        self.created = created


@final
class StreamMatch:
    """A stream that may hold topics which match a filter.

    Attributes:
        stream: id of the stream.
        pattern: its levels; ``+`` where it varies.
        constraints: (index into the varying tokens, token that the filter demands there).
    """

    __slots__ = ("constraints", "pattern", "stream")

    def __init__(
        self, stream: int, pattern: tuple[str, ...], constraints: tuple[tuple[int, str], ...]
    ) -> None:
        self.stream = stream
        self.pattern = pattern
        self.constraints = constraints


@final
class Node:
    """A level of the trie; ``levels`` is its path if a topic ends here, else empty."""

    __slots__ = ("children", "levels", "node_id", "parent_id", "resolved", "token", "wildcard")

    def __init__(self, node_id: int, parent_id: int, token: str) -> None:
        self.node_id = node_id
        self.parent_id = parent_id
        self.token = token
        self.children: dict[str, Node] = {}
        self.wildcard: Node | None = None
        self.levels: tuple[str, ...] = ()
        # The answer for a topic without varying levels, made once.
        self.resolved = Resolved(node_id, (), ())

    def record(self) -> NodeRecord:
        """What has to be kept of the node."""
        return NodeRecord(
            node_id=self.node_id,
            parent_id=self.parent_id,
            token=self.token,
            is_stream=bool(self.levels),
        )


def subtree(root: Node) -> list[Node]:
    """The streams at a node and below it."""
    found: list[Node] = []
    todo = [root]
    while todo:
        node = todo.pop()
        if node.levels:
            found.append(node)
        todo.extend(node.children.values())
        if node.wildcard is not None:
            todo.append(node.wildcard)
    return found
