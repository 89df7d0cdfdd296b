"""How a table is divided may change at any time, and what can't be is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")

import pyarrow as pa

from perdure.errors import ConfigError
from perdure.pipeline.jobs.archive import Archive, Wanted, execute_here
from perdure.pipeline.jobs.maintain import maintain
from perdure.pipeline.lake.catalogs import catalog_of
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.lake.layouts import parse_partition, parse_sort
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.sinks.opening import open_sink
from perdure.pipeline.tables import parse_table
from tests.unit.pipeline.logs import SECOND, START, append, open_log

_COLUMNS = pa.schema(
    [
        ("offset", pa.int64()),
        ("device", pa.string()),
        ("published_at", pa.timestamp("us", tz="UTC")),
        ("retain", pa.bool_()),
    ]
)


def divided(place: Path, *texts: str) -> set[tuple[str, str]]:
    """How the table is divided once it is to be divided like this."""
    lake = msgspec.structs.replace(Lake(str(place), "iceberg"), partition=parse_partition(texts))
    sink = open_sink(lake, "database")
    try:
        sink.begin("table", _COLUMNS)
        sink.position("table")
        return {(each.column, each.transform) for each in sink.layout("table").partition}
    finally:
        sink.close()


def test_a_column_is_divided_in_another_way_of_the_same_kind_and_back(tmp_path: Path) -> None:
    for count in (4, 8, 4, 16, 8):
        assert divided(tmp_path, "day(published_at)", f"bucket({count}, device)") == {
            ("published_at", "day"),
            ("device", f"bucket[{count}]"),
        }
    assert divided(tmp_path, "truncate(2, device)") == {("device", "truncate[2]")}
    assert divided(tmp_path, "truncate(3, device)") == {("device", "truncate[3]")}
    assert divided(tmp_path, "hour(published_at)") == {("published_at", "hour")}
    assert divided(tmp_path, "day(published_at)") == {("published_at", "day")}
    assert divided(tmp_path) == set()


def test_in_another_order_it_is_divided_the_same(tmp_path: Path) -> None:
    first = divided(tmp_path, "day(published_at)", "device")
    assert divided(tmp_path, "device", "day(published_at)") == first


def test_a_table_that_was_made_with_shorter_names_keeps_them(tmp_path: Path) -> None:
    """As it was before fields were named for their width."""
    from perdure.pipeline.lake.catalogs import catalog_of

    divided(tmp_path)
    lake = Lake(str(tmp_path), "iceberg")
    table = catalog_of(lake).load_table((lake.namespace, "table"))
    with table.update_spec() as update:
        update.add_field("device", "bucket[4]", "device_bucket")
    assert divided(tmp_path, "bucket(4, device)") == {("device", "bucket[4]")}
    assert divided(tmp_path, "bucket(8, device)") == {("device", "bucket[8]")}
    assert divided(tmp_path, "bucket(4, device)") == {("device", "bucket[4]")}


@pytest.mark.parametrize("text", ["day(device)", "bucket(4, retain)", "truncate(4, retain)"])
def test_a_column_that_cannot_be_divided_so(tmp_path: Path, text: str) -> None:
    divided(tmp_path, "device")
    with pytest.raises(ConfigError) as caught:
        divided(tmp_path, text)
    assert caught.value.path == "pipeline.tables.partition"
    assert divided(tmp_path, "device") == {("device", "identity")}


@pytest.mark.parametrize(
    "texts",
    [
        ("day(published_at)", "hour(published_at)"),
        ("bucket(4, device)", "bucket(8, device)"),
        ("truncate(4, device)", "truncate(4, device)"),
        ("device", "device"),
    ],
)
def test_one_kind_divides_a_column_once(texts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="once"):
        parse_partition(texts)


def test_the_order_within_files_changes_and_goes(tmp_path: Path) -> None:
    for texts in (("device",), ("device desc", "offset"), (), ("offset",), ()):
        lake = msgspec.structs.replace(Lake(str(tmp_path), "iceberg"), sort=parse_sort(texts))
        sink = open_sink(lake, "database")
        sink.begin("table", _COLUMNS)
        sink.position("table")
        assert sink.layout("table").sort == parse_sort(texts)
        sink.close()


def test_a_field_of_payloads_may_divide_and_sort_and_keeps_its_type(tmp_path: Path) -> None:
    """The first round after it was there ended with a KeyError, and so did each that followed; and
    a fraction in a column that had divided the table once ended all rounds."""
    database = open_log(tmp_path / "db")
    ways: list[dict[str, Any]] = [
        {"partition": parse_partition(["bucket(4, a)"]), "sort": parse_sort(["a"])},
        {"partition": parse_partition(["a"])},
        {},
    ]
    values: list[float | str | None] = [1, 2, None, 3, 2.5, "word"]
    rounds = 0
    for way in ways:
        lake = msgspec.structs.replace(Lake(str(tmp_path / "to"), "iceberg"), **way)
        (tmp_path / "to").mkdir(exist_ok=True)
        archive = Archive(
            ReadOptions(str(tmp_path / "db")),
            open_sink(lake, database.format.database_id),
            Wanted((parse_table("dev=d/{device}"),), learns=False),
            directory=tmp_path / "to",
            execute=execute_here,
        )
        for _ in range(3):
            # Fractions come once the column divides the table.
            some = values if rounds else values[:4]
            payloads = [b'{"a": %s}' % msgspec.json.encode(value) for value in some]
            append(database, ["d/x"] * len(some), at=START + rounds * SECOND, payloads=payloads)
            assert archive.run_round().rows == len(some)
            rounds += 1
        sink = open_sink(lake, database.format.database_id)
        maintain(sink, parse_table("dev=d/{device}"), before_us=1)
        table = catalog_of(lake).load_table((lake.namespace, "dev"))
        assert [field.name for field in table.spec().fields] == [
            each.name for each in lake.partition
        ]
        found = table.scan(row_filter="a = 2").to_arrow()
        assert found.num_rows == rounds
        assert str(table.schema().find_type("a")) == "long"
        assert table.scan().to_arrow().num_rows == 4 + 6 * (rounds - 1)
    database.close()
