"""How ``perdure bench`` shows itself: a line of progress while it runs, tables at its end."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from perdure.bench import report
from perdure.bench.expectations import Verdict
from perdure.bench.result import Result
from perdure.bench.stopwatch import Progress
from perdure.cli.output import Column, Output

_LEFT: Final = {"phase", "latency", "broker", "scenario"}


@contextmanager
def progress(*, wanted: bool) -> Iterator[Progress | None]:
    """A progress line on standard error if it is a terminal; None = tell nobody."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("start", total=1.0, detail="")
        shown = ""

        def update(what: str, done: float, detail: str) -> None:
            nonlocal shown
            if what != shown:
                shown = what
                bars.reset(task)
            bars.update(task, description=what, completed=done, detail=detail)

        yield update


def show(out: Output, result: Result, verdicts: Sequence[Verdict]) -> None:
    """Print a result: one JSON object, or the header, tables, balance and notes."""
    if out.is_json:
        record = msgspec.to_builtins(result)
        record["expectations"] = [msgspec.to_builtins(verdict) for verdict in verdicts]
        out.record(record)
        return
    out.text(f"{report.header(result)}\n\n")
    out.rows(columns(report.PHASE_FIELDS), report.phase_rows(result))
    rows = report.latency_rows(result)
    if rows:
        out.text("\n")
        out.rows(columns(report.LATENCY_FIELDS), rows)
    out.text(f"\n{report.balance(result)}\n")
    for line in report.notes(result, verdicts):
        out.text(f"{line}\n")


def columns(fields: Sequence[str]) -> tuple[Column, ...]:
    """Columns for rows of the report: words to the left, numbers to the right."""
    return tuple(Column(field, right=field not in _LEFT) for field in fields)
