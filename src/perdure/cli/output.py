"""Rows and records on standard output: a table for people, stable fields for programs.

``auto`` is a table on a terminal and tab-separated lines otherwise. A row is a mapping from field
names (those of the API) to plain values; a ``Column`` says which fields a table shows. JSON has
all fields. Data goes to standard output; everything else to standard error.
"""

from __future__ import annotations

import csv
import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TextIO, TypeAlias, TypeVar, final

import click
import msgspec

Format: TypeAlias = Literal["auto", "table", "tsv", "json", "jsonl", "csv"]
Row: TypeAlias = Mapping[str, Any]

FORMATS: tuple[Format, ...] = ("auto", "table", "tsv", "json", "jsonl", "csv")

_F = TypeVar("_F", bound=Callable[..., Any])


@final
class Column(msgspec.Struct, frozen=True):
    """A field that tables show.

    Attributes:
        field: its name; also the heading, with spaces.
        right: aligned right, for numbers.
    """

    field: str
    right: bool = False


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
                rows,
                lambda row: "\t".join(cell(row.get(col.field)) for col in columns) + "\n",
            )
        return self._table(columns, rows)

    def record(self, record: Row) -> None:
        """Write one thing: an object in JSON, else a line for each field."""
        if self.is_json:
            self._stream.write(f"{encode(record)}\n")
            return
        fields = [{"field": name, "value": cell(value)} for name, value in record.items()]
        self.rows((Column("field"), Column("value")), fields)

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
        # rich takes 50 ms to import; only tables need it.
        from rich.box import SIMPLE
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE, pad_edge=False)
        for column in columns:
            table.add_column(
                column.field.replace("_", " "),
                justify="right" if column.right else "left",
                overflow="fold",
            )
        for row in rows:
            # Text, not str: a topic may look like markup.
            table.add_row(*(Text(cell(row.get(column.field))) for column in columns))
        width = None if self._stream.isatty() else 200
        Console(file=self._stream, width=width, highlight=False).print(table)
        return table.row_count


def encode(value: object) -> str:
    """A value as one line of JSON."""
    return msgspec.json.encode(value).decode()


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


def printable(text: str) -> str:
    """Text with control characters and lone surrogates written as escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode()
        for char in text
    )


def error_line(message: str, *, hint: str = "") -> None:
    """Tell what went wrong on standard error: one line, and what to do."""
    click.echo(f"perdure: {printable(message)}", err=True)
    if hint:
        click.echo(f"hint: {printable(hint)}", err=True)
