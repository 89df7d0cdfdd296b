"""The Spark data source ``perdure``, batch and streaming.

Spark imports this module to look for sources and in every worker, so what reads is imported when
it is needed. All work is in modules that know no Spark; here are Spark's names for it, and its
errors: one sentence with a hint, not a traceback of ours.

Conditions narrow a read only where the option ``pushdown`` is ``once``. Spark 4.3.0 keeps what a
reader planned after it took filters for every later scan of the same ``load()``, whatever the
filters of that scan are: ``log.where(a).union(log.where(b))`` would be ``a`` twice, in silence.
The options ``topic``, ``from`` and ``until`` belong to one ``load()`` and are always safe.

Invariant: a filter that Spark pushes down only narrows what is read; Spark tries it again.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from perdure.errors import PerdureError

if TYPE_CHECKING:
    from perdure.pipeline.conditions import Narrowing
    from perdure.pipeline.history import AnyPart
    from perdure.pipeline.log_index import LogIndex
    from perdure.pipeline.looks import Looks
    from perdure.pipeline.options import ReadOptions

T = TypeVar("T")

_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""The worker that pushes filters down. A reader that could take filters is refused by Spark where
``spark.sql.python.filterPushdown.enabled`` is off, as it is by default; so only this worker, which
runs when it is on, is given one."""


_READ_ONLY: Final = "perdure: the log is read only here (publish to the broker to write to it)"

_SPARKS_OWN: Final = "pyspark.daemon"
"""The main module of Spark's Python processes."""

_modules_settled = 0
"""Modules there were when this process settled last."""


class SourceError(RuntimeError):
    """What went wrong, with what to do: Spark shows the text alone."""


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turn errors of ours into ones that read well in Spark."""
    try:
        yield
    except PerdureError as error:
        hint = f" ({error.hint})" if error.hint else ""
        raise SourceError(f"perdure: {error.message}{hint}") from None


class PerdureDataSource(DataSource):
    """``spark.read.format("perdure").load("perdure-data")``."""

    @classmethod
    def name(cls) -> str:
        """The word for ``format``."""
        return "perdure"

    def schema(self) -> str:
        """All columns, in Spark's DDL."""
        from perdure.pipeline.schema import ddl

        found = ddl()
        _settle()
        return found

    def reader(self, schema: Any) -> DataSourceReader:
        """A batch reader of the columns of ``schema``."""
        from perdure.errors import ConfigError

        with _told():
            options = self._options()
            if options.starts_latest:
                raise ConfigError(
                    "startingOffsets latest is for streams: a batch would read nothing",
                    path="startingOffsets",
                )
            pushes = options.pushdown and _PUSHDOWN_WORKER in sys.modules
            return (PushdownReader if pushes else LogReader)(options, _columns(schema))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """A stream reader of the columns of ``schema``."""
        with _told():
            return LogStreamReader(self._options(), _columns(schema))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """None: messages come from publishers."""
        raise SourceError(_READ_ONLY)

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        """None, likewise."""
        raise SourceError(_READ_ONLY)

    def _options(self) -> ReadOptions:
        from perdure.clock import SystemClock
        from perdure.pipeline.options import parse_options

        return parse_options(dict(self.options), SystemClock().now_us(), environ=os.environ)


class LogPartition(InputPartition):
    """One part of a read, as it travels to a worker."""

    def __init__(self, part: AnyPart) -> None:
        self.part = part


class LogReader(DataSourceReader):
    """Reads a range of the log once.

    Args:
        options: checked.
        columns: wanted, in order.
    """

    def __init__(self, options: ReadOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._narrowing: Narrowing | None = None

    def partitions(self) -> list[LogPartition]:
        """The parts, of about equal size."""
        from perdure.pipeline.conditions import Narrowing
        from perdure.pipeline.history import plan

        with _told(), _planned_on(self._options) as files:
            parts = plan(files, self._options, self._narrowing or Narrowing(), shares=True)
        _settle()
        return [LogPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of a part."""
        if isinstance(partition, LogPartition):
            return _read(partition.part, self._columns, self._options)
        # Spark's own stand-in where there are no parts: nothing matches.
        return iter(())


class PushdownReader(LogReader):
    """Reads less where conditions allow it."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Take note of the conditions, and leave all of them to Spark too."""
        from perdure.pipeline.conditions import Condition, narrow

        self._narrowing = narrow(
            Condition(type(each).__name__, each.attribute[0], getattr(each, "value", None))
            for each in filters
            if len(getattr(each, "attribute", ())) == 1
        )
        return filters


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the log as it grows.

    Args:
        options: checked.
        columns: wanted, in order.

    Raises:
        ConfigError: ``until`` was given.
    """

    def __init__(self, options: ReadOptions, columns: list[str]) -> None:
        from perdure.errors import ConfigError
        from perdure.limits import OFFSET_MAX
        from perdure.pipeline.kafka_options import ENDS

        if options.until_offset != OFFSET_MAX:
            names = ", ".join(ENDS)
            raise ConfigError(f"{names} are for batch reads: a stream has no end", path="until")
        self._options = options
        self._columns = columns
        self._cap = OFFSET_MAX
        self._newest: dict[str, Any] | None = None
        self._kept: LogIndex | None = None
        self._looks: Looks | None = None

    def __getstate__(self) -> dict[str, Any]:
        """As it travels to workers, which only read."""
        return {**self.__dict__, "_kept": None, "_looks": None}

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        from perdure.pipeline import offsets

        with _told():
            if self._options.remote is None:
                return self._ask(lambda files: offsets.initial(files, self._options).to_dict())
            with _opened(self._options) as files:
                return offsets.initial(files, self._options).to_dict()

    def getDefaultReadLimit(self) -> Any:
        """What ``maxRowsPerTrigger`` says."""
        rows_max = self._options.rows_per_trigger
        return ReadMaxRows(rows_max) if rows_max else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """Where the next micro-batch ends."""
        from perdure.limits import OFFSET_MAX
        from perdure.pipeline import history, offsets

        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        looks = self._looking()
        if self._cap == OFFSET_MAX:
            looks.pause(start)

        def look(files: LogIndex) -> dict[str, Any]:
            begin = offsets.parse_position(start)
            end = history.latest(files, begin, self._options, rows_max=rows_max, cap=self._cap)
            newest = files.newest()
            if newest is not None:
                self._newest = offsets.position(files.database_id, *newest).to_dict()
            # What a broker said goes on to the plan: it reaches as far, and costs it no other
            # view.
            self._kept = None if self._options.remote is None else files
            found = end.to_dict()
            at_newest = newest is None or end.offset >= newest.offset
            looks.ended(start, found, at_newest=at_newest)
            return found

        with _told():
            found = self._ask(look)
        remote = self._options.remote
        if found == start and remote is not None and remote.others:
            # A node that reads the cluster's log no more answers all the same.
            self._options = self._options.at(remote.turned())
        return found

    def _ask(self, question: Callable[[LogIndex], T]) -> T:
        return self._looking().ask(self._options, question)

    def _looking(self) -> Looks:
        from perdure.pipeline.looks import Looks

        if self._looks is None:
            self._looks = Looks()
        return self._looks

    def stop(self) -> None:
        """Let go of the directory."""
        if self._looks is not None:
            self._looks.close()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the log reaches, so that the lag can be shown; as the last batch saw it."""
        from perdure.pipeline import offsets

        if self._newest is not None:
            return self._newest

        def look(files: LogIndex) -> dict[str, Any] | None:
            newest = files.newest()
            if newest is None:
                return None
            return offsets.position(files.database_id, *newest).to_dict()

        with _told():
            return self._ask(look)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take the end of the log as it is now for the end of the query."""
        from perdure.pipeline import history

        with _told():
            self._cap = self._ask(history.reached)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[LogPartition]:
        """The parts of a micro-batch, the same whenever it is planned."""
        from perdure.limits import OFFSET_MAX
        from perdure.pipeline import history, offsets, passed_over
        from perdure.pipeline.conditions import Narrowing

        def plan(files: LogIndex) -> list[AnyPart]:
            begin, stop = offsets.parse_position(start), offsets.parse_position(end)
            offsets.check_reach(files, stop.offset, self._options)
            history.check(files, begin, self._options)
            passed_over.tell_unread(files, begin, stop, self._options)
            bounds = Narrowing(after_offset=begin.offset, until_offset=stop.offset)
            # ``from`` says where a query began. As an age (2h) it is later at every restart, and
            # must not cut what the positions say.
            anywhere = self._options.between(0, OFFSET_MAX)
            return history.plan(files, anywhere, bounds)

        with _told():
            parts = self._planned(end, plan)
        return [LogPartition(part) for part in parts]

    def _planned(
        self, end: dict[str, Any], plan: Callable[[LogIndex], list[AnyPart]]
    ) -> list[AnyPart]:
        """What is planned on the log, at least up to where a micro-batch ends."""
        from perdure.errors import StorageUnavailable
        from perdure.pipeline.offsets import parse_position

        kept, self._kept = self._kept, None
        newest = None if kept is None else kept.newest()
        if kept is not None and newest is not None and parse_position(end).offset <= newest.offset:
            try:
                return plan(kept)
            except StorageUnavailable:
                if not self._options.is_of_several:
                    raise
        return self._ask(plan)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of a part."""
        assert isinstance(partition, LogPartition)
        return _read(partition.part, self._columns, self._options)


def _read(part: AnyPart, columns: list[str], options: ReadOptions) -> Iterator[Any]:
    from perdure.pipeline.seam import read

    _settle()
    with _told():
        yield from read(part, columns, options)


def _settle() -> None:
    """Spare a process of Spark's a search of all that was imported.

    Spark has its Python processes collect garbage after each task and each step of planning. With
    pyarrow and pandas in memory that takes 20 ms, a fifth of what a small query takes in all.
    Python counts what is frozen one by one, 5 ms each time, so what was imported is counted here.
    """
    global _modules_settled
    main = sys.modules["__main__"].__spec__
    if main is None or main.name != _SPARKS_OWN or len(sys.modules) == _modules_settled:
        return
    _modules_settled = len(sys.modules)
    gc.freeze()


def _planned_on(options: ReadOptions) -> AbstractContextManager[LogIndex]:
    """The log as it is now; of a directory a view is kept, for Spark keeps the process."""
    from perdure.pipeline.log_source import followed

    return followed(options.path) if options.remote is None else _opened(options)


@contextlib.contextmanager
def _opened(options: ReadOptions, *, patient: bool = False) -> Iterator[LogIndex]:
    """The log; a stream that runs waits for a broker that is away, a query that begins does not."""
    from perdure.pipeline.log_index import opened

    with opened(options, patient=patient) as index:
        yield index


def _columns(schema: Any) -> list[str]:
    """The names of a Spark schema whose columns are ours.

    Raises:
        ConfigError: a column is unknown or has another type.
    """
    from perdure.errors import ConfigError
    from perdure.pipeline.schema import BY_NAME, arrow_schema

    names = [field.name for field in schema.fields]
    arrow_schema(names)
    for field in schema.fields:
        expected = BY_NAME[field.name].spark
        if field.dataType.simpleString() != expected:
            raise ConfigError(
                f"column {field.name} is {expected}, not {field.dataType.simpleString()}",
                path=field.name,
                hint="cast it in a select",
            )
    return names
