"""Rounds of an archive that go on by themselves: over outages of catalog, store and log.

What is away is waited for: the tables are let go and opened anew before each further attempt, so
that nothing of a connection that broke is used again. Because every table knows its position, an
attempt whose end nobody heard of is repeated without harm (``archive``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, final

import msgspec

from perdure.errors import StorageConflict, StorageTimeout, StorageUnavailable
from perdure.pipeline.jobs.archive import (
    ROWS_PER_ROUND,
    Archive,
    Execute,
    PositionCallback,
    Round,
    Wanted,
)
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.log_index import opened
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.sinks.contract import Sink
from perdure.pipeline.sinks.opening import open_sink

PAUSE_FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
"""Between two attempts while something is away; doubled from the first to the last."""

AWAY: Final = (StorageUnavailable, StorageTimeout, StorageConflict)
"""Errors that an attempt later may not have."""

Wait: TypeAlias = Callable[[float], bool]
"""Waits for so many seconds; True = stop now."""


class ArchivePlan(msgspec.Struct, frozen=True):
    """All that an archive is asked for.

    Attributes:
        options: the log, and what of it.
        lake: where to.
        wanted: the tables.
        rows_per_round: most messages of a commit.
    """

    options: ReadOptions
    lake: Lake
    wanted: Wanted
    rows_per_round: int = ROWS_PER_ROUND


def wanted_of(lake: Lake, wanted: Wanted) -> Wanted:
    """What is wanted of tables, with the names that the lake has."""
    return msgspec.structs.replace(
        wanted, format=lake.format, catalog=lake.catalog or None, namespace=lake.namespace
    )


@final
class ArchiveRuns:
    """An archive that is opened when it is needed.

    Args:
        plan: what it does.
        execute: runs its tasks.
        on_position: see ``Archive``.
        on_away: is told why it waits, once for each reason.
        guard: see ``Archive``.
        wait: between attempts.
    """

    def __init__(
        self,
        plan: ArchivePlan,
        *,
        execute: Execute,
        on_position: PositionCallback = lambda _: None,
        on_away: Callable[[Exception], None] = lambda _: None,
        wait: Wait,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        self._plan = plan
        self._execute = execute
        self._on_position = on_position
        self._on_away = on_away
        self._wait = wait
        self._guard = guard
        self._sink: Sink | None = None
        self._archive: Archive | None = None

    def run_round(self, *, patience_s: float | None = None) -> Round | None:
        """One round; None = told to stop while it waited.

        Args:
            patience_s: how long what is away is waited for, about; None = for ever.

        Raises:
            StorageError: it is away for longer.
            ConfigError: waiting does not help.
        """
        pause_s, waited_s, told = PAUSE_FIRST_S, 0.0, ""
        while True:
            try:
                return self._opened().run_round()
            except AWAY as error:
                self.close()
                if patience_s is not None and waited_s >= patience_s:
                    raise
                if error.message != told:
                    told = error.message
                    self._on_away(error)
            if self._wait(pause_s):
                return None
            waited_s, pause_s = waited_s + pause_s, min(pause_s * 2, PAUSE_MAX_S)

    def close(self) -> None:
        """Let go of tables and connections."""
        if self._sink is not None:
            self._sink.close()
        self._sink = self._archive = None

    def _opened(self) -> Archive:
        if self._archive is None:
            plan = self._plan
            with opened(plan.options) as index:
                database_id = index.database_id
            plan.lake.store.make_directory(plan.lake.place)
            self._sink = open_sink(plan.lake, database_id)
            self._archive = Archive(
                plan.options,
                self._sink,
                wanted_of(plan.lake, plan.wanted),
                directory=plan.lake.place,
                store=plan.lake.store,
                execute=self._execute,
                rows_per_round=plan.rows_per_round,
                on_position=self._on_position,
                guard=self._guard,
            )
        return self._archive
