"""Where an archive's tables live, from the section ``pipeline.tables``: one record for all jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from perdure.config.schema import TablesConfig
from perdure.errors import ConfigError
from perdure.pipeline.lake.layouts import PartitionField, parse_partition, parse_sort
from perdure.pipeline.lake.stores import SCHEMES, Store, local_path, scheme_of

NAMESPACE: Final = "perdure"
OWN_CATALOG: Final = "perdure"
"""Name of a catalog that the configuration describes, where it gives none."""


class Lake(msgspec.Struct, frozen=True):
    """Where tables are and how they are reached.

    Attributes:
        place: of ``archive.json``, and of tables where no catalog says otherwise: an absolute
            path, or the URI of an object store.
        format: of the tables.
        namespace: of a catalog.
        catalog: its name; empty = an SQLite file beside the tables.
        properties: pyiceberg's settings for catalog and store; some are secrets.
        partition, sort: how rows of new tables, and new files of old ones, are laid out.
    """

    place: str
    format: str = "iceberg"
    namespace: str = NAMESPACE
    catalog: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    partition: tuple[PartitionField, ...] = ()
    sort: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Lake({self.place!r}, {self.format})"

    @property
    def store(self) -> Store:
        """How the files at the place are reached."""
        return Store(self.properties)

    @property
    def is_local(self) -> bool:
        """Whether the place is a directory."""
        return not scheme_of(self.place)


def lake_of(tables: TablesConfig, *, place: str = "") -> Lake:
    """The lake of a configuration.

    Args:
        tables: the section.
        place: instead of its own; empty = its own.

    Raises:
        ConfigError: something in it cannot be used, or no place is named.
    """
    where = checked_place(place or tables.place)
    named = [
        ("type", tables.catalog_type),
        ("uri", tables.catalog_uri),
        ("warehouse", tables.warehouse),
    ]
    described = [(name, value) for name, value in named if value]
    catalog = tables.catalog or (OWN_CATALOG if tables.catalog_type or tables.catalog_uri else "")
    lake = Lake(
        place=where,
        format=tables.format,
        namespace=tables.namespace,
        catalog=catalog,
        properties=(*described, *parse_properties(tables.properties)),
        partition=parse_partition(tables.partition),
        sort=parse_sort(tables.sort),
    )
    check(lake)
    return lake


def check(lake: Lake) -> None:
    """Refuse what cannot work, before an hour of work.

    Raises:
        ConfigError: with what to do.
    """
    if lake.format != "iceberg":
        for name in ("catalog", "partition", "sort"):
            if getattr(lake, name):
                raise ConfigError(
                    f"{name} is for the format iceberg, and {lake.format} was asked for",
                    path=f"pipeline.tables.{name}",
                )
    if lake.is_local:
        return
    if lake.format == "parquet":
        raise ConfigError(
            f"{lake.place}: tables in the format parquet are committed by renaming directories, "
            "which object stores cannot do",
            path="pipeline.tables.format",
            hint="iceberg or delta",
        )
    if lake.format == "iceberg" and not lake.catalog:
        raise ConfigError(
            f"{lake.place}: Iceberg tables in an object store need a catalog",
            path="pipeline.tables.catalog_type",
            hint="catalog_type rest, sql, hive or glue with catalog_uri; on one machine sql and "
            "sqlite:////var/lib/perdure/catalog.db",
        )


def checked_place(text: str) -> str:
    """A place as an absolute path or a URI.

    Raises:
        ConfigError: it is neither.
    """
    if not text.strip():
        raise ConfigError("names no directory and no store", path="pipeline.tables.place")
    scheme = scheme_of(text)
    if not scheme:
        return str(Path(local_path(text)).resolve())
    bucket = text.partition("://")[2].partition("/")[0]
    if scheme not in SCHEMES or not bucket:
        raise ConfigError(
            f"{text}: expected a directory, or a bucket and a path below it at one of "
            f"{', '.join(SCHEMES)}",
            path="pipeline.tables.place",
            hint="s3://bucket/archive",
        )
    return text.rstrip("/")


def parse_properties(texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Settings from ``name=value``.

    Raises:
        ConfigError: one is no such text; it is not shown, for it may be a secret.
    """
    found = []
    for number, text in enumerate(texts):
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(
                f"entry {number + 1}: expected name=value",
                path="pipeline.tables.properties",
                hint="such as s3.endpoint=http://127.0.0.1:9000",
            )
        found.append((name.strip(), value.strip()))
    return tuple(found)
