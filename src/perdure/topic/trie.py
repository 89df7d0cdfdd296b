"""A trie of topic filters, for the first levels that have too many shapes for candidates.

A filter's levels become nodes only as far as another filter shares them; what follows is one
string at its last node, the tail. So a filter of a hundred levels costs about its length.

``shapes`` is the only user and sees to ``$``; here a wildcard matches any level.
"""

from __future__ import annotations

from typing import Generic, TypeVar, final

V = TypeVar("V")


@final
class _Node(Generic[V]):
    """A level of filters. With a tail it has a value and no children."""

    __slots__ = ("children", "tail", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Node[V]] = {}
        self.value: V | None = None
        # What follows in the only filter that comes here. None = nothing; "" = an empty level.
        self.tail: str | None = None

    def push_down(self) -> None:
        """Make the tail's first level a child, which takes the rest of it and the value."""
        assert self.tail is not None
        level, slash, rest = self.tail.partition("/")
        child: _Node[V] = _Node()
        child.value = self.value
        child.tail = rest if slash else None
        self.children[level] = child
        self.value = None
        self.tail = None


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
        if is_new:
            self.shapes[shape] = self.shapes.get(shape, 0) + 1
        node = self._root
        for index, level in enumerate(levels):
            if node.tail is not None:
                if node.tail == "/".join(levels[index:]):
                    node.value = value
                    return
                node.push_down()
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
                child.value = value
                if index + 1 < len(levels):
                    child.tail = "/".join(levels[index + 1 :])
                return
            node = child
        if node.tail is not None:
            node.push_down()
        node.value = value

    def remove(self, levels: list[str], shape: str) -> None:
        """Forget a filter that is there, and the nodes that only it needed."""
        path = [self._root]
        for level in levels:
            if path[-1].tail is not None:
                break
            path.append(path[-1].children[level])
        path[-1].value = None
        path[-1].tail = None
        for index in range(len(path) - 1, 0, -1):
            if path[index].children or path[index].value is not None:
                break
            del path[index - 1].children[levels[index - 1]]
        self.shapes[shape] -= 1
        if not self.shapes[shape]:
            del self.shapes[shape]

    def collect(self, levels: list[str], depth: int, found: list[V]) -> int:
        """Append the values of the filters that match the first ``depth`` levels.

        Returns:
            How many nodes and levels were looked at: of many filters with ``+`` in the midst, most.
        """
        # Width first: the nodes that fit the levels so far.
        nodes = [self._root]
        looked = 0
        for index in range(depth):
            looked += len(nodes)
            level = levels[index]
            following: list[_Node[V]] = []
            for node in nodes:
                if node.tail is not None:
                    if node.value is not None and _may_match(node.tail, levels, index, depth):
                        looked += depth - index
                        if _tail_matches(node.tail, levels, index, depth):
                            found.append(node.value)
                    continue
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
                return looked
            nodes = following
        for node in nodes:
            # `a/#` matches `a` (section 4.7.1.2).
            if node.value is not None and (node.tail is None or node.tail == "#"):
                found.append(node.value)
            child = node.children.get("#")
            if child is not None and child.value is not None:
                found.append(child.value)
        return looked


def _may_match(tail: str, levels: list[str], index: int, depth: int) -> bool:
    """Whether the last level of the rest of a filter fits: most that do not match end otherwise."""
    last = tail.rpartition("/")[2]
    if last == "#":
        return True
    return tail.count("/") + 1 == depth - index and (last == "+" or last == levels[depth - 1])


def _tail_matches(tail: str, levels: list[str], index: int, depth: int) -> bool:
    """Whether the rest of a filter matches the levels from ``index`` up to ``depth``."""
    for level in tail.split("/"):
        if level == "#":
            return True
        if index == depth or level not in ("+", levels[index]):
            return False
        index += 1
    return index == depth
