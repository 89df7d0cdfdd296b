"""Copies the log into tables, exactly once. Knows no Spark: what runs the tasks is given to it.

A round takes the messages after the last one, up to the newest or a limit::

    state: which tables -> tasks write Parquet files -> columns for what they found
        -> is the log what it was -> for each table: commit files and position
        -> state: how far -> cursor: what the log need not keep for this archive

A table's own position, committed with its files, is what makes it exactly once: the next round
leaves out what is in the table already. The state only says where to begin reading, so that it may
be behind: then the same messages are read again and left out. Which table a message belongs to is
decided before it is read, and kept (``structures``).

Retention may drop messages at any instant. A task's read is refused unless all of the round's range
is there when it is planned, and fails if a part of it goes before it is read: so a round that has
its files has all messages, and one that has not commits nothing. What was dropped before it could
be read is an error, or a gap in the state that is on disk before anything behind it is.

Invariant: a crash between any two steps leaves no table with a message twice, and the next round
brings what is missing. The position never passes a message that is neither in a table nor in a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import msgspec

from perdure.errors import ConfigError, StorageConflict, StorageError
from perdure.limits import OFFSET_MAX
from perdure.pipeline import fields, offsets
from perdure.pipeline.archive_file import VERSION, Gap
from perdure.pipeline.archive_state import (
    ArchiveState,
    Plan,
    dropped,
    load_state,
    save_state,
    together,
)
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.fields import Fields
from perdure.pipeline.jobs.archive_files import (
    WriteTask,
    Written,
    remade,
    write_batches,
    written_files,
)
from perdure.pipeline.jobs.archive_round import Round, Wanted
from perdure.pipeline.lake.stores import LOCAL, Store
from perdure.pipeline.log_index import LogIndex, opened
from perdure.pipeline.log_source import plan, read
from perdure.pipeline.offsets import StreamPosition
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.payload_rules import declared_for
from perdure.pipeline.schema import BY_NAME
from perdure.pipeline.sinks.contract import DataFile, Sink
from perdure.pipeline.structures import extended
from perdure.pipeline.tables import TableSpec, table_schema, with_catch_all, without_fields
from perdure.storage.rocksdb.bulk import Position

__all__ = ["Archive", "Execute", "PositionCallback", "Round", "Wanted", "execute_here"]

ROWS_PER_ROUND: Final = 5_000_000
"""Bounds what is read again after a crash, and the size of a commit."""

ROWS_MIN: Final = 50_000
"""A round is made smaller after one that did not live to its end, but not below this."""

ATTEMPTS: Final = 5
"""A commit is tried again when the table was maintained meanwhile."""


Execute: TypeAlias = Callable[[ReadOptions, WriteTask], Iterable[Written]]
"""Reads the range of the options, which has ``whole``, and runs ``write_batches`` on its batches,
in any number of tasks; returns the files of those that succeeded. Raises StorageError if the range
is not there as a whole."""

PositionCallback: TypeAlias = Callable[[StreamPosition], None]
"""Says how far the archive has got, where retention finds it."""


@final
class Archive:
    """One archive.

    Args:
        options: what is archived: log, filter, where a new archive begins.
        sink: where to.
        wanted: the tables.
        directory: of the state; a path, or a URI of an object store.
        store: how that is reached.
        execute: runs the tasks.
        rows_per_round: most messages of a round.
        on_position: called with the position, on disk already, when it has changed.
        guard: called before each commit; raises ``Fenced`` if somebody else works here now.
    """

    def __init__(
        self,
        options: ReadOptions,
        sink: Sink,
        wanted: Wanted,
        *,
        directory: Path | str,
        execute: Execute,
        store: Store = LOCAL,
        rows_per_round: int = ROWS_PER_ROUND,
        on_position: PositionCallback = lambda _: None,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        self._guard = guard
        self._options = options
        self._sink = sink
        self._wanted = wanted
        self._directory = directory
        self._store = store
        self._execute = execute
        self._rows_per_round = rows_per_round
        self._on_position = on_position
        self._told: StreamPosition | None = None
        self._begun: set[TableSpec] = set()
        self._is_marked: bool = False

    def run_round(self) -> Round:
        """Archive the next messages.

        Raises:
            ConfigError: messages were dropped before they were archived (``DATA_LOSS``), or what
                was asked for does not go with what is there.
        """
        lost: Gap | None = None
        for attempt in range(ATTEMPTS):
            with opened(self._options, patient=True) as files:
                state, gap = self._begun_state(files)
                lost = together(lost, gap)
                start = state.position
                rows = min(state.round_rows or self._rows_per_round, self._rows_per_round)
                end = offsets.latest(files, start, self._options, rows_max=rows, cap=OFFSET_MAX)
                newest = files.newest()
            self._say(start)
            is_last = newest is None or newest.offset <= end.offset
            if end.offset <= start.offset:
                return Round(0, 0, end, is_last, gap=lost, behind_us=_behind_us(newest, end))
            state = self._marked(state, rows)
            task = self._task(state.plans[-1].tables)
            part = self._options.between(start.offset, end.offset)
            try:
                written = list(self._execute(msgspec.structs.replace(part, whole=True), task))
            except StorageError:
                # Planned again: either that says what was dropped, or it is passed over now.
                if attempt == ATTEMPTS - 1 or not self._look(start)[0]:
                    raise
                continue
            is_close, newest = self._look(start)
            done = self._commit(task, written, end)
            grown = min(2 * rows, self._rows_per_round)
            self._save(msgspec.structs.replace(state, position=end, round_rows=grown))
            self._say(end)
            behind_us = _behind_us(newest, end)
            return msgspec.structs.replace(
                done, is_last=is_last, gap=lost, behind_us=behind_us, is_close=is_close
            )
        raise AssertionError("the last attempt returns or raises")

    def _marked(self, state: ArchiveState, rows: int) -> ArchiveState:
        """The state with what is to be taken at once if this process does not live to the end of
        its first round: a process that is killed again and again (for its memory, by whoever starts
        it anew) would begin the same round for ever."""
        if not self._is_marked:
            self._is_marked = True
            fewer = max(rows // 4, min(rows, ROWS_MIN))
            state = msgspec.structs.replace(state, round_rows=fewer)
            self._save(state)
        return state

    def _begun_state(self, files: LogIndex) -> tuple[ArchiveState, Gap | None]:
        """Where this round begins, and what was dropped before that; both are safe on disk."""
        state = self._planned(files, self._state(files))
        offsets.check(files, state.position, self._options)
        gap = dropped(files, state.position)
        if gap is not None:
            oldest = files.generations()[0]
            behind = offsets.position(files.database_id, oldest.generation, gap.until_offset)
            state = msgspec.structs.replace(state, position=behind, gaps=(*state.gaps, gap))
            self._save(state)
        return state, gap

    def _look(self, start: StreamPosition) -> tuple[bool, Position | None]:
        """The log after a read: whether what follows ``start`` has begun to go, and its end.

        Raises:
            ConfigError: it is another log.
        """
        with opened(self._options, patient=True) as files:
            offsets.check_same(files, start, self._options)
            return dropped(files, start) is not None, files.newest()

    def _save(self, state: ArchiveState) -> None:
        save_state(self._directory, state, self._store)

    def _say(self, position: StreamPosition) -> None:
        if position != self._told:
            self._on_position(position)
            self._told = position

    # -- planning --------------------------------------------------------------------------

    def _state(self, files: LogIndex) -> ArchiveState:
        state = load_state(self._directory, self._store)
        wanted = self._wanted
        if state is None:
            # Kept before anything is written: where an archive begins may be an age (2h), which
            # has moved on when a first round that failed is tried again.
            start = offsets.initial(files, self._options)
            oldest = files.generations()[0].since_offset - 1
            left = (Gap(oldest, start.offset),) if start.offset > oldest else ()
            filter_sets = self._options.filter_sets
            return ArchiveState(
                VERSION,
                wanted.format,
                wanted.catalog,
                filter_sets,
                start,
                (),
                left,
                wanted.namespace,
            )
        there = (state.format, state.catalog, state.namespace)
        if there != (wanted.format, wanted.catalog, wanted.namespace):
            raise ConfigError(
                f"{self._directory} holds an archive in the format {state.format}",
                path="to",
                hint="name that format and its catalog, or another directory",
            )
        if state.filter_sets != self._options.filter_sets:
            raise ConfigError(
                f"{self._directory} holds an archive of other topics",
                path="topic",
                hint="name the topics that it was begun with, or another directory",
            )
        return state

    def _planned(self, files: LogIndex, state: ArchiveState) -> ArchiveState:
        """The state with the tables for what follows, safe on disk, and the tables made."""
        last = state.plans[-1].tables if state.plans else ()
        specs = self._specs(files, last)
        if specs != last:
            self._begin(last)
            is_complete = all(
                self._sink.position(spec.name) <= state.position.offset for spec in last
            )
            if not last or is_complete:
                self._begin(specs)
                if not last:
                    self._check_new(specs, state.position)
                added = Plan(state.position.offset, specs)
                state = msgspec.structs.replace(state, plans=(*state.plans, added))
                self._save(state)
        # Else a round was left between two commits: its tables must be the same again.
        self._begin(state.plans[-1].tables)
        return state

    def _specs(self, files: LogIndex, last: Sequence[TableSpec]) -> tuple[TableSpec, ...]:
        """The tables that are wanted now."""
        wanted = self._wanted
        names = {spec.name for spec in wanted.tables}
        plan = wanted.tables
        if wanted.learns:
            # Tables that were planned once stay: rows of a topic do not move without need.
            plan += tuple(spec for spec in last if spec.filter and spec.name not in names)
            structures = [
                pattern
                for info in files.generations()
                for pattern in files.patterns(info.generation)
            ]
            plan = extended(plan, structures)
        return with_catch_all(plan if wanted.has_fields else without_fields(plan))

    def _begin(self, specs: Iterable[TableSpec]) -> None:
        for spec in specs:
            if spec not in self._begun:
                self._sink.begin(spec.name, table_schema(spec))
                self._begun.add(spec)

    def _check_new(self, specs: Sequence[TableSpec], start: StreamPosition) -> None:
        """Refuse to plan anew for tables that were filled by a plan which is lost."""
        filled = [s.name for s in specs if self._sink.position(s.name) > start.offset]
        if filled and self._wanted.learns:
            raise ConfigError(
                f"{self._directory} has tables, but no archive.json that says what is in them",
                path="to",
                hint="bring it back; or name all tables yourself, with --no-learned",
            )

    def _task(self, specs: tuple[TableSpec, ...]) -> WriteTask:
        # Positions first: a catalog in a server is asked once for each table.
        positions = tuple(self._sink.position(spec.name) for spec in specs)
        known = tuple(self._sink.fields(spec.name, table_schema(spec)) for spec in specs)
        layouts = tuple(self._sink.layout(spec.name) for spec in specs)
        return WriteTask(
            specs,
            tuple(self._sink.data_directory(spec.name) for spec in specs),
            positions,
            known,
            tuple(self._sink.store(spec.name) for spec in specs),
            layouts,
            tuple(
                declared_for(spec, self._wanted.payloads) | layout.fixed(own)
                for spec, own, layout in zip(specs, known, layouts, strict=True)
            ),
            self._wanted.payloads,
        )

    # -- committing ------------------------------------------------------------------------

    def _commit(self, task: WriteTask, written: list[Written], end: StreamPosition) -> Round:
        rows = files = misfits = 0
        tables: list[str] = []
        columns: list[str] = []
        for number, spec in enumerate(task.specs):
            own = [each for each in written if each.file.table == spec.name]
            if not own:
                continue
            known, expected = task.known[number], task.positions[number]
            seen = fields.total(each.seen for each in own)
            grown = fields.grown(known, seen, task.declared[number])
            wider = [name for name, kind in known.items() if grown[name] != kind]
            schema = table_schema(spec, grown)
            if wider:
                self._widen(task, number, grown)
            if grown.keys() != known.keys():
                self._begun.discard(spec)  # a new column may be one that is to divide it
            added = [file for each in own for file in _fitting(each, task, number, grown)]
            self._add(spec.name, added, schema, expected=expected, position=end.offset)
            tables.append(spec.name)
            columns += [f"{spec.name}.{name}" for name in grown if grown[name] != known.get(name)]
            rows += sum(file.rows for file in added)
            files += len(added)
            misfits += fields.misfits(seen, grown)
        return Round(rows, files, end, False, tuple(tables), tuple(columns), misfits)

    def _add(
        self, table: str, files: list[DataFile], schema: Any, *, expected: int, position: int
    ) -> None:
        """Commit; again if only the files of the table were put together meanwhile."""
        for attempt in range(ATTEMPTS):
            self._guard()
            try:
                self._sink.commit(table, files, schema=schema, expected=expected, position=position)
                return
            except StorageConflict:
                if attempt == ATTEMPTS - 1 or self._sink.position(table) != expected:
                    raise

    def _widen(self, task: WriteTask, number: int, grown: Fields) -> None:
        """Make the files of a table again for wider columns; a commit of its own."""
        self._guard()
        spec = task.specs[number]
        known = self._sink.fields(spec.name, table_schema(spec))
        widened = {name: kind for name, kind in grown.items() if name in known}
        old = self._sink.files(spec.name)
        new = [
            file for each in old for file in _again(each.path, task, number, widened, decodes=False)
        ]
        self._sink.replace(
            spec.name,
            old,
            new,
            schema=table_schema(spec, widened),
            expected=task.positions[number],
        )


def _fitting(each: Written, task: WriteTask, number: int, grown: Fields) -> list[DataFile]:
    """A file as it is, or made again if the table has other columns for its fields."""
    if fields.is_within(each.fields, grown):
        return [each.file]
    made = _again(each.file.path, task, number, grown)
    task.stores[number].delete(each.file.path)
    return made


def _again(
    path: str, task: WriteTask, number: int, known: Fields, *, decodes: bool = True
) -> list[DataFile]:
    return remade(
        path,
        task.specs[number],
        known,
        task.directories[number],
        store=task.stores[number],
        layout=task.layouts[number],
        rules=task.rules,
        decodes=decodes,
    )


def _behind_us(newest: Position | None, end: StreamPosition) -> int:
    return 0 if newest is None else max(0, newest.offset - end.offset)


def execute_here(options: ReadOptions, task: WriteTask) -> list[Written]:
    """Run the tasks of a round in this process, one after the other."""
    with opened(options) as files:
        parts = plan(files, options, Narrowing())
    return [
        file
        for part in parts
        for result in write_batches(task, read(part, list(BY_NAME)))
        for file in written_files(result.to_pylist())
    ]
