"""Tables for people: they fit a terminal of 80 columns, whatever is in them.

Times are relative or short; a text that would break over more than three lines is cut in its
middle, where identifiers and topics differ least. Programs read another format, which is whole.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, TextIO
from unicodedata import category, east_asian_width

LINES_MAX: Final = 3
"""Lines of one cell."""
WIDTH_MIN: Final = 8
"""Least width of a column that is made narrower."""
GAP: Final = 2
"""Columns between two columns of the table."""
WIDTH_ELSEWHERE: Final = 200
"""Width where there is no terminal."""

_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_DAYS_MAX: Final = 1_000
"""Beyond it a date says more."""


def relative(stamp: str, now: datetime) -> str:
    """A moment of RFC 3339 as people say it: ``5 min ago``, ``in 3 h``; empty stays empty."""
    if not _STAMP.fullmatch(stamp):
        return stamp
    moment = datetime.fromisoformat(stamp)
    seconds = (now - moment).total_seconds()
    size = int(abs(seconds))
    if size < 1:
        return "now"
    if size > _DAYS_MAX * 86_400:
        return moment.astimezone(UTC).strftime("%Y-%m-%d")
    factor, unit = next((f, u) for f, u in _UNITS if size >= f)
    text = f"{size // factor} {unit}"
    return f"{text} ago" if seconds > 0 else f"in {text}"


def short_stamps(text: str) -> str:
    """Text with its moments to the second, without T and Z."""

    def short(found: re.Match[str]) -> str:
        moment = datetime.fromisoformat(found[0]).astimezone(UTC)
        return moment.strftime("%Y-%m-%d %H:%M:%S")

    return _STAMP.sub(short, text)


def shortened(text: str, width: int) -> str:
    """A text that takes at most ``width`` columns, with ``…`` for what was in its middle."""
    if cell_len(text) <= width:
        return text
    head = (width - 1) // 2
    start = _chopped(text, head)[0]
    end = _chopped(text[::-1], width - 1 - head)[0][::-1]
    # A mark whose letter is left out would be put on the dots.
    while end and not _char_len(end[0]):
        end = end[1:]
    return f"{start}…{end}"


def widths(natural: Sequence[int], rigid: Sequence[bool], total: int, gap: int = GAP) -> list[int]:
    """The widths of columns that together take at most ``total``, gaps included.

    Args:
        natural: what each would take alone.
        rigid: those that are not to be made narrower: numbers, times.
        total: of the terminal.
        gap: between two columns.
    """
    room = total - gap * (len(natural) - 1)
    found = list(natural)
    flexible = [index for index, is_rigid in enumerate(rigid) if not is_rigid]
    excess = sum(found) - room
    while excess > 0:
        widest = max(flexible, key=lambda index: found[index], default=-1)
        if widest < 0 or found[widest] <= WIDTH_MIN:
            break
        others = [found[index] for index in flexible if index != widest]
        # Down to the next widest, or by what is too much.
        step = max(1, min(excess, found[widest] - max(others, default=WIDTH_MIN)))
        found[widest] = max(WIDTH_MIN, found[widest] - step)
        excess = sum(found) - room
    return found


def print_table(
    stream: TextIO,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[bool],
    rigid: Sequence[bool],
) -> None:
    """Write a table.

    Args:
        stream: where to; its width is that of the terminal, if it is one.
        headings: of the columns; broken between words where the cells are narrower.
        rows: the cells.
        right: columns that are aligned right.
        rigid: columns that are not to be made narrower.
    """
    total = shutil.get_terminal_size().columns if stream.isatty() else WIDTH_ELSEWHERE
    needed = [max((cell_len(row[i]) for row in rows), default=0) for i in range(len(headings))]
    natural = [max(size, cell_len(text)) for size, text in zip(needed, headings, strict=True)]
    if sum(natural) + GAP * (len(natural) - 1) > total:
        # Headings are broken between their words first.
        words = [max(cell_len(word) for word in text.split()) for text in headings]
        natural = [max(size, word) for size, word in zip(needed, words, strict=True)]
    gap = GAP
    sizes = widths(natural, rigid, total)
    if sum(sizes) + gap * (len(sizes) - 1) > total:
        gap = 1
        sizes = widths(natural, rigid, total, gap)
    head = [_lines(text, size) for text, size in zip(headings, sizes, strict=True)]
    _write(stream, head, sizes, right, gap)
    stream.write("─" * (sum(sizes) + gap * (len(sizes) - 1)) + "\n")
    for row in rows:
        cells = [_lines(text, size) for text, size in zip(row, sizes, strict=True)]
        _write(stream, cells, sizes, right, gap)


def _write(
    stream: TextIO,
    cells: Sequence[list[str]],
    sizes: Sequence[int],
    right: Sequence[bool],
    gap: int,
) -> None:
    """Write one row, as many lines as its longest cell has."""
    for number in range(max(len(lines) for lines in cells)):
        parts = []
        for lines, size, is_right in zip(cells, sizes, right, strict=True):
            text = lines[number] if number < len(lines) else ""
            blank = " " * (size - cell_len(text))
            parts.append(blank + text if is_right else text + blank)
        stream.write((" " * gap).join(parts).rstrip() + "\n")


def _lines(text: str, size: int) -> list[str]:
    """A cell's text in at most ``LINES_MAX`` lines, between words where that is enough."""
    if cell_len(text) <= size:
        return [text]
    if " " in text and cell_len(text) == len(text):
        lines = textwrap.wrap(text, size, break_on_hyphens=False)
        if len(lines) <= LINES_MAX:
            return lines
    return _chopped(shortened(text, LINES_MAX * size), size)[:LINES_MAX]


def _chopped(text: str, size: int) -> list[str]:
    """A text in lines of at most ``size``, broken wherever they are full."""
    lines = [""]
    for char in text:
        if cell_len(lines[-1]) + cell_len(char) > size:
            lines.append("")
        lines[-1] += char
    return lines


def cell_len(text: str) -> int:
    """Columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_char_len, text))


def _char_len(char: str) -> int:
    if category(char) in {"Mn", "Me"}:  # put on the one before it
        return 0
    return 2 if east_asian_width(char) in {"W", "F"} else 1
