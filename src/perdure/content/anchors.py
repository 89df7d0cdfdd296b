"""What must hold of a message for a filter to have a chance: conditions that can be looked up.

A filter is posted under an *anchor*: one condition, or one of several, without which it cannot
hold. Who has the filters whose anchor a message fulfils has all filters that it fulfils, and few
others; those are tried as ever. So an anchor may hold too often and never too seldom, and no
operator has a second meaning here.
"""

from __future__ import annotations

from typing import Any, Final, final

from perdure.content.predicate import (
    All,
    AnyOf,
    Compares,
    Equals,
    FieldIs,
    Node,
    OneOf,
    PropertyIs,
    Test,
)

POSTINGS_MAX: Final = 1_024
"""Conditions that one filter is posted under; one that would need more is always tried."""

LEVELS_MAX: Final = 16
"""Levels of a field that is looked up: each takes memory."""

# How many filters of the kind hold for a message, at a guess: the anchor is the rarest.
_EQUAL: Final = 1
_BETWEEN: Final = 50
_BEYOND: Final = 500


@final
class Posting:
    """One condition.

    Attributes:
        levels: the way to a field of the payload; None = it is of a user property.
        name: of the user property.
        is_range: between ``low`` and ``high``, both included; otherwise equal to ``value``.
        is_text: the bounds are texts, not numbers.
        value: null, a text, a number, true or false.
        low, high: None = no bound; one of them is.
    """

    __slots__ = ("high", "is_range", "is_text", "levels", "low", "name", "value")

    def __init__(
        self,
        levels: tuple[str, ...] | None,
        name: str,
        *,
        is_range: bool = False,
        is_text: bool = False,
        value: Any = None,
        low: Any = None,
        high: Any = None,
    ) -> None:
        self.levels: tuple[str, ...] | None = levels
        self.name: str = name
        self.is_range: bool = is_range
        self.is_text: bool = is_text
        self.value: Any = value
        self.low: Any = low
        self.high: Any = high

    @property
    def cost(self) -> int:
        """How many filters are found by the like of it, at a guess."""
        if not self.is_range:
            return _EQUAL
        return _BEYOND if self.low is None or self.high is None else _BETWEEN


def postings_of(node: Node) -> list[Posting] | None:
    """An anchor: one of these conditions holds where the filter does; None = there is none."""
    if isinstance(node, All):
        return _rarest(node)
    if isinstance(node, AnyOf):
        found: list[Posting] = []
        for each in node.nodes:
            of_one = postings_of(each)
            if of_one is None or len(found) + len(of_one) > POSTINGS_MAX:
                return None
            found += of_one
        return found
    if isinstance(node, FieldIs) and len(node.levels) <= LEVELS_MAX:
        return _of_test(node.levels, "", node.test)
    if isinstance(node, PropertyIs):
        return _of_test(None, node.name, node.test)
    return None


def _rarest(node: All) -> list[Posting] | None:
    parts: list[Node] = []
    _flatten(node, parts)
    choices = _intervals(parts)
    for each in parts:
        found = postings_of(each)
        if found is not None:
            choices.append(found)
    best: list[Posting] | None = None
    best_cost = 0
    for choice in choices:
        cost = sum([posting.cost for posting in choice])
        if best is None or cost < best_cost:
            best, best_cost = choice, cost
    return best


def _flatten(node: All, parts: list[Node]) -> None:
    for each in node.nodes:
        if isinstance(each, All):
            _flatten(each, parts)
        else:
            parts.append(each)


def _intervals(parts: list[Node]) -> list[list[Posting]]:
    """A bound from below and one from above of the same field.

    Not of a user property: it may have two values, one for each bound.
    """
    lows: dict[tuple[tuple[str, ...], bool], Any] = {}
    highs: dict[tuple[tuple[str, ...], bool], Any] = {}
    for each in parts:
        if not isinstance(each, FieldIs) or len(each.levels) > LEVELS_MAX:
            continue
        test = each.test
        if isinstance(test, Compares):
            (lows if test.is_lower else highs)[(each.levels, test.is_text)] = test.bound
    return [
        [Posting(key[0], "", is_range=True, is_text=key[1], low=low, high=highs[key])]
        for key, low in lows.items()
        if key in highs
    ]


def _of_test(levels: tuple[str, ...] | None, name: str, test: Test) -> list[Posting] | None:
    if isinstance(test, Compares):
        low = test.bound if test.is_lower else None
        high = None if test.is_lower else test.bound
        return [Posting(levels, name, is_range=True, is_text=test.is_text, low=low, high=high)]
    wanted: tuple[Any, ...] = ()
    if isinstance(test, Equals):
        wanted = (test.wanted,)
    elif isinstance(test, OneOf):
        wanted = test.wanted
    else:
        return None
    if len(wanted) > POSTINGS_MAX:
        return None
    found: list[Posting] = []
    for value in wanted:
        if isinstance(value, dict | list):
            return None  # cannot be looked up
        found.append(Posting(levels, name, value=value))
    return found
