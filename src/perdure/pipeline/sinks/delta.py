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
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.lake.layouts import Layout
from perdure.pipeline.lake.stores import LOCAL, Store, below, name_of, scheme_of
from perdure.pipeline.sinks.contract import DataFile, Removed, check_position, named_conflict

_HOUR_US: Final = 3_600_000_000


@final
class DeltaSink:
    """Delta tables below one place.

    Args:
        root: the archive: a directory or a URI.
        database_id: whose log it holds.
        store: how files there are reached.
    """

    def __init__(self, root: Path | str, database_id: str, store: Store = LOCAL) -> None:
        self._root = str(root)
        self._store = store
        self._options = storage_options(store) if scheme_of(self._root) else None
        self._application = f"perdure-{database_id}"

    def begin(self, table: str, schema: Any) -> None:
        path = below(self._root, table)
        with self._store.errors(path):
            if not DeltaTable.is_deltatable(path, self._options):
                self._store.make_directory(path)
                DeltaTable.create(path, schema=schema, name=table, storage_options=self._options)
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
        return below(self._root, table)

    def store(self, _table: str) -> Store:
        return self._store

    def layout(self, _table: str) -> Layout:
        return Layout()

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
            DataFile(table, below(self._root, table, path), count, size, first or 0, last or 0)
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
        with self._store.errors(table), named_conflict(table, CommitFailedError):
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
        if not {name_of(file.path) for file in old} <= there:
            raise StorageConflict(f"table {table}: its files were replaced meanwhile")
        wanted = Schema.from_arrow(schema)
        known = {field.name: _kind(field) for field in opened.schema().fields}
        wider = any(known.get(field.name) != _kind(field) for field in wanted.fields)
        actions: list[Any] = _additions(new, changes=wider)
        now_ms = SystemClock().now_us() // 1000
        if not wider:
            actions += [RemoveAction(name_of(file.path), False, now_ms) for file in old]
        with self._store.errors(table), named_conflict(table, CommitFailedError):
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
        sizes = {
            name_of(entry.path): entry.size
            for entry in self._store.walk(below(self._root, table))
            if entry.path.endswith(".parquet")
        }
        deleted = opened.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        opened = self._table(table)
        opened.create_checkpoint()
        opened.cleanup_metadata()
        size = sum(sizes.get(name_of(path), 0) for path in deleted)
        return Removed(0, len(deleted), size)

    def close(self) -> None:
        """Nothing is held: files that no commit took are not part of a table."""

    def _table(self, table: str) -> Any:
        path = below(self._root, table)
        with self._store.errors(path):
            return DeltaTable(path, storage_options=self._options)

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
        AddAction(name_of(file.path), file.size, {}, now_ms, changes, _statistics(file))
        for file in files
    ]


def _statistics(file: DataFile) -> str:
    found: dict[str, Any] = {"numRecords": file.rows}
    if file.last:
        found |= {"minValues": {"offset": file.first}, "maxValues": {"offset": file.last}}
    return msgspec.json.encode(found).decode()


_OPTIONS: Final = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.region": "AWS_REGION",
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
    "gcs.oauth2.token": "GOOGLE_BEARER_TOKEN",
    "adls.account-name": "AZURE_STORAGE_ACCOUNT_NAME",
    "adls.account-key": "AZURE_STORAGE_ACCOUNT_KEY",
    "adls.sas-token": "AZURE_STORAGE_SAS_TOKEN",
    "adls.tenant-id": "AZURE_STORAGE_TENANT_ID",
    "adls.client-id": "AZURE_STORAGE_CLIENT_ID",
    "adls.client-secret": "AZURE_STORAGE_CLIENT_SECRET",
}


def storage_options(store: Store) -> dict[str, str]:
    """The settings of a store as deltalake's object store names them; others go as they are."""
    found = {_OPTIONS.get(name, name): value for name, value in store.properties}
    if found.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    return found


def open_sink(lake: Lake, database_id: str) -> DeltaSink:
    """The tables of an archive."""
    return DeltaSink(lake.place, database_id, lake.store)
