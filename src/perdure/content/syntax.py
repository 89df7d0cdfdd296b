"""The language of content filters: a JSON object, all members of which must hold.

==========================  ================================================================
member                      holds if
==========================  ================================================================
``"a.b": 5``                the field ``b`` of ``a`` in the JSON payload equals 5
``"a.0": {"$gt": 5}``       each of the operators does; a number is a place in an array
``"$payload": {...}``       the same of the payload itself, as where it is a bare number
``"$property.NAME": {...}`` the same of a value of the user property NAME
``"$and": [{...}, ...]``    all of the filters hold; ``$or``: one of them
``"$not": {...}``           the filter does not hold
==========================  ================================================================

Operators: ``$eq $ne $gt $gte $lt $lte`` with a value, ``$in $nin`` with an array, ``$exists`` with
true or false, ``$not`` with operators. Values of different kinds are never equal, and neither is
greater; a property is text, and a number where it looks like one. ``$ne``, ``$nin`` and ``$not``
hold where there is no value.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final, final

import msgspec

from perdure.content.predicate import (
    All,
    AnyOf,
    Compares,
    ContentFilter,
    Equals,
    Exists,
    FieldIs,
    Node,
    Not,
    OneOf,
    PropertyIs,
    Test,
    is_number,
)

TEXT_BYTES_MAX: Final = 65_536
DEPTH_MAX: Final = 16
CONDITIONS_MAX: Final = 256
CHOICES_MAX: Final = 10_000

PAYLOAD: Final = "$payload"
PROPERTY: Final = "$property."

OPERATORS: Final = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$not")

_SHOWN_CHARS: Final = 40


@lru_cache(maxsize=1024)
def parse_filter(text: str) -> ContentFilter:
    """The filter that a text is; each distinct one is parsed once.

    Raises:
        ValueError: it is none, with a sentence that says where and why.
    """
    if len(text.encode(errors="surrogatepass")) > TEXT_BYTES_MAX:
        raise ValueError(f"a content filter has at most {TEXT_BYTES_MAX} bytes")
    try:
        found = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        # msgspec's errors are ValueErrors, and so is what Python says of too many digits.
        raise ValueError(f"a content filter is a JSON object: {error}") from None
    parser = _Parser()
    node = parser.filter(found, "", 1)
    return ContentFilter(text, node, uses_properties=parser.uses_properties)


@lru_cache(maxsize=1024)
def canonical(text: str) -> str:
    """One text for all spellings of a filter: no blanks, members by name.

    Raises:
        ValueError: it is none.
    """
    parse_filter(text)
    try:
        return msgspec.json.encode(msgspec.json.decode(text), order="sorted").decode()
    except (ValueError, OverflowError):
        # A number that the encoder does not write. The filter stays as it was given.
        return text


@final
class _Parser:
    """One parse: how much was seen so far."""

    def __init__(self) -> None:
        self.uses_properties = False
        self._conditions = 0

    def filter(self, value: Any, place: str, depth: int) -> Node:
        """A filter: an object."""
        if depth > DEPTH_MAX:
            raise ValueError(f"{_at(place)}filters are nested more than {DEPTH_MAX} deep")
        if not isinstance(value, dict):
            raise ValueError(f"{_at(place)}expected a JSON object, got {_shown(value)}")
        nodes = [self._member(name, given, place, depth) for name, given in value.items()]
        return nodes[0] if len(nodes) == 1 else All(nodes)

    def _member(self, name: str, value: Any, place: str, depth: int) -> Node:
        within = f"{place}.{name}" if place else name
        if name in {"$and", "$or"}:
            if not isinstance(value, list) or not value:
                raise ValueError(f"{_at(within)}expected an array of filters")
            nodes = [
                self.filter(each, f"{within}[{number}]", depth + 1)
                for number, each in enumerate(value)
            ]
            return All(nodes) if name == "$and" else AnyOf(nodes)
        if name == "$not":
            return Not(self.filter(value, within, depth + 1))
        return self._condition(_Target(self, name, within), value, within, depth)

    def _condition(self, target: _Target, value: Any, place: str, depth: int) -> Node:
        """What must hold of a field: a value, or operators."""
        if depth > DEPTH_MAX:
            raise ValueError(f"{_at(place)}conditions are nested more than {DEPTH_MAX} deep")
        if not isinstance(value, dict):
            return target.leaf(Equals(target.value(value, place)))
        if not value:
            raise ValueError(f"{_at(place)}no operator; there are {', '.join(OPERATORS)}")
        nodes = [
            self._operator(target, name, given, f"{place}.{name}", depth)
            for name, given in value.items()
        ]
        return nodes[0] if len(nodes) == 1 else All(nodes)

    def _operator(self, target: _Target, name: str, value: Any, place: str, depth: int) -> Node:
        match name:
            case "$eq":
                return target.leaf(Equals(target.value(value, place)))
            case "$ne":
                return Not(target.leaf(Equals(target.value(value, place))))
            case "$gt" | "$gte" | "$lt" | "$lte":
                if not is_number(value) and not isinstance(value, str):
                    raise ValueError(
                        f"{_at(place)}expected a number or a text, got {_shown(value)}"
                    )
                return target.leaf(Compares(name, value))
            case "$in" | "$nin":
                if not isinstance(value, list) or len(value) > CHOICES_MAX:
                    raise ValueError(
                        f"{_at(place)}expected an array of at most {CHOICES_MAX} values"
                    )
                leaf = target.leaf(OneOf([target.value(each, place) for each in value]))
                return leaf if name == "$in" else Not(leaf)
            case "$exists":
                if not isinstance(value, bool):
                    raise ValueError(f"{_at(place)}expected true or false, got {_shown(value)}")
                leaf = target.leaf(Exists())
                return leaf if value else Not(leaf)
            case "$not":
                if not isinstance(value, dict):
                    raise ValueError(f"{_at(place)}expected operators, got {_shown(value)}")
                return Not(self._condition(target, value, place, depth + 1))
        hint = "" if name.startswith("$") else "; for a field of a field write a.b"
        raise ValueError(f"{_at(place)}no such operator{hint}; there are {', '.join(OPERATORS)}")

    def count(self) -> None:
        """One more leaf."""
        self._conditions += 1
        if self._conditions > CONDITIONS_MAX:
            raise ValueError(f"a content filter has at most {CONDITIONS_MAX} conditions")


@final
class _Target:
    """What conditions are about: a field of the payload, or a user property."""

    def __init__(self, parser: _Parser, name: str, place: str) -> None:
        self._parser = parser
        self._property: str | None = None
        self._levels: list[str] = []
        if name.startswith(PROPERTY):
            self._property = name.removeprefix(PROPERTY)
            parser.uses_properties = True
        elif name != PAYLOAD:
            if name.startswith("$"):
                raise ValueError(
                    f"{_at(place)}not a field; "
                    f"there are $and, $or, $not, {PAYLOAD} and {PROPERTY}NAME"
                )
            self._levels = name.split(".")
            if not all(self._levels):
                raise ValueError(f"{_at(place)}a field has a name on each side of a dot")

    def leaf(self, test: Test) -> Node:
        """The condition that a test passes."""
        self._parser.count()
        if self._property is not None:
            return PropertyIs(self._property, test)
        return FieldIs(self._levels, test)

    def value(self, value: Any, place: str) -> Any:
        """A value to be equal to."""
        if self._property is not None and not isinstance(value, str) and not is_number(value):
            raise ValueError(
                f"{_at(place)}a user property is a text or a number, never {_shown(value)}"
            )
        return value


def _at(place: str) -> str:
    return f"{_cut(place)}: " if place else ""


def _shown(value: Any) -> str:
    return _cut(json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
