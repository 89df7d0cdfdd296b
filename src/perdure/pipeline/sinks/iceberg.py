"""Tables in the Iceberg format, committed by pyiceberg without Java.

The position is a property of the table, set in the transaction that adds the files. Without another
catalog, an SQLite file beside the tables is the catalog.

pyiceberg tries a commit again on what another writer left, files and all, as appends do not mind
each other. Ours do: the position would be the other writer's. So tables are set not to try again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import unquote, urlparse

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.types import BooleanType, DoubleType, LongType, StringType

from perdure.errors import ConfigError, StorageConflict
from perdure.pipeline.fields import ARROW, Fields
from perdure.pipeline.sinks.contract import DataFile, Place, Removed, check_position, named_conflict
from perdure.pipeline.sinks.files import delete_unused

NAMESPACE: Final = "perdure"
_OFFSET: Final = "perdure.offset"
_DATABASE: Final = "perdure.database"
_SETTINGS: Final = {
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_TYPES: Final = {
    "boolean": BooleanType(),
    "long": LongType(),
    "double": DoubleType(),
    "string": StringType(),
}


def local_catalog(root: Path) -> Catalog:
    """The catalog in an archive's own directory, made if it is not there."""
    root.mkdir(parents=True, exist_ok=True)
    root = root.resolve()
    return load_catalog(
        "perdure",
        type="sql",
        uri=f"sqlite:///{root / 'catalog.db'}",
        warehouse=root.as_uri(),
    )


def named_catalog(name: str) -> Catalog:
    """A catalog of the user's pyiceberg settings.

    Raises:
        ConfigError: there is none of that name, or it cannot be used.
    """
    try:
        return load_catalog(name)
    except (ValueError, OSError) as error:
        raise ConfigError(
            f"catalog {name}: {error}", path="catalog", hint="it is set in ~/.pyiceberg.yaml"
        ) from error


@final
class IcebergSink:
    """Iceberg tables of one catalog, in the namespace ``perdure``.

    Args:
        catalog: any catalog whose tables have locations that the tasks can write to as files.
        database_id: whose log it holds.
    """

    def __init__(self, catalog: Catalog, database_id: str) -> None:
        self._catalog = catalog
        self._database_id = database_id
        # As they were when their positions were asked for, which is where a round begins.
        self._seen: dict[str, Any] = {}
        self._catalog.create_namespace_if_not_exists(NAMESPACE)

    def begin(self, table: str, schema: Any) -> None:
        try:
            found = self._load(table)
        except NoSuchTableError:
            found = self._catalog.create_table(
                (NAMESPACE, table),
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
        if not _SETTINGS.items() <= found.properties.items():
            with named_conflict(table, CommitFailedException), found.transaction() as transaction:
                transaction.set_properties(_SETTINGS)

    def fields(self, table: str, plain: Any) -> Fields:
        return {
            field.name: str(field.field_type)
            for field in self._as_seen(table).schema().fields[len(plain.names) :]
            if str(field.field_type) in ARROW
        }

    def position(self, table: str) -> int:
        self._seen[table] = self._load(table)
        return _position(self._seen[table])

    def data_directory(self, table: str) -> str:
        directory = _directory(self._as_seen(table)) / "data"
        directory.mkdir(parents=True, exist_ok=True)
        return str(directory)

    def files(self, table: str) -> list[DataFile]:
        opened = self._load(table)
        field = opened.schema().find_field("offset").field_id
        found = []
        for task in opened.scan().plan_files():
            file = task.file
            first, last = (
                int.from_bytes((bounds or {}).get(field, b""), "little")
                for bounds in (file.lower_bounds, file.upper_bounds)
            )
            path = unquote(urlparse(file.file_path).path)
            size = file.file_size_in_bytes
            found.append(DataFile(table, path, file.record_count, size, first, last))
        return found

    def commit(
        self, table: str, files: Sequence[DataFile], *, schema: Any, expected: int, position: int
    ) -> None:
        # What is loaded here is what the commit must find: a catalog refuses it otherwise.
        opened = self._load(table)
        self._seen.pop(table, None)
        check_position(table, _position(opened), expected)
        with named_conflict(table, CommitFailedException), opened.transaction() as transaction:
            _evolve(transaction, schema)
            transaction.set_properties({_OFFSET: str(position)})
            transaction.add_files(
                [Path(file.path).as_uri() for file in files],
                snapshot_properties={_OFFSET: str(position)},
                # Each name is random and was counted once: looking for it in all of the table's
                # files would cost more with every commit.
                check_duplicate_files=False,
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
        opened = self._load(table)
        self._seen.pop(table, None)
        check_position(table, _position(opened), expected)
        paths = {file.path for file in old}
        tasks = [
            task.file
            for task in opened.scan().plan_files()
            if unquote(urlparse(task.file.file_path).path) in paths
        ]
        if len(tasks) != len(paths):
            raise StorageConflict(f"table {table}: its files were replaced meanwhile")
        with named_conflict(table, CommitFailedException), opened.transaction() as transaction:
            _evolve(transaction, schema)
            snapshot = transaction.update_snapshot({_OFFSET: str(expected)})
            with snapshot.overwrite() as overwrite:
                for data_file in tasks:
                    overwrite.delete_data_file(data_file)
                for file in new:
                    overwrite.append_data_file(
                        parquet_file_to_data_file(
                            opened.io, transaction.table_metadata, Path(file.path).as_uri()
                        )
                    )

    def clean(self, table: str, *, before_us: int) -> Removed:
        opened = self._load(table)
        before = datetime.fromtimestamp(before_us / 1_000_000, UTC)
        count = len(opened.snapshots())
        with named_conflict(table, CommitFailedException):
            opened.maintenance.expire_snapshots().older_than(before).commit()
        opened = self._load(table)
        used = {_path(opened.metadata_location)}
        used |= {_path(entry.metadata_file) for entry in opened.metadata.metadata_log}
        manifests: set[str] = set()
        for snapshot in opened.snapshots():
            used.add(_path(snapshot.manifest_list))
            for manifest in snapshot.manifests(opened.io):
                # Snapshots share most of their manifests.
                if manifest.manifest_path in manifests:
                    continue
                manifests.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(opened.io, discard_deleted=True)
                used |= {_path(entry.data_file.file_path) for entry in entries}
        used |= set(map(_path, manifests))
        root = _directory(opened)
        files, size = delete_unused(root, used, before_us=before_us)
        return Removed(count - len(opened.snapshots()), files, size)

    def close(self) -> None:
        """Nothing is held: files that no commit took are not part of a table."""

    def _as_seen(self, table: str) -> Any:
        return self._seen.get(table) or self._load(table)

    def _load(self, table: str) -> Any:
        return self._catalog.load_table((NAMESPACE, table))


def _position(opened: Any) -> int:
    return int(opened.properties.get(_OFFSET, 0))


def _evolve(transaction: Any, schema: Any) -> None:
    """Make the columns of a table those of a schema: new ones, and ones of another type."""
    found = {
        field.name: str(field.field_type) for field in transaction.table_metadata.schema().fields
    }
    names = {kind: name for name, kind in ARROW.items()}
    fresh = [field for field in schema if field.name not in found]
    wider = [
        field
        for field in schema
        if field.name in found and field.type in names and names[field.type] != found[field.name]
    ]
    if wider:
        # Iceberg knows no way from long to double: the column is another one of the same name.
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for field in wider:
                update.delete_column((field.name,))
    if fresh or wider:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for field in [*wider, *fresh]:
                update.add_column((field.name,), _TYPES[names[field.type]])


def _directory(opened: Any) -> Path:
    location = urlparse(opened.location())
    if location.scheme not in {"", "file"}:
        raise ConfigError(
            f"table {opened.name()[-1]} is kept at {location.scheme}:, which is no file system",
            path="catalog",
            hint="use a catalog whose warehouse is a directory",
        )
    return Path(unquote(location.path))


def _path(uri: str) -> str:
    return unquote(urlparse(uri).path)


def open_sink(place: Place) -> IcebergSink:
    """The tables of an archive, in its own catalog or in one of the user's settings."""
    own = place.catalog is None
    catalog = local_catalog(place.directory) if own else named_catalog(place.catalog or "")
    return IcebergSink(catalog, place.database_id)
