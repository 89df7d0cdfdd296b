"""The engine of statistics without Spark: DuckDB in this process, on what is read meanwhile.

What it keeps beyond its memory goes to temporary files.
"""

from __future__ import annotations

import tempfile
from typing import Any, Final, final

import duckdb
import pyarrow as pa

from perdure.pipeline.here import read_here
from perdure.pipeline.jobs.stats import COLUMNS
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.reader_errors import ReaderErrors

MEMORY: Final = "1GB"

_SPARKS: Final = """
    set TimeZone = 'UTC';
    create macro unix_micros(moment) as epoch_us(moment);
    create macro unix_seconds(moment) as cast(floor(epoch_us(moment) / 1e6) as bigint);
"""
"""What Spark calls otherwise."""


@final
class HereEngine:
    """An engine; a context manager.

    Args:
        options: what is read of which log, the frame ``log``; None = there is none.
        memory: most of it before files are used, as DuckDB writes sizes.
    """

    def __init__(self, options: ReadOptions | None, *, memory: str = MEMORY) -> None:
        self._options = options
        self._errors = ReaderErrors()
        self._directory = tempfile.TemporaryDirectory(prefix="perdure-stats-")
        self._connection = duckdb.connect()
        self._connection.execute(_SPARKS)
        self._connection.execute("set temp_directory = ?", [self._directory.name])
        self._connection.execute("set memory_limit = ?", [memory])

    def __enter__(self) -> HereEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._directory.cleanup()

    def keep(self, name: str, query: str) -> None:
        """A table; of the log, or another stream, in one read."""
        if self._options is not None:
            log = self._errors.kept(read_here(self._options, COLUMNS))
            self._connection.register("log", log)
        with self._errors.told():
            self._connection.execute(f"create table {name} as {_plain(query)}")
        if self._options is not None:
            self._connection.unregister("log")

    def add(self, name: str, table: Any) -> None:
        """A table that is known, or a stream of batches, which can be read once."""
        if isinstance(table, pa.RecordBatchReader):
            table = self._errors.kept(table)
        self._connection.register(name, table)

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Its rows; moments are aware."""
        with self._errors.told():
            found: list[dict[str, Any]] = (
                self._connection.sql(_plain(query)).to_arrow_table().to_pylist()
            )
        return found


def _plain(query: str) -> str:
    """Frames by their names."""
    return query.replace("{", "").replace("}", "")
