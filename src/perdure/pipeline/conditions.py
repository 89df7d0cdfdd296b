"""What conditions on the columns of a query leave to be read.

Knows no Spark: conditions are triples. Invariant: narrowing by conditions never leaves out a row
that fulfils them, within what ``CLOCK_BACK_MAX_US`` says.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from perdure.limits import OFFSET_MAX
from perdure.storage.capabilities import Capabilities
from perdure.storage.ordered.contract import TIME_STEP_US
from perdure.storage.rocksdb.bulk import FilterSets

CLOCK_BACK_MAX_US: Final = 3_600_000_000
"""How far the broker's clock may have been set back for an upper bound on ``published_at`` to
still find every row. An offset is at least the time of its message (``offset_before``), but after
the clock was set back it runs ahead of it, until the clock has caught up."""

_IN_STEPS: Final = Capabilities(time_step_us=TIME_STEP_US)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Condition(NamedTuple):
    """One condition on a column, as Spark pushes it down.

    Attributes:
        kind: ``EqualTo``, ``In``, ``GreaterThan``, ``GreaterThanOrEqual``, ``LessThan``,
            ``LessThanOrEqual``, ``StringStartsWith``; others are not used.
        column: its name.
        value: a value, or several for ``In``.
    """

    kind: str
    column: str
    value: Any


class Narrowing(msgspec.Struct, frozen=True):
    """What conditions say of the rows to read.

    Attributes:
        filter_sets: as in ``ReadOptions``.
        after_offset, until_offset: bounds.
        published_from, published_until: bounds of ``published_at``, inclusive, or None.
    """

    filter_sets: FilterSets = ()
    after_offset: int = 0
    until_offset: int = OFFSET_MAX
    published_from: int | None = None
    published_until: int | None = None


def offset_before(at_us: int) -> int:
    """The offset behind which all is that was published at a moment or later.

    An offset is never before the time at which its message was taken; in the log of a cluster, of
    which who reads may not know that it is one, never before the last step of its time.
    """
    return _IN_STEPS.offset_before(at_us)


def latest_of(one: int | None, other: int | None) -> int | None:
    """The bound from below that holds where both do."""
    return max((each for each in (one, other) if each is not None), default=None)


def earliest_of(one: int | None, other: int | None) -> int | None:
    """The bound from above that holds where both do."""
    return min((each for each in (one, other) if each is not None), default=None)


def narrow(conditions: Iterable[Condition]) -> Narrowing:
    """The rows that conditions, all of which must hold, leave to be read."""
    sets: list[tuple[str, ...]] = []
    after, until = 0, OFFSET_MAX
    first: int | None = None
    last: int | None = None
    for condition in conditions:
        if condition.column == "topic":
            filters = _topics(condition)
            if filters is not None:
                sets.append(filters)
            continue
        if condition.column not in {"offset", "published_at"}:
            continue
        low, high = _bounds(condition)
        if condition.column == "offset":
            after = after if low is None else max(after, low - 1)
            until = until if high is None else min(until, high)
            continue
        if low is not None:
            first = low if first is None else max(first, low)
        if high is not None:
            last = high if last is None else min(last, high)
    if first is not None:
        after = max(after, offset_before(first))
    return Narrowing(tuple(sets), after, until, first, last)


def _topics(condition: Condition) -> tuple[str, ...] | None:
    """Filters that match every topic which fulfils a condition; None = it does not narrow."""
    kind, _, value = condition
    if kind == "EqualTo" or kind == "EqualNullSafe":
        return _exact([value])
    if kind == "In":
        return _exact(value)
    if kind == "StringStartsWith" and isinstance(value, str):
        head, slash, _ = value.rpartition("/")
        if slash and _is_topic(value):
            return (f"{head}/#",)
    return None


def _exact(values: Iterable[Any]) -> tuple[str, ...]:
    # No topic name holds a wildcard, so a value that does equals none.
    return tuple(value for value in values if isinstance(value, str) and _is_topic(value))


def _is_topic(text: str) -> bool:
    return bool(text) and not any(char in text for char in "+#\0")


def _bounds(condition: Condition) -> tuple[int | None, int | None]:
    """Inclusive bounds that a condition puts on a number or a moment."""
    kind, _, value = condition
    if kind == "In":
        numbers = [number for each in value if (number := _number(each)) is not None]
        return (min(numbers), max(numbers)) if numbers else (None, None)
    number = _number(value)
    if number is None:
        return None, None
    match kind:
        case "EqualTo" | "EqualNullSafe":
            return number, number
        case "GreaterThan":
            return number + 1, None
        case "GreaterThanOrEqual":
            return number, None
        case "LessThan":
            return None, number - 1
        case "LessThanOrEqual":
            return None, number
    return None, None


def _number(value: Any) -> int | None:
    if isinstance(value, datetime):
        at = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (at - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None
