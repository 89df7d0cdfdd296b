"""The table of formats: every line opens, and what is none is told."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from perdure.errors import ConfigError, StorageUnavailable
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.sinks.formats import SINKS
from perdure.pipeline.sinks.iceberg import IcebergSink
from perdure.pipeline.sinks.opening import open_sink


@pytest.mark.parametrize("kind", SINKS)
def test_every_line_opens(kind: str, tmp_path: Path) -> None:
    sink = open_sink(Lake(str(tmp_path), kind), "database")
    sink.begin("table", pa.schema([("offset", pa.int64()), ("topic", pa.string())]))
    assert sink.position("table") == 0
    assert sink.files("table") == []
    sink.close()


def test_who_reads_tables_that_are_away_leaves_nothing_in_their_place(tmp_path: Path) -> None:
    """A lake that is moved, or not mounted now, comes back."""
    away = tmp_path / "lake"
    with pytest.raises(StorageUnavailable):
        open_sink(Lake(str(away), "iceberg"), "database")
    assert not away.exists()


class _Looked(SqlCatalog):
    def create_namespace_if_not_exists(self, *_: object, **__: object) -> None:
        raise AssertionError("who reads need not have the right to")


def test_who_reads_iceberg_tables_makes_no_namespace(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path), "iceberg")
    sink = open_sink(lake, "database")
    sink.begin("table", pa.schema([("offset", pa.int64()), ("topic", pa.string())]))
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    catalog = _Looked("perdure", uri=uri, warehouse=tmp_path.as_uri())
    assert IcebergSink(catalog, "database", lake).files("table") == []


def test_a_format_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="orc") as caught:
        open_sink(Lake(str(tmp_path), "orc"), "database")
    assert caught.value.hint == f"one of {', '.join(SINKS)}"
