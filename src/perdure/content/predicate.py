"""A content filter as a tree of conditions, and how it is tried on a message.

Every leaf is positive: it holds if a value is there and passes its test. ``$ne``, ``$nin`` and
``$exists: false`` are the negation of a leaf, so that they hold where there is no value. A payload
that does not decode has no fields.

Invariant: trying a filter never raises, whatever the payload is.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from perdure.content.document import MISSING, Content, Pairs, content_of
from perdure.model import Message

# A number as JSON writes it; float() takes more.
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_NUMBER_CHARS_MAX: Final = 64

_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


class Node:
    """A condition."""

    __slots__ = ()

    def holds(self, content: Content) -> bool:
        """Whether a message fulfils it."""
        raise NotImplementedError


class Test:
    """What a value must be."""

    __slots__ = ()

    def passes(self, value: object) -> bool:
        """Whether a value that is there is so."""
        raise NotImplementedError


# -- conditions ----------------------------------------------------------------------------


@final
class All(Node):
    """Every one of some conditions; of none, true."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)

    def holds(self, content: Content) -> bool:
        for node in self.nodes:  # noqa: SIM110 - half the time of a generator
            if not node.holds(content):
                return False
        return True


@final
class AnyOf(Node):
    """One of some conditions, or more."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)

    def holds(self, content: Content) -> bool:
        for node in self.nodes:  # noqa: SIM110 - as above
            if node.holds(content):
                return True
        return False


@final
class Not(Node):
    """The opposite of a condition."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def holds(self, content: Content) -> bool:
        return not self.node.holds(content)


@final
class FieldIs(Node):
    """A field of the payload is there and passes a test.

    Args:
        levels: the way to it: names in objects, numbers in arrays; none = the payload itself.
        test: of its value.
    """

    __slots__ = ("levels", "test")

    def __init__(self, levels: Sequence[str], test: Test) -> None:
        self.levels = tuple(levels)
        self.test = test

    def holds(self, content: Content) -> bool:
        value = content.root()
        for level in self.levels:
            if isinstance(value, dict):
                value = value.get(level, MISSING)
            elif isinstance(value, list):
                value = element(value, level)
            else:
                return False
        if value is MISSING:
            return False
        return self.test.passes(value)


@final
class PropertyIs(Node):
    """A user property is there and one of its values passes a test.

    Args:
        name: of the property.
        test: of a value, which is tried as text and, where it is one, as a number.
    """

    __slots__ = ("name", "test")

    def __init__(self, name: str, test: Test) -> None:
        self.name = name
        self.test = test

    def holds(self, content: Content) -> bool:
        for name, text in content.pairs():
            if name == self.name:
                if self.test.passes(text):
                    return True
                number = number_of(text)
                if number is not None and self.test.passes(number):
                    return True
        return False


def element(values: list[object], level: str) -> object:
    """The value at a place of an array, or ``MISSING``."""
    if not level.isascii() or not level.isdecimal() or len(level) > 9:
        return MISSING
    index = int(level)
    return values[index] if index < len(values) else MISSING


def number_of(text: str) -> int | float | None:
    """The number that a text is, or None."""
    if len(text) > _NUMBER_CHARS_MAX or not _NUMBER.fullmatch(text):
        return None
    try:
        return int(text)
    except ValueError:
        return float(text)


# -- tests ---------------------------------------------------------------------------------


@final
class Exists(Test):
    """Anything, null too."""

    __slots__ = ()

    def passes(self, value: object) -> bool:
        return True


@final
class Equals(Test):
    """A value of the same kind that is equal; numbers by what they are worth."""

    __slots__ = ("wanted",)

    def __init__(self, wanted: object) -> None:
        self.wanted = wanted

    def passes(self, value: object) -> bool:
        return same(value, self.wanted)


@final
class OneOf(Test):
    """Equal to one of some values."""

    __slots__ = ("_numbers", "_others", "_texts", "wanted")

    def __init__(self, wanted: Sequence[object]) -> None:
        self.wanted = tuple(wanted)
        self._texts = frozenset(each for each in wanted if isinstance(each, str))
        self._numbers = frozenset(each for each in wanted if is_number(each))
        self._others = [
            each for each in wanted if not isinstance(each, str) and not is_number(each)
        ]

    def passes(self, value: object) -> bool:
        if isinstance(value, str):
            return value in self._texts
        if is_number(value):
            return value in self._numbers
        return any(same(value, each) for each in self._others)


@final
class Compares(Test):
    """Greater or less than a number, or than a text (by code point), and of the same kind.

    Args:
        name: ``$gt``, ``$gte``, ``$lt`` or ``$lte``.
        bound: a number or a text.
    """

    __slots__ = ("_compare", "bound", "is_lower", "is_text")

    def __init__(self, name: str, bound: object) -> None:
        self._compare = _COMPARISONS[name]
        self.bound = bound
        self.is_lower = name in ("$gt", "$gte")
        self.is_text = isinstance(bound, str)

    def passes(self, value: object) -> bool:
        fits = isinstance(value, str) if self.is_text else is_number(value)
        return fits and self._compare(value, self.bound)


def is_number(value: object) -> bool:
    """Whether a value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(one: object, other: object) -> bool:
    """Whether two JSON values are equal. In Python, ``True == 1``; here not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other


# -- the whole -----------------------------------------------------------------------------


@final
class ContentFilter:
    """A parsed filter.

    Args:
        text: as it was given.
        node: its conditions.
        uses_properties: whether it looks at user properties at all.
    """

    __slots__ = ("node", "text", "uses_properties")

    def __init__(self, text: str, node: Node, *, uses_properties: bool) -> None:
        self.text = text
        self.node = node
        self.uses_properties = uses_properties

    def holds(self, payload: bytes, properties: Pairs = ()) -> bool:
        """Whether a payload with some user properties fulfils the filter."""
        return self.node.holds(Content(payload, properties))

    def fulfilled_by(self, message: Message) -> bool:
        """Whether a message fulfils the filter."""
        return self.node.holds(content_of(message))

    def holds_for(self, content: Content) -> bool:
        """Whether what filters see of a message fulfils the filter."""
        return self.node.holds(content)

    def __repr__(self) -> str:
        return f"ContentFilter({self.text!r})"
