"""Tables in the Iceberg format, committed by pyiceberg without Java.

The position is a property of the table, set in the transaction that adds the files. Without another
catalog, an SQLite file beside the tables is the catalog.

pyiceberg tries a commit again on what another writer left, files and all, as appends do not mind
each other. Ours do: the position would be the other writer's. So tables are set not to try again.
A commit whose answer was lost may have been made: the next round asks for the position first.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
)

from perdure.errors import ConfigError, StorageConflict
from perdure.pipeline.fields import ARROW, Fields
from perdure.pipeline.lake.catalogs import catalog_of, guarded
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.lake.layouts import Layout, present
from perdure.pipeline.lake.stores import Store, below, scheme_of
from perdure.pipeline.sinks.contract import DataFile, Removed, check_position, named_conflict
from perdure.pipeline.sinks.files import delete_unused
from perdure.pipeline.sinks.iceberg_files import (
    data_file,
    described,
    divide,
    evolve,
    layout_of,
    order,
    place_of,
)

_OFFSET: Final = "perdure.offset"
_DATABASE: Final = "perdure.database"
_NAMES: Final = "schema.name-mapping.default"
_SETTINGS: Final = {
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


@final
class IcebergSink:
    """Iceberg tables of one catalog, in one namespace.

    Args:
        catalog: any catalog whose tables have locations that the tasks can write to.
        database_id: whose log it holds.
        lake: its namespace, and how tables are laid out.
    """

    def __init__(self, catalog: Catalog, database_id: str, lake: Lake | None = None) -> None:
        self.lake = lake or Lake("")
        self._catalog = catalog
        self._database_id = database_id
        # As they were when their positions were asked for, which is where a round begins.
        self._seen: dict[str, Any] = {}

    @guarded
    def begin(self, table: str, schema: Any) -> None:
        try:
            found = self._load(table)
        except (NoSuchTableError, NoSuchNamespaceError):
            # Here, since who only reads need not have the right to.
            self._catalog.create_namespace_if_not_exists(self.lake.namespace)
            found = self._catalog.create_table(
                (self.lake.namespace, table),
                schema=schema,
                properties={_DATABASE: self._database_id, **_SETTINGS},
            )
        if found.properties.get(_DATABASE) != self._database_id:
            raise ConfigError(f"table {table} holds the log of another database", path="to")
        names = [field.name for field in found.schema().fields]
        if names[: len(schema.names)] != schema.names:
            raise ConfigError(
                f"table {table} has other columns", path="table", hint="give it a new name"
            )
        self._lay_out(table, found, names)

    def _lay_out(self, table: str, found: Any, columns: list[str]) -> None:
        """Settings, partition spec and sort order as they are wanted now."""
        layout = layout_of(found)
        fields = present(self.lake.partition, columns)
        sort = [each for each in self.lake.sort if each[0] in columns]
        settings = {} if _SETTINGS.items() <= found.properties.items() else dict(_SETTINGS)
        if _NAMES not in found.properties:
            # Files name their columns; readers find them by this.
            settings[_NAMES] = found.schema().name_mapping.model_dump_json()
        if not settings and layout.partition == tuple(fields) and layout.sort == tuple(sort):
            return
        with named_conflict(table, CommitFailedException), found.transaction() as transaction:
            if settings:
                transaction.set_properties(settings)
            if layout.partition != tuple(fields):
                divide(transaction, fields)
            if layout.sort != tuple(sort):
                order(transaction, sort)

    @guarded
    def fields(self, table: str, plain: Any) -> Fields:
        return {
            field.name: str(field.field_type)
            for field in self._as_seen(table).schema().fields[len(plain.names) :]
            if str(field.field_type) in ARROW
        }

    @guarded
    def position(self, table: str) -> int:
        self._seen[table] = self._load(table)
        return _position(self._seen[table])

    @guarded
    def data_directory(self, table: str) -> str:
        directory = below(place_of(self._as_seen(table).location()), "data")
        self.store(table).make_directory(directory)
        return directory

    @guarded
    def store(self, table: str) -> Store:
        # A REST catalog may give credentials for each table, which are in force for a while.
        opened = self._as_seen(table)
        if not scheme_of(place_of(opened.location())):
            return Store()
        return Store(tuple((name, str(value)) for name, value in opened.io.properties.items()))

    @guarded
    def layout(self, table: str) -> Layout:
        return layout_of(self._as_seen(table))

    @guarded
    def files(self, table: str) -> list[DataFile]:
        opened = self._load(table)
        return described(table, opened, opened.scan().plan_files())

    @guarded
    def commit(
        self, table: str, files: Sequence[DataFile], *, schema: Any, expected: int, position: int
    ) -> None:
        # What is loaded here is what the commit must find: a catalog refuses it otherwise.
        opened = self._load(table)
        self._seen.pop(table, None)
        check_position(table, _position(opened), expected)
        with named_conflict(table, CommitFailedException), opened.transaction() as transaction:
            evolve(transaction, schema)
            transaction.set_properties({_OFFSET: str(position)})
            # Each name is random and was counted once: nobody looks for it in all files.
            snapshot = transaction.update_snapshot({_OFFSET: str(position)})
            with snapshot.fast_append() as append:
                for file in files:
                    append.append_data_file(data_file(opened, transaction.table_metadata, file))

    @guarded
    def replace(
        self,
        table: str,
        old: Sequence[DataFile],
        new: Sequence[DataFile],
        *,
        schema: Any,
        expected: int,
    ) -> None:
        opened = self._load(table)
        self._seen.pop(table, None)
        check_position(table, _position(opened), expected)
        paths = {file.path for file in old}
        tasks = [
            task.file
            for task in opened.scan().plan_files()
            if place_of(task.file.file_path) in paths
        ]
        if len(tasks) != len(paths):
            raise StorageConflict(f"table {table}: its files were replaced meanwhile")
        with named_conflict(table, CommitFailedException), opened.transaction() as transaction:
            evolve(transaction, schema)
            snapshot = transaction.update_snapshot({_OFFSET: str(expected)})
            with snapshot.overwrite() as overwrite:
                for file in tasks:
                    overwrite.delete_data_file(file)
                for file in new:
                    overwrite.append_data_file(data_file(opened, transaction.table_metadata, file))

    @guarded
    def clean(self, table: str, *, before_us: int) -> Removed:
        opened = self._load(table)
        before = datetime.fromtimestamp(before_us / 1_000_000, UTC)
        count = len(opened.snapshots())
        with named_conflict(table, CommitFailedException):
            opened.maintenance.expire_snapshots().older_than(before).commit()
        opened = self._seen[table] = self._load(table)
        used = {opened.metadata_location}
        used |= {entry.metadata_file for entry in opened.metadata.metadata_log}
        manifests: set[str] = set()
        for snapshot in opened.snapshots():
            used.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(opened.io):
                # Snapshots share most of their manifests.
                if manifest.manifest_path in manifests:
                    continue
                manifests.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(opened.io, discard_deleted=True)
                used |= {entry.data_file.file_path for entry in entries}
        places = set(map(place_of, used | manifests))
        root = place_of(opened.location())
        files, size = delete_unused(self.store(table), root, places, before_us=before_us)
        return Removed(count - len(opened.snapshots()), files, size)

    def close(self) -> None:
        """Nothing is held: files that no commit took are not part of a table."""

    def _as_seen(self, table: str) -> Any:
        return self._seen.get(table) or self._load(table)

    def _load(self, table: str) -> Any:
        return self._catalog.load_table((self.lake.namespace, table))


def _position(opened: Any) -> int:
    return int(opened.properties.get(_OFFSET, 0))


def open_sink(lake: Lake, database_id: str) -> IcebergSink:
    """The tables of an archive, in its own catalog or in another one."""
    return IcebergSink(catalog_of(lake), database_id, lake)
