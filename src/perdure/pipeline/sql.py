"""SQL on the log and on the tables of an archive, with DuckDB. Knows no Spark.

``log`` has the columns of the data source, and what retention has dropped comes from the archive,
as there. Only what a query uses is read: DuckDB plans it first on tables without rows, which tells
the tables and, of ``log``, the columns. The log is then read once, into DuckDB's memory or its
temporary files; tables of the archive are read by DuckDB as it goes, with its own conditions.

Invariant: a query reads the tables and writes nothing, whatever it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, final

import duckdb
import msgspec
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from perdure.errors import ConfigError, StorageCorrupt, StorageError, StorageUnavailable
from perdure.pipeline.archive_state import ArchiveState, load_state
from perdure.pipeline.here import read_here
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.lake.stores import Store
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.reader_errors import ReaderErrors
from perdure.pipeline.schema import BY_NAME, arrow_schema
from perdure.pipeline.sinks.contract import Sink
from perdure.pipeline.sinks.opening import open_sink
from perdure.pipeline.tables import TableSpec, table_schema

LOG: Final = "log"
BATCH_ROWS: Final = 10_000


_READS: Final = frozenset(("SELECT", "EXPLAIN", "CALL", "PRAGMA", "MULTI"))
"""Types of statements that read, as DuckDB calls them; PIVOT is several."""

_UNREADABLE: Final = re.compile(r"reading the stream registered as '(\w+)' failed: (.*)")
"""Begins what DuckDB says if a table that was handed over cannot be read."""

_KEEP_LOG: Final = "create or replace temp table log as select * from log_reader"


class QueryError(Exception):
    """What DuckDB says of a query."""


@final
class SqlSession:
    """The log and an archive as tables.

    Args:
        options: of the log: which topics, from when, and the archive before it.
        lake: of the archive's tables, or None.
        temporary: directory for what is larger than memory; empty = DuckDB's own choice.
        memory: most of it, such as ``2GB``.
    """

    def __init__(
        self, options: ReadOptions, lake: Lake | None, *, temporary: str = "", memory: str = "2GB"
    ) -> None:
        self._options = options
        self._errors = ReaderErrors()
        self._connection = duckdb.connect()
        self._connection.execute(f"set memory_limit = '{memory}'")
        self._connection.execute("set TimeZone = 'UTC'")
        if temporary:
            self._connection.execute("set temp_directory = ?", [temporary])
        _lock(self._connection)
        self._sink: Sink | None = None
        self._specs: dict[str, TableSpec] = {}
        if lake is not None:
            self._open(lake, load_state(lake.place, lake.store))

    def close(self) -> None:
        """Let go of everything."""
        self._connection.close()
        if self._sink is not None:
            self._sink.close()

    @property
    def tables(self) -> list[str]:
        """What there is to select from."""
        return [LOG, *self._specs]

    def query(self, text: str) -> tuple[list[str], Iterator[dict[str, Any]]]:
        """The answer to a query: its columns, and rows as they come.

        Raises:
            QueryError: it is wrong, or fails.
            StorageError: log, catalog or store cannot be read.
        """
        try:
            columns, tables = self._planned(text)
            if not tables:
                return self._without_rows(text)
            if LOG in tables:
                self._read_log(columns)
            for name in tables - {LOG}:
                self._register(name)
            result = self._connection.sql(text)
            if result is None:
                return [], iter(())
            reader = result.to_arrow_reader(BATCH_ROWS)
        except duckdb.Error as error:
            raise self._said(error) from None
        return _rows(reader, self._said)

    def _said(self, error: Exception) -> Exception:
        """What DuckDB says: of a query, or of a table whose files cannot be read."""
        found = _UNREADABLE.search(str(error))
        if found is None or found[1] not in self._specs or self._sink is None:
            return QueryError(str(error).strip())
        store = self._sink.store(found[1])
        for file in self._sink.files(found[1]):
            try:
                with store.reading(file.path), pq.ParquetFile(store.opened(file.path)):
                    pass
            except StorageError as problem:
                return problem
            except FileNotFoundError:
                return StorageUnavailable(f"{file.path} is gone: the archive was maintained")
        return StorageCorrupt(f"table {found[1]} cannot be read: {found[2]}")

    def _open(self, lake: Lake, state: ArchiveState | None) -> None:
        if state is None:
            return
        self._sink = open_sink(state.within(lake), state.position.database)
        self._specs = {spec.name: spec for spec in state.tables if spec.name != LOG}

    def _without_rows(self, text: str) -> tuple[list[str], Iterator[dict[str, Any]]]:
        """The answer to a query that reads no row of ours: ``show tables``, ``describe log``."""
        with duckdb.connect() as connection:
            _lock(connection)
            self._make_empty(connection)
            result = connection.sql(text)
            if result is None:
                return [], iter(())
            names, rows = _rows(result.to_arrow_reader(BATCH_ROWS), self._said)
            return names, iter(list(rows))

    def _make_empty(self, connection: Any) -> None:
        """Our tables, without rows."""
        _make(connection, LOG, arrow_schema(list(BY_NAME)))
        for name in self._specs:
            _make(connection, name, self._schema(name))

    def _planned(self, text: str) -> tuple[list[str], set[str]]:
        """The columns of the log, and the tables, that a query uses."""
        with duckdb.connect() as planner:
            # Tables are empty here: what follows from that is not to be concluded.
            planner.execute("set disabled_optimizers = 'statistics_propagation'")
            _lock(planner)
            self._make_empty(planner)
            statements = planner.extract_statements(text)
            if len(statements) != 1:
                raise QueryError("one statement at a time")
            if statements[0].type.name not in _READS:
                # It would change copies, and say so.
                word = statements[0].type.name.replace("_", " ")
                raise QueryError(f"{word}: a query reads, and changes nothing")
            if statements[0].type.name == "MULTI":
                # A plan is of its last part, and the first ones read as well.
                return list(BY_NAME), {LOG, *self._specs}
            plan = planner.execute(f"explain (format json) {text}").fetchall()[0][1]
        columns: dict[str, None] = {}
        tables: set[str] = set()
        is_sure = True

        def walk(node: dict[str, Any]) -> None:
            nonlocal is_sure
            info = node.get("extra_info") or {}
            table = str(info.get("Table", "")).rpartition(".")[2] if isinstance(info, dict) else ""
            if node["name"].strip() == "EMPTY_RESULT":
                is_sure = False
            if table:
                tables.add(table)
            if table == LOG:
                used = info.get("Projections", "")
                columns.update(dict.fromkeys([used] if isinstance(used, str) else used))
                if "Filters" in info:
                    columns.update({name: None for name in BY_NAME if name in str(info["Filters"])})
            for child in node.get("children", ()):
                walk(child)

        for node in msgspec.json.decode(plan):
            walk(node)
        if not is_sure:
            return list(BY_NAME), {LOG, *self._specs}
        return [name for name in BY_NAME if name in columns] or ["offset"], tables & {
            LOG,
            *self._specs,
        }

    def _read_log(self, columns: list[str]) -> None:
        log = self._errors.kept(read_here(self._options, columns))
        self._connection.register("log_reader", log)
        with self._errors.told():
            self._connection.execute(_KEEP_LOG)
        self._connection.unregister("log_reader")

    def _schema(self, name: str) -> Any:
        assert self._sink is not None
        spec = self._specs[name]
        return table_schema(spec, self._sink.fields(name, table_schema(spec)))

    def _register(self, name: str) -> None:
        assert self._sink is not None
        store: Store = self._sink.store(name)
        files = self._sink.files(name)
        schema = self._schema(name)
        if not files:
            self._connection.register(name, schema.empty_table())
            return
        targets = [store.target(file.path) for file in files]
        self._connection.register(
            name,
            ds.dataset(
                [path for path, _ in targets],
                schema=schema,
                format="parquet",
                filesystem=targets[0][1],
            ),
        )


def _lock(connection: Any) -> None:
    """Let a query see the tables of the session, and no file, address or setting besides.

    Log and archive are handed over by Arrow; DuckDB opens nothing but its temporary files.
    """
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _make(connection: Any, name: str, schema: Any) -> None:
    connection.register("empty_table", schema.empty_table())
    # The name of a table of ours: letters, digits and underscores (tables.parse_table).
    connection.execute(f'create table "{name}" as select * from empty_table')  # noqa: S608
    connection.unregister("empty_table")


def _rows(
    reader: Any, said: Callable[[Exception], Exception]
) -> tuple[list[str], Iterator[dict[str, Any]]]:
    """The columns of an answer, each with a name of its own, and its rows."""
    names: list[str] = []
    for name in reader.schema.names:
        # As a join has them: ``topic``, and ``topic_1`` of the other table.
        others = (f"{name}_{number}" for number in range(1, len(names) + 1))
        names.append(name if name not in names else next(x for x in others if x not in names))

    def rows() -> Iterator[dict[str, Any]]:
        try:
            for batch in reader:
                columns = [column.to_pylist() for column in batch.columns]
                for values in zip(*columns, strict=True):
                    yield dict(zip(names, values, strict=True))
        except duckdb.Error as error:
            raise said(error) from None
        except (OverflowError, ValueError) as error:
            raise QueryError(f"{error}: cast such moments to text") from None

    return names, rows()


def check_memory(text: str) -> str:
    """A size as DuckDB reads it.

    Raises:
        ConfigError: it is none.
    """
    number = text.rstrip("BbKkMmGgIi")
    if not number.isdecimal() or number == text:
        raise ConfigError(f"memory: expected a size such as 2GB, got {text!r}", path="memory")
    return text
