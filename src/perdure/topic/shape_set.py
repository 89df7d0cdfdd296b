"""Shapes of topic filters, and for each depth of a topic those that can match it.

Where ``shapes`` tells what a shape is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TypeAlias, cast, final

Picker: TypeAlias = Callable[[list[str]], Iterable[str]]
"""Picks a candidate's levels out of the topic's levels followed by "+" and "#"."""


@final
class ShapeSet:
    """Shapes, and for each depth of a topic the pickers of those that can match it, its plan.

    A set is made from another one by what differs: two thousand shapes of two hundred levels, a
    few for each depth, would be made anew for each that comes or goes.

    Attributes:
        shapes: each once.
        places: where each of them stands in ``shapes``.
        users: groups that have it.
    """

    __slots__ = ("_exact", "_open", "_pickers", "places", "shapes", "users")

    def __init__(self, shapes: tuple[str, ...]) -> None:
        self.shapes: tuple[str, ...] = ()
        self.places: dict[str, int] = {}
        self.users = 0
        self._pickers: tuple[Picker, ...] = ()
        self._exact: dict[int, list[Picker]] = {}
        """The plans of depths that shapes without ``#`` have."""
        self._open: list[tuple[int, list[Picker]]] = []
        """From a depth on, the plan of every other depth: of shapes with ``#``, by depth."""
        for shape in shapes:
            self._add(shape)

    def plan(self, depth: int) -> list[Picker]:
        """The pickers for topics of a depth."""
        found = self._exact.get(depth)
        return self._open_plan(depth) if found is None else found

    def _open_plan(self, depth: int) -> list[Picker]:
        found: list[Picker] = []
        for least, plan in self._open:
            if least > depth:
                break
            found = plan
        return found

    def most_beside(self, shape: str) -> int:
        """The longest plan of any topic that a shape can match."""
        depth = len(shape)
        if not shape.endswith("#"):
            return len(self.plan(depth))
        # [MQTT-4.7.1-2] it matches its parent too.
        plans = [plan for exact, plan in self._exact.items() if exact >= depth - 1]
        return max(map(len, [*plans, *[plan for _, plan in self._open[-1:]]]), default=0)

    def with_shape(self, shape: str) -> ShapeSet:
        """This set and one more shape."""
        other = self._copy()
        other._add(shape)
        return other

    def shapes_without(self, index: int) -> tuple[str, ...]:
        """``shapes`` without the one at a place, where the last one goes."""
        shapes = self.shapes
        if index == len(shapes) - 1:
            return shapes[:-1]
        return (*shapes[:index], shapes[-1], *shapes[index + 1 : -1])

    def without(self, index: int) -> ShapeSet:
        """This set without the shape at a place."""
        other = self._copy()
        shape, picker, pickers = self.shapes[index], self._pickers[index], list(self._pickers)
        pickers[index] = pickers[-1]
        other._pickers = tuple(pickers[:-1])
        other.shapes = self.shapes_without(index)
        del other.places[shape]
        if index < len(other.shapes):
            other.places[other.shapes[index]] = index
        other._remove(shape, picker)
        return other

    def _copy(self) -> ShapeSet:
        other = ShapeSet(())
        other.shapes, other._pickers = self.shapes, self._pickers
        other.places = self.places.copy()
        other._exact, other._open = self._exact.copy(), self._open
        return other

    def _add(self, shape: str) -> None:
        self.places[shape] = len(self.shapes)
        self.shapes = (*self.shapes, shape)
        picker = _picker(shape)
        self._pickers = (*self._pickers, picker)
        depth = len(shape)
        if not shape.endswith("#"):
            self._exact[depth] = [*self.plan(depth), picker]
            return
        least = depth - 1
        opened = [(at, [*plan, picker] if at >= least else plan) for at, plan in self._open]
        if all(at != least for at, _ in self._open):
            opened.append((least, [*self._open_plan(least), picker]))
            opened.sort(key=itemgetter(0))
        self._open = opened
        for exact, plan in self._exact.items():
            if exact >= least:
                self._exact[exact] = [*plan, picker]

    def _remove(self, shape: str, picker: Picker) -> None:
        depth = len(shape)
        if not shape.endswith("#"):
            plan = _but(picker, self._exact[depth])
            # What is left may be all of shapes with `#`, as for any other depth.
            if len(plan) > len(self._open_plan(depth)):
                self._exact[depth] = plan
            else:
                del self._exact[depth]
            return
        opened: list[tuple[int, list[Picker]]] = []
        for at, plan in self._open:
            left = _but(picker, plan)
            if len(left) > (len(opened[-1][1]) if opened else 0):
                opened.append((at, left))
        self._open = opened
        for exact, plan in self._exact.items():
            if exact >= depth - 1:
                self._exact[exact] = _but(picker, plan)


def _but(picker: Picker, plan: list[Picker]) -> list[Picker]:
    return [each for each in plan if each is not picker]


def _picker(shape: str) -> Picker:
    """Picks a candidate's levels; ``+`` and ``#`` stand behind the topic's own levels."""
    indices = [
        -2 if kind == "+" else -1 if kind == "#" else index for index, kind in enumerate(shape)
    ]
    if len(indices) == 1:
        # One index would give a string instead of a sequence of one string.
        start = indices[0]
        return cast("Picker", itemgetter(slice(start, start + 1 or None)))
    return cast("Picker", itemgetter(*indices))
