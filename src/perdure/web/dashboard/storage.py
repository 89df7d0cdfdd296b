"""The log as a line of time."""

from __future__ import annotations

from typing import Final, final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.records.timeline import GetTimeline, Timeline, TimelineGeneration
from perdure.web.dashboard.desk import Desk, is_part
from perdure.web.routing import WebRoute

WIDTH: Final = 1000.0
"""Of the drawing, in its own units; it is as wide as the page."""

BAR_HEIGHT: Final = 96.0
BAR_WIDTH_MIN: Final = 3.0
BAR_HEIGHT_MIN: Final = 6.0
TICKS_MAX: Final = 6

_STEPS_S: Final = (
    60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 31_536_000,
)  # fmt: skip


@final
class Bar(msgspec.Struct, frozen=True):
    """A generation in the drawing: place and size, and what it is."""

    x: float
    width: float
    height: float
    info: TimelineGeneration
    is_current: bool


@final
class Mark(msgspec.Struct, frozen=True):
    """Something at a place of the line: where, when, and how many."""

    x: float
    at_us: int
    count: int


@final
class Drawing(msgspec.Struct, frozen=True):
    """The line, ready to be drawn.

    Attributes:
        bars: generations.
        ticks: moments of the axis.
        tick_s: between two of them.
        cursors: sessions that stand close together are one mark.
        edge: where retention's age ends; None = outside, or none.
    """

    bars: list[Bar]
    ticks: list[Mark]
    tick_s: int
    cursors: list[Mark]
    edge: float | None


def draw(line: Timeline) -> Drawing:
    """Place everything on a line from the first generation to now."""
    starts_us = line.generations[0].since_us if line.generations else line.as_of_us - 1
    length_us = max(line.as_of_us - starts_us, 1_000_000)

    def place(at_us: int) -> float:
        return round(min(max((at_us - starts_us) / length_us, 0), 1) * WIDTH, 2)

    largest = max((each.bytes for each in line.generations), default=0) or 1
    bars = []
    for info in line.generations:
        x, end = place(info.since_us), place(info.until_us or line.as_of_us)
        height = max(BAR_HEIGHT_MIN, BAR_HEIGHT * info.bytes / largest)
        width = max(end - x - 1.5, BAR_WIDTH_MIN)
        bars.append(Bar(x, round(width, 2), round(height, 2), info, info.until_us is None))
    step_s = next((each for each in _STEPS_S if length_us / 1e6 / each <= TICKS_MAX), _STEPS_S[-1])
    first = starts_us // 1_000_000 // step_s + 1
    ticks = [
        Mark(place(number * step_s * 1_000_000), number * step_s * 1_000_000, 1)
        for number in range(first, line.as_of_us // 1_000_000 // step_s + 1)
    ]
    counts: dict[float, tuple[int, int]] = {}
    for cursor in line.cursors:
        x = round(place(cursor.at_us) / 8) * 8.0
        at_us, count = counts.get(x, (cursor.at_us, 0))
        counts[x] = (at_us, count + 1)
    cursors = [Mark(x, at_us, count) for x, (at_us, count) in sorted(counts.items())]
    edge = None
    if line.keeps_s is not None:
        edge_us = line.as_of_us - line.keeps_s * 1_000_000
        edge = place(edge_us) if edge_us > starts_us else None
    return Drawing(bars, ticks[:24], step_s, cursors, edge)


def storage_routes(desk: Desk) -> list[WebRoute]:
    """The page."""

    async def storage(request: Request) -> Response:
        line = await desk.ask(request, GetTimeline())
        template = "timeline.html" if is_part(request) else "storage.html"
        return desk.page(request, template, current="storage", line=line, drawing=draw(line))

    return [desk.route("/ui/storage", storage)]
