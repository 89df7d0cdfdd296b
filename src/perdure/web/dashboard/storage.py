"""The log as a line of time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.limits import PAGE_MAX
from perdure.admin.records.pipeline import ListPipelines, Pipeline
from perdure.admin.records.timeline import GetTimeline, Timeline, TimelineGeneration
from perdure.web.dashboard.desk import Desk, is_part
from perdure.web.routing import WebRoute

WIDTH: Final = 100.0
"""Of the drawing, in per cent of the page: what is written in it keeps its size."""

BAR_HEIGHT: Final = 120.0
"""Pixels of the largest generation."""

BAR_WIDTH_MIN: Final = 0.35
BAR_HEIGHT_MIN: Final = 4.0
GAP: Final = 0.15
CURSOR_WIDTH: Final = 2.0
"""Sessions that stand closer together are one mark."""

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
    """Something at a place of the line: where, when, how many, and who."""

    x: float
    at_us: int
    count: int
    name: str = ""

    @property
    def radius(self) -> float:
        """Of its circle, in pixels: the area grows with the count."""
        return round(min(4 + math.sqrt(self.count) / 2, 15), 1)


@final
class Drawing(msgspec.Struct, frozen=True):
    """The line, ready to be drawn.

    Attributes:
        bars: generations.
        ticks: moments of the axis.
        tick_s: between two of them.
        cursors: sessions that stand close together are one mark.
        pipelines: how far each has read.
        edge: where retention's age ends; None = outside, or none.
        largest: bytes of the highest bar.
    """

    bars: list[Bar]
    ticks: list[Mark]
    tick_s: int
    cursors: list[Mark]
    pipelines: list[Mark]
    edge: float | None
    largest: int


def draw(line: Timeline, pipelines: Sequence[Pipeline] = ()) -> Drawing:
    """Place everything on a line from the first generation to now."""
    starts_us = line.generations[0].since_us if line.generations else line.as_of_us - 1
    length_us = max(line.as_of_us - starts_us, 1_000_000)

    def place(at_us: int) -> float:
        return round(min(max((at_us - starts_us) / length_us, 0), 1) * WIDTH, 3)

    largest = max((each.bytes for each in line.generations), default=0) or 1
    bars = []
    for info in line.generations:
        x, end = place(info.since_us), place(info.until_us or line.as_of_us)
        height = max(BAR_HEIGHT_MIN, BAR_HEIGHT * info.bytes / largest)
        width = max(end - x - GAP, BAR_WIDTH_MIN)
        bars.append(Bar(x, round(width, 3), round(height, 1), info, info.until_us is None))
    step_s = next((each for each in _STEPS_S if length_us / 1e6 / each <= TICKS_MAX), _STEPS_S[-1])
    first = starts_us // 1_000_000 // step_s + 1
    ticks = [
        Mark(place(number * step_s * 1_000_000), number * step_s * 1_000_000, 1)
        for number in range(first, line.as_of_us // 1_000_000 // step_s + 1)
    ]
    marks: dict[float, Mark] = {}
    for cursor in line.cursors:
        x = round(round(place(cursor.at_us) / CURSOR_WIDTH) * CURSOR_WIDTH, 2)
        known = marks.get(x, Mark(x, cursor.at_us, 0, cursor.client_id))
        marks[x] = Mark(x, known.at_us, known.count + 1, known.name)
    cursors = [marks[x] for x in sorted(marks)]
    read = [
        Mark(place(each.through_us), each.through_us, 1, each.name)
        for each in pipelines
        if each.through_us is not None
    ]
    edge = None
    if line.keeps_s is not None:
        edge_us = line.as_of_us - line.keeps_s * 1_000_000
        edge = place(edge_us) if edge_us > starts_us else None
    return Drawing(bars, ticks[:24], step_s, cursors, read, edge, largest)


@final
class Going(msgspec.Struct, frozen=True):
    """What retention takes next.

    Attributes:
        generations, bytes: at its next look; 0 = nothing.
        at_us: else the next one goes then; None = none by age.
    """

    generations: int
    bytes: int
    at_us: int | None


def going(line: Timeline) -> Going:
    """What retention takes next."""
    now = [each for each in line.generations if each.drops_for and not each.waits_for]
    later = [each.drops_at_us for each in line.generations if each.drops_at_us is not None]
    return Going(len(now), sum(each.bytes for each in now), min(later, default=None))


def storage_routes(desk: Desk) -> list[WebRoute]:
    """The page."""

    async def storage(request: Request) -> Response:
        line, pipelines = await asyncio.gather(
            desk.ask(request, GetTimeline()), desk.ask(request, ListPipelines(limit=PAGE_MAX))
        )
        template = "timeline.html" if is_part(request) else "storage.html"
        return desk.page(
            request,
            template,
            current="storage",
            line=line,
            drawing=draw(line, pipelines.items),
            going=going(line),
            streams=sum(each.streams for each in line.generations),
            messages=sum(each.messages for each in line.generations),
            moment=moment_text,
        )

    return [desk.route("/ui/storage", storage)]


def moment_text(at_us: int) -> str:
    """A moment as the page of messages takes it."""
    text = datetime.fromtimestamp(at_us / 1_000_000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
