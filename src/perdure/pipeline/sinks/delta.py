"""Tables in the Delta format, committed by deltalake without Java.

The position is Delta's own record of a writing application: its transaction version is the offset,
its name holds the database's id, and both are in the commit that adds the files. Delta refuses a
commit if the application's version moved after the table was opened.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final

import msgspec
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from perdure.clock import SystemClock
from perdure.errors import ConfigError, StorageConflict
from perdure.pipeline.fields import ARROW, Fields
from perdure.pipeline.sinks.contract import DataFile, Place, Removed, check_position, named_conflict

_HOUR_US: Final = 3_600_000_000


@final
class DeltaSink:
    """Delta tables below one directory.

    Args:
        root: the archive.
        database_id: whose log it holds.
    """

    def __init__(self, root: Path, database_id: str) -> None:
        self._root = root
        self._application = f"perdure-{database_id}"

    def begin(self, table: str, schema: Any) -> None:
        path = self._root / table
        if not DeltaTable.is_deltatable(str(path)):
            path.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(str(path), schema=schema, name=table)
        found = [field.name for field in self._table(table).schema().fields]
        if found[: len(schema.names)] != schema.names:
            raise ConfigError(
                f"{path} has other columns", path="table", hint="give the table a new name"
            )

    def fields(self, table: str, plain: Any) -> Fields:
        fields = self._table(table).schema().fields[len(plain.names) :]
        return {field.name: field.type.type for field in fields if _kind(field) in ARROW}

    def position(self, table: str) -> int:
        return self._position(self._table(table))

    def data_directory(self, table: str) -> str:
        return str(self._root / table)

    def files(self, table: str) -> list[DataFile]:
        actions = self._table(table).get_add_actions(flatten=True)
        names = actions.column_names
        rows = zip(
            *(
                actions.column(name).to_pylist() if name in names else [None] * len(actions)
                for name in ("path", "num_records", "size_bytes", "min.offset", "max.offset")
            ),
            strict=True,
        )
        return [
            DataFile(table, str(self._root / table / path), count, size, first or 0, last or 0)
            for path, count, size, first, last in rows
        ]

    def commit(
        self, table: str, files: Sequence[DataFile], *, schema: Any, expected: int, position: int
    ) -> None:
        opened = self._table(table)
        check_position(table, self._position(opened), expected)
        known = {field.name for field in opened.schema().fields}
        wanted = Schema.from_arrow(schema).fields
        fresh = [Field(field.name, field.type) for field in wanted if field.name not in known]
        with named_conflict(table, CommitFailedError):
            if fresh:
                # A commit of its own: columns without rows do no harm.
                opened.alter.add_columns(fresh)
                opened = self._table(table)
                check_position(table, self._position(opened), expected)
            opened.create_write_transaction(
                _additions(files, changes=True),
                mode="append",
                schema=opened.schema(),
                commit_properties=self._properties(position),
            )

    def replace(
        self,
        table: str,
        old: Sequence[DataFile],
        new: Sequence[DataFile],
        *,
        schema: Any,
        expected: int,
    ) -> None:
        opened = self._table(table)
        check_position(table, self._position(opened), expected)
        there = set(opened.get_add_actions(flatten=True).column("path").to_pylist())
        if not {Path(file.path).name for file in old} <= there:
            raise StorageConflict(f"table {table}: its files were replaced meanwhile")
        wanted = Schema.from_arrow(schema)
        known = {field.name: _kind(field) for field in opened.schema().fields}
        wider = any(known.get(field.name) != _kind(field) for field in wanted.fields)
        actions: list[Any] = _additions(new, changes=wider)
        now_ms = SystemClock().now_us() // 1000
        if not wider:
            actions += [RemoveAction(Path(file.path).name, False, now_ms) for file in old]
        with named_conflict(table, CommitFailedError):
            opened.create_write_transaction(
                actions,
                mode="overwrite" if wider else "append",
                schema=wanted if wider else opened.schema(),
                # The version stays: it is here so that a commit of an archive meanwhile conflicts.
                commit_properties=self._properties(expected),
            )

    def clean(self, table: str, *, before_us: int) -> Removed:
        opened = self._table(table)
        # The format counts in hours; what is younger is kept.
        hours = max(0, SystemClock().now_us() - before_us) // _HOUR_US
        root = self._root / table
        sizes = {path.name: path.stat().st_size for path in root.glob("*.parquet")}
        deleted = opened.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        opened = self._table(table)
        opened.create_checkpoint()
        opened.cleanup_metadata()
        size = sum(sizes.get(Path(path).name, 0) for path in deleted)
        return Removed(0, len(deleted), size)

    def close(self) -> None:
        """Nothing is held: files that no commit took are not part of a table."""

    def _table(self, table: str) -> Any:
        return DeltaTable(str(self._root / table))

    def _position(self, opened: Any) -> int:
        return opened.transaction_version(self._application) or 0

    def _properties(self, position: int) -> Any:
        return CommitProperties(
            app_transactions=[Transaction(self._application, position)],
            custom_metadata={"perdure.commit": uuid.uuid4().hex},
            max_commit_retries=0,
        )


def _kind(field: Any) -> str:
    """The name of a primitive type; empty for others."""
    return getattr(field.type, "type", "")


def _additions(files: Sequence[DataFile], *, changes: bool) -> list[Any]:
    now_ms = SystemClock().now_us() // 1000
    return [
        AddAction(Path(file.path).name, file.size, {}, now_ms, changes, _statistics(file))
        for file in files
    ]


def _statistics(file: DataFile) -> str:
    found: dict[str, Any] = {"numRecords": file.rows}
    if file.last:
        found |= {"minValues": {"offset": file.first}, "maxValues": {"offset": file.last}}
    return msgspec.json.encode(found).decode()


def open_sink(place: Place) -> DeltaSink:
    """The tables of an archive."""
    return DeltaSink(place.directory, place.database_id)
