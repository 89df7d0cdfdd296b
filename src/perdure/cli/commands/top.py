"""``perdure top``: the connected sessions with most to do, again and again."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path
from typing import Final, get_args

import click
import msgspec

from perdure.admin.records.watch import TOP_MAX, GetTop, ListSlow, Sort, Top
from perdure.cli.data import data_options
from perdure.cli.output import Column, Output, output_options
from perdure.cli.running_broker import running_broker

COLUMNS: Final = (
    Column("client_id"),
    Column("subs", right=True),
    Column("pending", right=True),
    Column("inflight", right=True),
    Column("rate_out", right=True, tenths=True),
    Column("oldest_s", right=True, tenths=True),
    Column("lag_s", right=True, tenths=True),
    Column("idle_s", right=True, tenths=True),
)

CLEAR: Final = "\x1b[H\x1b[2J"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}".replace(",", "\u202f")


def heading(top: Top, sort: str) -> str:
    """The line above the table."""
    return (
        f"{_number(top.sessions)} connected sessions, {_number(top.rate_in)} messages/s in, "
        f"{_number(top.rate_out)} out; by {sort}"
    )


@click.command()
@click.option("--sort", "-s", type=click.Choice(get_args(Sort)), default="oldest",
              show_default=True, help="The greatest first.")  # fmt: skip
@click.option("--number", "-n", type=click.IntRange(1, TOP_MAX), default=20, show_default=True,
              help="Sessions that are shown.")  # fmt: skip
@click.option("--delay", "-d", "delay_s", type=click.FloatRange(0.5, 3600), default=2.0,
              show_default=True, help="Seconds between two looks.")  # fmt: skip
@click.option("--refreshes", "-r", type=click.IntRange(0), default=0,
              help="End after so many looks; 0 = go on (without a terminal: 2).")  # fmt: skip
@click.option("--slow", is_flag=True, help="Those alone whose delivery is a second behind or more.")
@click.option("-o", "snapshot", type=click.Path(dir_okay=False, writable=True, path_type=Path),
              help="Write the last look to a file, - for standard output, and end.")  # fmt: skip
@data_options
@output_options
def command(
    data: Path, sort: Sort, number: int, delay_s: float, refreshes: int, slow: bool,
    snapshot: Path | None, out: Output,
) -> None:  # fmt: skip
    """Show the connected sessions with most to do.

    rate_out counts QoS 1 and 2 messages; oldest_s is the age of the oldest message that a client
    has not acknowledged; lag_s how far its delivery is behind; idle_s since it was last heard of.

    \b
    Examples:
      perdure top --sort pending -n 10
      perdure top --slow
      perdure top -o - --json
    """
    is_live = snapshot is None and sys.stdout.isatty() and out.format == "table"
    looks = refreshes or (0 if is_live else 2)
    with running_broker(data) as client:
        count = 0
        while True:
            top = client.call(GetTop(sort=sort, limit=number))
            rows = client.call(ListSlow(limit=number)).items if slow else top.items
            found = [msgspec.to_builtins(row) for row in rows]
            count += 1
            if is_live:
                click.echo(CLEAR + heading(top, "lag_s" if slow else sort) + "\n")
                out.rows(COLUMNS, found)
            if count == looks:
                break
            time.sleep(delay_s)
    if is_live:
        return
    if snapshot is None or str(snapshot) == "-":
        out.rows(COLUMNS, found)
        return
    text = io.StringIO()
    Output(out.format, text).rows(COLUMNS, found)
    snapshot.write_text(text.getvalue(), encoding="utf-8")
