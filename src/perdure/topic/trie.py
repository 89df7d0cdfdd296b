"""A trie of topic filters, for the first levels that have too many shapes for candidates.

``shapes`` is its only user and sees to ``$``; here a wildcard matches any level.
"""

from __future__ import annotations

from typing import Generic, TypeVar, final

V = TypeVar("V")


@final
class _Node(Generic[V]):
    """A level of a filter in the trie."""

    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Node[V]] = {}
        self.value: V | None = None


@final
class FilterTrie(Generic[V]):
    """A map from topic filters to values that can be asked by the levels of a topic.

    Attributes:
        shapes: number of filters of each shape that is here.
    """

    __slots__ = ("_root", "shapes")

    def __init__(self) -> None:
        self._root: _Node[V] = _Node()
        self.shapes: dict[str, int] = {}

    def put(self, levels: list[str], shape: str, value: V, *, is_new: bool) -> None:
        """Add a filter, or replace its value."""
        node = self._root
        for level in levels:
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        node.value = value
        if is_new:
            self.shapes[shape] = self.shapes.get(shape, 0) + 1

    def remove(self, levels: list[str], shape: str) -> None:
        """Forget a filter that is there, and the nodes that only it needed."""
        path = [self._root]
        for level in levels:
            path.append(path[-1].children[level])
        path[-1].value = None
        for index in range(len(levels) - 1, -1, -1):
            node = path[index + 1]
            if node.children or node.value is not None:
                break
            del path[index].children[levels[index]]
        self.shapes[shape] -= 1
        if not self.shapes[shape]:
            del self.shapes[shape]

    def collect(self, levels: list[str], depth: int, found: list[V]) -> None:
        """Append the values of the filters that match the first ``depth`` levels."""
        # Width first: the nodes that fit the levels so far.
        nodes = [self._root]
        for index in range(depth):
            level = levels[index]
            following: list[_Node[V]] = []
            for node in nodes:
                children = node.children
                child = children.get("#")
                if child is not None and child.value is not None:
                    found.append(child.value)
                child = children.get(level)
                if child is not None:
                    following.append(child)
                child = children.get("+")
                if child is not None:
                    following.append(child)
            if not following:
                return
            nodes = following
        for node in nodes:
            if node.value is not None:
                found.append(node.value)
            # `a/#` matches `a` (section 4.7.1.2).
            child = node.children.get("#")
            if child is not None and child.value is not None:
                found.append(child.value)
