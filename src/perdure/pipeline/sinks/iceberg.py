"""Tables in the Iceberg format, committed by pyiceberg without Java.

The position is a property of the table, set in the transaction that adds the files. Without another
catalog, an SQLite file beside the tables is the catalog.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import unquote, urlparse

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError

from perdure.errors import ConfigError
from perdure.pipeline.sinks.contract import DataFile, check_position

NAMESPACE: Final = "perdure"
_OFFSET: Final = "perdure.offset"
_DATABASE: Final = "perdure.database"


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
        self._catalog.create_namespace_if_not_exists(NAMESPACE)

    def begin(self, table: str, schema: Any) -> None:
        try:
            found = self._catalog.load_table((NAMESPACE, table))
        except NoSuchTableError:
            found = self._catalog.create_table(
                (NAMESPACE, table), schema=schema, properties={_DATABASE: self._database_id}
            )
        if found.properties.get(_DATABASE) != self._database_id:
            raise ConfigError(f"table {table} holds the log of another database", path="to")
        if [field.name for field in found.schema().fields] != schema.names:
            raise ConfigError(
                f"table {table} has other columns", path="table", hint="give it a new name"
            )

    def position(self, table: str) -> int:
        return int(self._load(table).properties.get(_OFFSET, 0))

    def data_directory(self, table: str) -> str:
        location = urlparse(self._load(table).location())
        if location.scheme not in {"", "file"}:
            raise ConfigError(
                f"table {table} is kept at {location.scheme}:, which is no file system",
                path="catalog",
                hint="use a catalog whose warehouse is a directory",
            )
        directory = Path(unquote(location.path), "data")
        directory.mkdir(parents=True, exist_ok=True)
        return str(directory)

    def commit(
        self, table: str, files: Sequence[DataFile], *, expected: int, position: int
    ) -> None:
        # What is loaded here is what the commit must find: a catalog refuses it otherwise.
        opened = self._load(table)
        check_position(table, int(opened.properties.get(_OFFSET, 0)), expected)
        with opened.transaction() as transaction:
            transaction.set_properties({_OFFSET: str(position)})
            transaction.add_files(
                [Path(file.path).as_uri() for file in files],
                snapshot_properties={_OFFSET: str(position)},
                # Each name is random and was counted once: looking for it in all of the table's
                # files would cost more with every commit.
                check_duplicate_files=False,
            )

    def close(self) -> None:
        """Nothing is held: files that no commit took are not part of a table."""

    def _load(self, table: str) -> Any:
        return self._catalog.load_table((NAMESPACE, table))
