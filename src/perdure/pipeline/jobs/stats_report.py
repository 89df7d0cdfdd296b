"""Statistics as one HTML page that needs nothing else: no script, no font, no network.

Pure: values in, text out. Everything that clients chose (topics, client ids) is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from perdure.pipeline.jobs.stats import Statistics

_CHART_WIDTH: Final = 960
_CHART_HEIGHT: Final = 160

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% } td, th { padding: .2rem .6rem; text-align: left }
tr:nth-child(even) { background: color-mix(in srgb, currentColor 6%, transparent) }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
svg { width: 100%; height: auto } rect { fill: #2f7d6d } .axis { font-size: 11px; fill: gray }
td.bar { width: 30% } td.bar span { display: block; height: .7rem; background: #2f7d6d }
:root { color-scheme: light dark }
"""


def render(statistics: Statistics, *, title: str) -> str:
    """The page."""
    totals = statistics.totals
    summary = (
        f"<p>{number(totals['messages'])} messages, {number(totals['bytes'])} bytes of payload, "
        f"{number(totals['clients'])} clients, {number(totals['structures'])} topic structures; "
        f"from {_text(totals['first'])} to {_text(totals['last'])} (UTC).</p>"
    )
    return page(
        title,
        summary,
        [
            ("Messages by hour", _chart(statistics.hours)),
            ("Topic structures", table(statistics.structures, bar="messages")),
            ("Clients", table(statistics.clients, bar="messages")),
            ("Silent clients", table(statistics.silent) if statistics.silent else "<p>None.</p>"),
            ("Sessions that are behind", _slow(statistics.slow)),
        ],
    )


def page(title: str, summary: str, sections: Sequence[tuple[str, str]]) -> str:
    """A page of sections, each a heading and its HTML."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        summary,
        *(part for name, html in sections for part in (f"<h2>{escape(name)}</h2>", html)),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _slow(rows: Sequence[dict[str, Any]] | None) -> str:
    if rows is None:
        return "<p>Not looked at: that is done in the data directory, not over HTTP.</p>"
    return table(rows, bar="pending") if rows else "<p>None.</p>"


def table(rows: Sequence[dict[str, Any]], *, bar: str = "") -> str:
    """Rows as a table; a column of numbers as bars beside it, if one is named."""
    if not rows:
        return "<p>Nothing was recorded.</p>"
    names = list(rows[0])
    most = max((row[bar] for row in rows), default=0) if bar else 0
    head = "".join(f"<th{_class(rows[0][name])}>{escape(_title(name))}</th>" for name in names)
    lines = [f"<table><tr>{head}{'<th></th>' if bar else ''}</tr>"]
    for row in rows:
        cells = "".join(f"<td{_class(row[name])}>{_text(row[name])}</td>" for name in names)
        if bar:
            share = 100 * row[bar] / most if most else 0
            cells += f'<td class="bar"><span style="width: {share:.1f}%"></span></td>'
        lines.append(f"<tr>{cells}</tr>")
    return "\n".join([*lines, "</table>"])


def _chart(hours: Sequence[dict[str, Any]]) -> str:
    """A bar for each hour, at its place in time: hours without a message are gaps."""
    if not hours:
        return "<p>Nothing was recorded.</p>"
    first, last = hours[0]["hour"], hours[-1]["hour"]
    count = int((last - first).total_seconds()) // 3600 + 1
    most = max(row["messages"] for row in hours)
    width = _CHART_WIDTH / count
    bars = []
    for row in hours:
        left = int((row["hour"] - first).total_seconds()) // 3600 * width
        height = max(1.0, _CHART_HEIGHT * row["messages"] / most)
        bars.append(
            f'<rect x="{left:.2f}" y="{_CHART_HEIGHT - height:.2f}" '
            f'width="{max(width * 0.9, 0.5):.2f}" height="{height:.2f}">'
            f"<title>{_text(row['hour'])}: {number(row['messages'])} messages</title></rect>"
        )
    label = f"Messages by hour, at most {number(most)}"
    return (
        f'<svg viewBox="0 -14 {_CHART_WIDTH} {_CHART_HEIGHT + 32}" role="img" '
        f'aria-label="{label}"><text class="axis" x="0" y="-3">{number(most)}</text>'
        f"{''.join(bars)}"
        f'<text class="axis" x="0" y="{_CHART_HEIGHT + 14}">{_text(first)}</text>'
        f'<text class="axis" x="{_CHART_WIDTH}" y="{_CHART_HEIGHT + 14}" '
        f'text-anchor="end">{_text(last)}</text></svg>'
    )


def _title(name: str) -> str:
    return name.removesuffix("_s").replace("_", " ") + (", s" if name.endswith("_s") else "")


def _class(value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return ' class="number"' if is_number else ""


def number(value: float) -> str:
    """With thin spaces between thousands."""
    return f"{value:,}".replace(",", "\u2009")


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, int | float):
        return number(value)
    return escape(str(value))
