"""Finds the module of a table format; the others are not imported."""

from __future__ import annotations

from pathlib import Path

from perdure.pipeline.sinks.contract import Sink


def open_sink(kind: str, directory: Path, catalog: str | None, database_id: str) -> Sink:
    """The tables in an archive's directory.

    Args:
        kind: iceberg, delta or parquet.
        directory: of the archive; exists.
        catalog: an Iceberg catalog of the user's settings; None = the one in the directory.
        database_id: whose log is in the tables.

    Raises:
        ConfigError: the catalog cannot be used.
    """
    directory = directory.resolve()
    if kind == "parquet":
        from perdure.pipeline.sinks.parquet import ParquetSink

        return ParquetSink(directory, database_id)
    if kind == "delta":
        from perdure.pipeline.sinks.delta import DeltaSink

        return DeltaSink(directory, database_id)
    from perdure.pipeline.sinks import iceberg

    opened = iceberg.local_catalog(directory) if catalog is None else iceberg.named_catalog(catalog)
    return iceberg.IcebergSink(opened, database_id)
