"""What jobs need of Spark: the log as a frame, and tasks that write."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.config.units import format_time
from perdure.errors import StorageUnavailable
from perdure.pipeline.jobs.archive_files import (
    RESULT_DDL,
    WriteTask,
    Written,
    write_batches,
    written_files,
)
from perdure.pipeline.jobs.learn import PATTERN_COUNTS_DDL, count_batches
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.schema import ddl

if TYPE_CHECKING:
    from perdure.pipeline.jobs.stats_here import HereEngine

HERE_ROWS_MAX: Final = 2_000_000
"""Of a frame that Spark hands over; about 200 MB."""

_OURS: Final = re.compile(r"SourceError: perdure: (.*)")


@contextlib.contextmanager
def source_errors() -> Iterator[None]:
    """Turn what the data source said inside Spark back into an error of ours.

    Raises:
        StorageUnavailable: with the source's sentence.
    """
    try:
        yield
    except Exception as error:
        found = _OURS.search(str(error))
        if found is None:
            raise
        raise StorageUnavailable(found[1]) from error


def read_log(spark: Any, options: ReadOptions, columns: Iterable[str] = ()) -> Any:
    """The range of checked options as a frame of some columns, all by default.

    Args:
        spark: a session.
        options: with one filter set at most.
    """
    names = list(columns) or None
    reader = (
        spark.read.format("perdure")
        .schema(ddl(names))
        .option("from", _bound(options.published_from, options.after_offset + 1))
        .option("until", _bound(options.published_until, options.until_offset))
        .option("rowsPerPartition", str(options.rows_per_partition))
    )
    if options.whole:
        reader = reader.option("whole", "on")
    if options.where:
        reader = reader.option("where", options.where)
    for filters in options.filter_sets:
        reader = reader.option("topic", msgspec.json.encode(list(filters)).decode())
    remote = options.remote
    if remote is None:
        return reader.load(options.path)
    # Spark leaves out what is called a token wherever it shows options.
    given = {
        "url": ",".join((remote.url, *remote.others)),
        "token": remote.token,
        "caFile": remote.ca_file,
    }
    given["timeout"] = f"{round(remote.wait_s * 1e3)}ms"
    given["compression"] = remote.compression or "none"
    return reader.options(**given).load()


def _bound(moment: int | None, offset: int) -> str:
    """A bound as the data source reads it: as it was given, or one of offsets."""
    text = None if moment is None else format_time(moment)
    return str(offset) if text is None else text


def count_patterns(spark: Any, options: ReadOptions) -> list[tuple[str, int]]:
    """What ``learn.propose`` takes, from a range of the log."""
    counted = read_log(spark, options, ["topic"]).mapInArrow(count_batches, PATTERN_COUNTS_DDL)
    return [(row.pattern, row.messages) for row in counted.collect()]


class SparkExecute:
    """Runs the tasks of an archive's round in Spark.

    Args:
        spark: a session whose workers see the directories of log and tables.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def __call__(self, options: ReadOptions, task: WriteTask) -> list[Written]:
        written = read_log(self._spark, options).mapInArrow(
            partial(write_batches, task), RESULT_DDL
        )
        with source_errors():
            return written_files([row.asDict() for row in written.collect()])


class SparkEngine:
    """The statistics' engine in Spark; a context manager.

    What Spark has counted is asked in this process if it is small enough and there is a DuckDB:
    Java compiles each query anew, which takes seconds where the answer takes milliseconds.

    Args:
        spark: a session.
        here_rows_max: most rows of what is kept that are asked here, all other queries being of
            that; 0 = all is asked in Spark.
        rows: what is kept has no more than that, about; None = not known, and so it is counted
            first.
        frames: by their names, such as ``log`` with ``stats.COLUMNS``.
    """

    def __init__(
        self,
        spark: Any,
        *,
        here_rows_max: int = 0,
        rows: int | None = None,
        **frames: Any,
    ) -> None:
        self._spark = spark
        self._frames = frames
        self._kept: list[Any] = []
        self._here: HereEngine | None = None
        self._here_rows_max = here_rows_max if find_spec("duckdb") is not None else 0
        self._rows = rows

    def __enter__(self) -> SparkEngine:
        return self

    def __exit__(self, *_: object) -> None:
        for frame in self._kept:
            frame.unpersist()
        if self._here is not None:
            self._here.__exit__()

    @property
    def is_here(self) -> bool:
        """Whether what was kept is asked in this process."""
        return self._here is not None

    def keep(self, name: str, query: str) -> None:
        """A frame that Spark keeps in memory, or on disks; here, if it is small."""
        frame = self._find(query)
        rows = self._rows
        if rows is None or rows > self._here_rows_max:
            frame = frame.persist()
            self._kept.append(frame)
            self._frames[name] = frame
            rows = frame.count() if self._here_rows_max else None
        if rows is not None and rows <= self._here_rows_max:
            from perdure.pipeline.jobs.stats_here import HereEngine

            self._here = HereEngine(None)
            self._here.add(name, frame.toArrow())

    def add(self, name: str, table: Any) -> None:
        """A frame that is known."""
        if self._here is not None:
            self._here.add(name, table)
            return
        fields = ", ".join(f"{field.name} string" for field in table.schema)
        rows = [tuple(row.values()) for row in table.to_pylist()]
        self._frames[name] = self._spark.createDataFrame(rows, fields)

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Its rows; moments are aware."""
        if self._here is not None:
            return self._here.rows(query)
        found: list[dict[str, Any]] = self._find(query).toArrow().to_pylist()
        return found

    def _find(self, query: str) -> Any:
        used = {name: frame for name, frame in self._frames.items() if f"{{{name}}}" in query}
        return self._spark.sql(query, **used)
