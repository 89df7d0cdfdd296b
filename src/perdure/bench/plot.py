"""Charts as inline SVG: lines and bars, without a script, in the colours of the page around them.

Pure: numbers in, text out. Colours are CSS variables ``--c0`` to ``--c5`` and ``--ink``, so that a
page may be light or dark. Every mark has a ``<title>``, which browsers show as a tip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Final, Literal, final

import msgspec

WIDTH: Final = 640
HEIGHT: Final = 310
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 44, 46
_BAR: Final = 26
COLOURS: Final = 6

Scale = Literal["linear", "log", "percentile"]


@final
class Series(msgspec.Struct, frozen=True):
    """A line, or points if it is one point.

    Attributes:
        name: in the legend.
        points: (x, y), ascending in x.
        colour: number of its colour.
        dashed: a second line of the same thing.
    """

    name: str
    points: list[tuple[float, float]]
    colour: int = 0
    dashed: bool = False


@final
class Bar(msgspec.Struct, frozen=True):
    """A bar with its spread.

    Attributes:
        name: beside it.
        value: its length.
        low, high: the least and most of what it stands for.
        text: written at its end.
    """

    name: str
    value: float
    low: float
    high: float
    text: str
    colour: int = 0


@final
class Axis(msgspec.Struct, frozen=True):
    """What an axis shows.

    Attributes:
        label: with the unit.
        scale: ``percentile`` spreads the shares near 1: 0.9, 0.99 and 0.999 are equally far.
    """

    label: str
    scale: Scale = "linear"


def lines(title: str, x: Axis, y: Axis, series: Sequence[Series], *, key: str = "") -> str:
    """A chart of lines; empty text when there is nothing to draw.

    Args:
        title: above it.
        x, y: its axes.
        series: its lines; those of one name have one colour, and one entry in the legend.
        key: what solid and dashed mean, told where there is a dashed line.
    """
    drawn = [_visible(one, x, y) for one in series]
    drawn = [one for one in drawn if one.points]
    if not drawn:
        return ""
    every = [point for one in drawn for point in one.points]
    place_x, ticks_x = _axis(x, [p[0] for p in every], _LEFT, WIDTH - _RIGHT)
    place_y, ticks_y = _axis(y, [p[1] for p in every], HEIGHT - _BOTTOM, _TOP)
    parts = [_frame(title, x, y)]
    for value, text in ticks_x:
        at = place_x(value)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" '
                     f'y2="{HEIGHT - _BOTTOM}"/>')  # fmt: skip
        parts.append(_text(at, HEIGHT - _BOTTOM + 16, text, "middle"))
    for value, text in ticks_y:
        at = place_y(value)
        parts.append(f'<line class="grid" y1="{at:.1f}" y2="{at:.1f}" x1="{_LEFT}" '
                     f'x2="{WIDTH - _RIGHT}"/>')  # fmt: skip
        parts.append(_text(_LEFT - 6, at + 4, text, "end"))
    parts.extend(_line(one, place_x, place_y) for one in drawn)
    return _svg(title, HEIGHT, parts) + _legend(drawn, key)


def bars(title: str, entries: Sequence[Bar]) -> str:
    """Horizontal bars from zero, each with its spread; empty text when there are none."""
    if not entries:
        return ""
    left = 190
    top = max(max(bar.high, bar.value) for bar in entries) or 1.0
    width = WIDTH - left - 110
    parts = [_text(0, 16, title, "start", "head")]
    for index, bar in enumerate(entries):
        y = 30 + index * (_BAR + 8)
        long = bar.value / top * width
        parts.append(_text(left - 8, y + 17, bar.name, "end"))
        parts.append(
            f'<rect x="{left}" y="{y}" width="{max(1.0, long):.1f}" height="{_BAR}" '
            f'fill="var(--c{bar.colour % COLOURS})"><title>{escape(bar.name)}: '
            f"{escape(bar.text)}</title></rect>"
        )
        if bar.high > bar.low:
            low, high, middle = (
                left + bar.low / top * width,
                left + bar.high / top * width,
                y + _BAR / 2,
            )
            parts.append(f'<path class="spread" d="M{low:.1f} {middle}H{high:.1f}'
                         f'M{low:.1f} {middle - 5}v10M{high:.1f} {middle - 5}v10"/>')  # fmt: skip
        end = max(long, bar.high / top * width)
        parts.append(_text(left + end + 8, y + 17, bar.text, "start"))
    return _svg(title, 36 + len(entries) * (_BAR + 8), parts)


def _visible(one: Series, x: Axis, y: Axis) -> Series:
    """Without what a logarithm cannot show."""
    points = [
        (a, b) for a, b in one.points if (x.scale != "log" or a > 0) and (y.scale != "log" or b > 0)
    ]
    return msgspec.structs.replace(one, points=points)


def _axis(
    axis: Axis, values: Sequence[float], start: float, stop: float
) -> tuple[Callable[[float], float], list[tuple[float, str]]]:
    """(where a value stands, the ticks)."""
    low, high = min(values), max(values)
    if axis.scale == "percentile":
        nines = max(1.0, min(5.0, -math.log10(max(1e-5, 1 - min(high, 0.99999)))))
        ticks = [(0.0, "0"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"),
                 (0.9999, "99.99 %")]  # fmt: skip

        def by_nines(share: float) -> float:
            depth = min(nines, -math.log10(max(1e-5, 1 - min(share, 0.99999))))
            return start + (stop - start) * depth / nines

        return by_nines, [tick for tick in ticks if -math.log10(1 - tick[0]) <= nines + 1e-9]
    if axis.scale == "log":
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        last = max(last, first + 1)

        def by_powers(value: float) -> float:
            return start + (stop - start) * (math.log10(value) - first) / (last - first)

        return by_powers, [(10.0**power, _short(10.0**power)) for power in range(first, last + 1)]
    step = _step(max(high, 1e-9))
    top = math.ceil(max(high, 1e-9) / step) * step

    def linear(value: float) -> float:
        return start + (stop - start) * value / top

    count = round(top / step)
    return linear, [(step * index, _short(step * index)) for index in range(count + 1)]


def _step(high: float) -> float:
    """A round distance that gives four to eight ticks."""
    power = 10.0 ** math.floor(math.log10(high))
    for factor in (0.2, 0.5, 1.0):
        if high / (power * factor) <= 6:
            return power * factor
    return power * 2


def _short(value: float) -> str:
    """A number in few characters."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _line(one: Series, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    colour = f"var(--c{one.colour % COLOURS})"
    points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in one.points)
    dash = ' stroke-dasharray="5 4"' if one.dashed else ""
    drawn = f'<polyline points="{points}" stroke="{colour}"{dash}/>' if len(one.points) > 1 else ""
    # Points are marked only where they are few: runs, not samples.
    if len(one.points) <= 12:
        drawn += "".join(
            f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="4" fill="{colour}">'
            f"<title>{escape(one.name)}: {a:g}, {b:g}</title></circle>"
            for a, b in one.points
        )
    return drawn


def _frame(title: str, x: Axis, y: Axis) -> str:
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    return (
        _text(0, 16, title, "start", "head")
        + _text(middle, HEIGHT - 8, x.label, "middle")
        + _text(0, 30, y.label, "start")
    )


def _legend(series: Sequence[Series], key: str) -> str:
    colours = {one.name: one.colour % COLOURS for one in series}
    items = "".join(
        f'<li><i style="background:var(--c{colour})"></i>{escape(name)}</li>'
        for name, colour in colours.items()
    )
    if key and any(one.dashed for one in series):
        items += f"<li>{escape(key)}</li>"
    return f'<ul class="legend">{items}</ul>'


def _text(x: float, y: float, text: str, anchor: str, style: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        + "".join(parts)
        + "</svg>"
    )
