"""Rows and records on standard output: a table for people, stable fields for programs.

``auto`` is a table on a terminal and tab-separated lines otherwise. A row is a mapping from field
names (those of the API) to plain values; a ``Column`` says which fields a table shows. JSON has
all fields. Data goes to standard output; everything else to standard error.
"""

from __future__ import annotations

import csv
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, TypeAlias, TypeVar, final

import click
import msgspec

from perdure.clock import SystemClock
from perdure.observe.printable import printable, printable_json

Format: TypeAlias = Literal["auto", "table", "tsv", "json", "jsonl", "csv"]
Row: TypeAlias = Mapping[str, Any]

FORMATS: tuple[Format, ...] = ("auto", "table", "tsv", "json", "jsonl", "csv")

LISTED_MAX = 50
"""Items of a list in a record that are shown to people."""

_F = TypeVar("_F", bound=Callable[..., Any])


@final
class Column(msgspec.Struct, frozen=True):
    """A field that tables show.

    Attributes:
        field: its name; also the heading, with spaces.
        right: aligned right, for numbers.
        tenths: seconds and rates, which a table shows with one decimal, each below the other.
        time: a moment, which a table shows as the time since or until then.
        prose: sentences of ours, whose moments a table shows to the second.
    """

    field: str
    right: bool = False
    tenths: bool = False
    time: bool = False
    prose: bool = False

    @property
    def heading(self) -> str:
        """What stands above it in a table."""
        name = self.field.removesuffix("_at") if self.time else self.field
        return name.replace("_", " ")


def output_options(command: _F) -> _F:
    """Add ``--output`` and ``--json`` to a command, which gets an ``Output`` as ``out``."""

    @click.option(
        "--output",
        "format_name",
        type=click.Choice(FORMATS),
        default="auto",
        show_default=True,
        help="How to print: auto is a table on a terminal, else tsv.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Short for --output json.")
    @functools.wraps(command)
    def with_output(*args: Any, format_name: Format, as_json: bool, **kwargs: Any) -> Any:
        out = Output("json" if as_json else format_name, sys.stdout)
        return command(*args, out=out, **kwargs)

    return with_output  # type: ignore[return-value]


@final
class Output:
    """Writes what a command found.

    Args:
        format: one of ``FORMATS``.
        stream: standard output.
    """

    def __init__(self, format: Format, stream: TextIO) -> None:  # noqa: A002 - the option's name
        self._stream = stream
        self.format: Format = format
        if format == "auto":
            self.format = "table" if stream.isatty() else "tsv"

    @property
    def is_json(self) -> bool:
        """Whether a program reads the output as JSON."""
        return self.format in {"json", "jsonl"}

    def rows(self, columns: Sequence[Column], rows: Iterable[Row]) -> int:
        """Write rows as they come (a table must see them all first); returns how many."""
        if self.format == "json":
            return self._json_array(rows)
        if self.format == "jsonl":
            return self._each(rows, lambda row: f"{encode(row)}\n")
        if self.format == "csv":
            writer = csv.writer(self._stream, lineterminator="\n")
            writer.writerow([column.field for column in columns])
            count = 0
            for row in rows:
                writer.writerow([cell(row.get(column.field)) for column in columns])
                count += 1
            return count
        if self.format == "tsv":
            return self._each(
                rows, lambda row: "\t".join(cell(row.get(col.field)) for col in columns) + "\n"
            )
        return self._table(columns, rows)

    def record(self, record: Row) -> None:
        """Write one thing: an object in JSON, else a line for each field."""
        if self.is_json:
            self._stream.write(f"{encode(record)}\n")
            return
        columns = (Column("field"), Column("value"))
        if self.format == "table":
            self.rows(columns, _lines_of(record))
            return
        self.rows(columns, ({"field": name, "value": value} for name, value in record.items()))

    def text(self, text: str) -> None:
        """Write text as it is."""
        self._stream.write(text)

    def _each(self, rows: Iterable[Row], line: Callable[[Row], str]) -> int:
        count = 0
        for row in rows:
            self._stream.write(line(row))
            count += 1
        return count

    def _json_array(self, rows: Iterable[Row]) -> int:
        # Written piece by piece: a million rows need no more memory than one.
        count = 0
        for row in rows:
            self._stream.write(f"{',' if count else '['}\n{encode(row)}")
            count += 1
        self._stream.write("\n]\n" if count else "[]\n")
        return count

    def _table(self, columns: Sequence[Column], rows: Iterable[Row]) -> int:
        from perdure.cli.table import print_table

        now = _now()
        found = [[_shown(row.get(col.field), col, now) for col in columns] for row in rows]
        print_table(
            self._stream,
            [column.heading for column in columns],
            found,
            right=[column.right for column in columns],
            rigid=[column.right or column.time for column in columns],
        )
        return len(found)


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now_us() / 1_000_000, UTC)


def _shown(value: object, column: Column, now: datetime) -> str:
    """A value as a table shows it."""
    from perdure.cli.table import relative, short_stamps

    if column.tenths and isinstance(value, float):
        return f"{value:.1f}"
    text = cell(value)
    if column.time:
        return relative(text, now)
    return short_stamps(text) if column.prose else text


def _lines_of(record: Row) -> Iterator[Row]:
    """The fields of a record for people: what is in a list or another record has its own line."""
    from perdure.cli.table import relative, short_stamps

    now = _now()
    for name, value in record.items():
        if isinstance(value, Mapping):
            for inner, inside in value.items():
                yield {"field": f"{name}.{inner}", "value": inside}
        elif isinstance(value, list | tuple) and value:
            for number, item in enumerate(value[:LISTED_MAX]):
                yield {"field": "" if number else name, "value": item}
            if len(value) > LISTED_MAX:
                yield {"field": "", "value": f"and {len(value) - LISTED_MAX} more"}
        elif isinstance(value, str) and (since := relative(value, now)) != value:
            yield {"field": name, "value": f"{short_stamps(value)} ({since})"}
        else:
            yield {"field": name, "value": value}


def encode(value: object) -> str:
    """A value as one line of JSON."""
    return printable_json(msgspec.json.encode(value).decode())


def cell(value: object) -> str:
    """A value as text that stays in its cell: no tab, line end or terminal control."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(cell(item) for item in value)
    if isinstance(value, Mapping):
        return encode(value)
    return printable(str(value))


def error_line(message: str, *, hint: str = "") -> None:
    """Tell what went wrong on standard error: one line, and what to do."""
    click.echo(f"perdure: {printable(message)}", err=True)
    if hint:
        click.echo(f"hint: {printable(hint)}", err=True)
