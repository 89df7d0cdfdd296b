"""The last hour of the other nodes of a cluster, from what each says of itself.

Sketch: a point each ten seconds has some 20 numbers, so an hour of a node is 60 KB.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, final

from perdure.admin.records.node import History, Overview
from perdure.config.units import format_time
from perdure.server.administration.history import (
    COUNTERS,
    GAUGES,
    LATENCIES,
    POINTS_MAX,
    STEP_LOOKS,
)

SERIES: Final = (*COUNTERS, *GAUGES)
STEP_US: Final = STEP_LOOKS * 1_000_000

CARRIED_US: Final = 2 * STEP_US
"""A node says its numbers as often as a history has points, but not at the same moments: a value
holds until a later one, or for so long."""

ADDED: Final = frozenset(
    {*COUNTERS, "connections", "sessions_connected", "inflight_messages", "pending_messages"}
)
"""Series that are summed over all nodes."""

WORST: Final = frozenset({"event_loop_lag_us", *LATENCIES})
"""Series of which the largest value of all nodes is told."""

Values: TypeAlias = list[float | None]


class Point(NamedTuple):
    """What a node has said at a moment.

    Attributes:
        at_us: wall time, by its clock.
        values: in the order of ``SERIES``; NaN = it did not know.
    """

    at_us: int
    values: array[float]


@final
class NodeHistories:
    """Keeps an hour of each node."""

    def __init__(self) -> None:
        self._points: dict[str, deque[Point]] = {}

    def add(self, overview: Overview) -> None:
        """A node has said its numbers."""
        points = self._points.setdefault(overview.node, deque(maxlen=POINTS_MAX))
        if not points or points[-1].at_us < overview.as_of_us:
            points.append(Point(overview.as_of_us, array("d", map(_told, _values(overview)))))

    def forget(self, name: str) -> None:
        """A node is not known any more."""
        self._points.pop(name, None)

    def history(self, name: str, seconds: int) -> History:
        """The last points of a node, up to the last one that there is."""
        points = self._points.get(name, ())
        until_us = points[-1].at_us if points else 0
        oldest_us = points[0].at_us if points else 0
        there = (until_us - oldest_us + STEP_US // 2) // STEP_US + 1 if points else 0
        count = min(there, max(1, seconds // STEP_LOOKS))
        moments = _moments(until_us, count)
        return _history(until_us, dict(zip(SERIES, _at(points, moments), strict=True)))

    def total(self, own: History, members: Iterable[str]) -> History:
        """All nodes together, where this one has points.

        What each node has of its own is summed, of what has no sum the worst is told, and the rest
        is what this node has. A moment of which a node has said nothing is without it.

        Args:
            own: of this node.
            members: names of the others.
        """
        count = max((len(values) for values in own.series.values()), default=0)
        moments = _moments(own.until_us, count)
        others = [
            dict(zip(SERIES, _at(self._points.get(name, ()), moments), strict=True))
            for name in members
        ]
        series: dict[str, Values] = {}
        for name, values in own.series.items():
            if name in ADDED:
                together = zip(values, *(each[name] for each in others), strict=True)
                series[name] = [_sum(each) for each in together]
            elif name in WORST:
                together = zip(values, *(each[name] for each in others), strict=True)
                series[name] = [_most(each) for each in together]
            else:
                series[name] = values
        return _history(own.until_us, series)


def _values(overview: Overview) -> Iterable[float | None]:
    rates = overview.rates
    for name in SERIES:
        if name in LATENCIES:
            yield getattr(rates, name) or 0
        else:
            yield getattr(rates if name in COUNTERS else overview, name)


def _told(value: float | None) -> float:
    return float("nan") if value is None else value


def _moments(until_us: int, count: int) -> list[int]:
    return [until_us - (count - 1 - place) * STEP_US for place in range(count)]


def _at(points: Sequence[Point] | deque[Point], moments: Sequence[int]) -> list[Values]:
    """Each series at some moments, ascending."""
    times = [point.at_us for point in points]
    found: list[Values] = [[] for _ in SERIES]
    for moment in moments:
        # Clocks of nodes differ a little, and so do the moments at which they say it.
        place = bisect_right(times, moment + STEP_US // 2) - 1
        point = points[place] if place >= 0 and moment - times[place] < CARRIED_US else None
        for series, value in zip(found, point.values if point else _UNKNOWN, strict=True):
            series.append(None if value != value else value)
    return found


_UNKNOWN: Final = array("d", [float("nan")] * len(SERIES))


def _sum(values: tuple[float | None, ...]) -> float | None:
    known = [each for each in values if each is not None]
    return round(sum(known), 3) if known else None


def _most(values: tuple[float | None, ...]) -> float | None:
    return max((each for each in values if each is not None), default=None)


def _history(until_us: int, series: Mapping[str, Values]) -> History:
    return History(
        step_s=STEP_LOOKS, until=format_time(until_us), until_us=until_us, series=dict(series)
    )
