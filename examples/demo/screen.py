"""What the demo shows: progress bars on a terminal, plain lines elsewhere, a closing table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from examples.demo.plan import Subscribing
from tests.support.delivery import Verdict

PLAIN_STEP = 10
"""Without a terminal, a phase prints a line for each tenth."""


class Screen:
    """The demo's output. Use as a context manager.

    Args:
        plain: no bars, even on a terminal.
    """

    def __init__(self, *, plain: bool = False) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            self.console = Console(width=100, highlight=False)
        self._bars = self.console.is_terminal and not plain
        self._progress = Progress(
            TextColumn("  {task.description:<12}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>9,.0f}/s"),
            console=self.console,
            disable=not self._bars,
        )
        self._begun = time.monotonic()
        self._phases: dict[str, _Phase] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """One line of the story, with the seconds since the start."""
        self.console.print(f"[dim]{time.monotonic() - self._begun:6.1f} s[/dim]  {text}")

    def show(self, phase: str, done: int, total: int) -> None:
        """How far a phase is; repeats and what was not surely owed may exceed the total."""
        now = time.monotonic()
        state = self._phases.get(phase)
        if state is None:
            task = self._progress.add_task(phase, total=total, rate=0.0)
            state = self._phases[phase] = _Phase(task, now)
        rate = done / (now - state.begun) if now > state.begun else 0.0
        self._progress.update(state.task, completed=done, total=total, rate=rate)
        tenth = done * PLAIN_STEP // total if total else PLAIN_STEP
        if not self._bars and tenth > state.tenth:
            state.tenth = tenth
            self.say(f"  {phase} {done:,} of {total:,}  ({rate:,.0f}/s)")

    def table(self, rows: Sequence[tuple[Subscribing, Verdict]]) -> None:
        """The closing table: one row for each subscriber."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for heading in ("session", "client", "QoS"):
            table.add_column(heading, no_wrap=True)
        for heading in ("owed", "received", "lost", "twice", "order", "again"):
            table.add_column(heading, justify="right", no_wrap=True)
        for plan, verdict in rows:
            table.add_row(
                plan.name,
                plan.client,
                str(plan.qos),
                f"{verdict.expected:,}",
                f"{verdict.received:,}",
                _mark(verdict.lost),
                _mark(verdict.repeated),
                _mark(verdict.out_of_order),
                f"{verdict.redelivered:,}",
            )
        self.console.print()
        self.console.print(table)
        self.console.print(
            "[dim]twice: at QoS 2; order: out of order; again: at QoS 1, where a crash may "
            "repeat a message.\nA replay may also bring what was under way at its start.[/dim]"
        )

    def promise(self, text: str, breaches: int) -> None:
        """One promise and how often it was broken."""
        mark = "[red]BROKEN[/red]" if breaches else "[green]kept  [/green]"
        self.console.print(f"  {mark}  {text}: {breaches:,}")


class _Phase:
    """A bar, or the tenths printed so far."""

    def __init__(self, task: TaskID, begun: float) -> None:
        self.task = task
        self.begun = begun
        self.tenth = 0


def _mark(count: int) -> str:
    return f"[red]{count:,}[/red]" if count else "0"
