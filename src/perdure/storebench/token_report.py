"""A comparison of token layouts as a page: memory while tokens become more, and all figures."""

from __future__ import annotations

from html import escape

from perdure.bench.page import STYLE
from perdure.bench.plot import Axis, Bar, Series, bars, lines
from perdure.storebench.tokens import TokenComparison, TokenRow

_MIB = 1 << 20
_HEAD = (
    ("layout", "bytes each", "of json", "article", "save, us", "find, us", "saves/s", "finds/s")
)  # fmt: skip


def render(found: TokenComparison) -> str:
    """The page, one HTML file."""
    machine = found.machine
    parts = [
        "<h1>What login sessions take in Redis</h1>",
        (
            f"<p>{escape(found.started_at)}, {escape(machine.cpu)}, {machine.cores} cores, "
            f"{escape(found.server)}, hash-max-listpack-entries {found.hash_entries}, Perdure "
            f"{escape(machine.perdure)}. Memory is the server's used_memory.</p>"
        ),
        '<div class="plots">',
        f"<figure>{_curves(found)}</figure>",
        f"<figure>{_bars(found)}</figure>",
        "</div>",
        "<h2>All figures</h2>",
        _table(found),
        "<h2>How to read this</h2>",
        "<ul>",
        (
            "<li>Article: the figures of Optimising session key storage in Redis, from which the "
            "first five layouts are; for a "
            "million sessions, on a Redis of its time.</li>"
        ),
        (
            "<li>save and find are CPU of the server for one; saves/s are sent a thousand at once, "
            "finds/s one after the other by one client on the same machine.</li>"
        ),
        "</ul>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Perdure: sessions</title>'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _curves(found: TokenComparison) -> str:
    series = [
        Series(
            row.layout,
            [(0.0, 0.0), *((float(count), size / _MIB) for count, size in row.curve)],
            colour,
        )
        for colour, row in enumerate(found.rows)
    ]
    return lines("Memory", Axis("sessions"), Axis("MiB"), series)


def _bars(found: TokenComparison) -> str:
    entries: list[Bar] = []
    for colour, row in enumerate(found.rows):
        size = row.bytes_each
        entries.append(Bar(row.layout, size, size, size, f"{size:g} B", colour))
        if row.seed_bytes:
            said = float(row.seed_bytes)
            entries.append(Bar("the article", said, said, said, f"{said:g} B", colour))
    return bars("Bytes for each", entries)


def _table(found: TokenComparison) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in _HEAD)
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in found.rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _cells(row: TokenRow) -> str:
    values = (
        row.layout,
        f"{row.bytes_each:g}",
        f"{row.of_json:.0%}" if row.of_json else "",
        f"{row.seed_bytes} B" if row.seed_bytes else "",
        f"{row.save_us:g}",
        f"{row.find_us:g}",
        f"{row.saves_per_s:,}",
        f"{row.finds_per_s:,}",
    )
    return "".join(f"<td>{escape(value)}</td>" for value in values)
