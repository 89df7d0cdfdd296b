"""Generations: what a crash between their steps leaves, and the counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.config.schema import RocksdbConfig
from perdure.errors import ConfigError, FormatTooNew, StorageCorrupt
from perdure.model import Message
from perdure.storage.codec import encode_record
from perdure.storage.rocksdb import RocksDatabase, keys, store
from perdure.storage.rocksdb.engine import META, Engine, Operations
from perdure.storage.rocksdb.generations import Generation, GenerationHeader
from perdure.storage.rocksdb.layout import table_generation, table_names
from perdure.storage.rocksdb.layout_bitmask import BitmaskLayout
from perdure.storage.rocksdb.layout_v1 import SkipScanLayout
from perdure.storage.rows import rows_of
from perdure.topic.proposal import Structure
from tests.contract.values import NOW_US, append_all, message, read_all


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "d"


def fill(path: Path) -> None:
    database = RocksDatabase.open(path, now_us=NOW_US)
    append_all(database, message("a/1"), message("b"))
    database.close()


def edit(path: Path, *operations: object, tables: tuple[str, ...] = ()) -> None:
    """Change rows of a closed database behind its back."""
    engine = Engine(path, RocksdbConfig())
    for name in tables:
        engine.create_table(name)
    engine.write(list(operations))
    engine.close()


@pytest.mark.trap(26)
async def test_crash_before_the_header_of_a_new_generation(path: Path) -> None:
    fill(path)
    edit(path, tables=table_names(2))
    database = RocksDatabase.open(path)
    assert [info.generation for info in database.generations()] == [1]
    assert database.rotate(NOW_US + 10).generation == 2
    append_all(database, message("c"))
    assert [m.topic for m in await read_all(database, "#")] == ["a/1", "b", "c"]
    assert list(database.check()) == []
    database.close()


async def test_crash_before_the_tables_of_a_dropped_generation_go(path: Path) -> None:
    fill(path)
    database = RocksDatabase.open(path)
    database.rotate(NOW_US + 10)
    append_all(database, message("c"))
    operations: Operations = []
    database._generations.stage_drop(operations, 1)
    database.tables()[0].write(operations)
    database.close()
    database = RocksDatabase.open(path, read_only=True)
    assert list(database.check()) == []
    database.close()
    database = RocksDatabase.open(path)
    assert [m.topic for m in await read_all(database, "#")] == ["c"]
    assert not set(table_names(1)) & database.tables()[0].tables
    database.close()


@pytest.mark.trap(32)
def test_tables_without_a_header_that_hold_messages_are_left_alone(path: Path) -> None:
    fill(path)
    edit(path, META, keys.generation_header(1), None)
    edit(
        path, META, keys.generation_header(7), encode_record(GenerationHeader(7, 1, 1, 0, 0, (9,)))
    )
    with pytest.raises(StorageCorrupt):
        RocksDatabase.open(path)
    edit(path, tables=table_names(7))
    database = RocksDatabase.open(path)
    problems = [found.problem for found in database.check() if found.table == table_names(1)[0]]
    assert problems == ["messages of a generation that has no header"]
    database.close()
    engine = Engine(path, RocksdbConfig())
    assert len(list(engine.keys(table_names(1)[0], b"", b"\xff"))) == 2
    engine.close()


@pytest.mark.parametrize("number", [1, 4])
def test_the_index_is_written_as_the_header_says(
    path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(store.LAYOUTS, "skipscan", number)
    database = RocksDatabase.open(path, config=RocksdbConfig(learn_thresholds=(0,)), now_us=NOW_US)
    for generation in (1, 2, 3):
        append_all(database, *(message(f"a/{n % 2}") for n in range(6)))
        values = [
            value
            for _, value in database.tables()[0].items(f"g0000000{generation}.index", b"", b"x")
        ]
        assert len(values) == (12 if number == 1 else 3)
        if generation == 1:
            assert database.rotate(NOW_US + 100).layout == number
        elif generation == 2:
            structure = Structure((0,), ())
            assert database.rotate_to(structure, NOW_US + 200).layout == number
    database.close()


def test_unknown_layout_is_too_new(path: Path) -> None:
    fill(path)
    edit(path, META, keys.generation_header(1), encode_record(GenerationHeader(1, 99, 1, 0, 0)))
    with pytest.raises(FormatTooNew):
        RocksDatabase.open(path)


def test_later_counters_are_too_new(path: Path) -> None:
    fill(path)
    edit(path, META, keys.generation_counters(1), b"\x02" + bytes(8))
    with pytest.raises(FormatTooNew):
        RocksDatabase.open(path)


def test_a_damaged_topic_structure_is_corrupt(path: Path) -> None:
    fill(path)
    edit(path, META, keys.generation_node(1, 2), b"\x01")
    with pytest.raises(StorageCorrupt):
        RocksDatabase.open(path)


def generation() -> Generation:
    engine = None
    layout = BitmaskLayout(lambda: engine, 1)  # type: ignore[arg-type,return-value]
    return Generation(GenerationHeader(1, 2, 1, 0, 0), layout)


def test_points_are_sparse_and_bound_from_above() -> None:
    found = generation()
    operations: Operations = []
    messages = [Message("t", b"", offset=10 * number) for number in range(1, 5_001)]
    for first in range(0, 5_000, 1_500):
        rows = rows_of(messages[first : first + 1_500])
        found.stage_counts(operations, rows)
        found.count(rows)
    assert found.counts == [1_024, 2_048, 3_072, 4_096]
    assert found.offsets == [10_240, 20_480, 30_720, 40_960]
    points = [
        (key, value)
        for key, value in zip(operations[1::3], operations[2::3], strict=True)
        if key.startswith(b"P")
    ]
    assert points[0] == (keys.generation_point(1, 10_240), (1_024).to_bytes(8))
    assert len(points) == 4
    for after in (0, 5, 10_239, 10_240, 33_333, 50_000):
        truth = sum(each.offset > after for each in messages)
        assert truth <= found.messages_after(after) <= truth + 1_024


def test_a_late_batch_makes_no_point_out_of_order() -> None:
    found = generation()
    found.count(rows_of([Message("t", b"", offset=5_000 + number) for number in range(1_024)]))
    found.count(rows_of([Message("t", b"", offset=100 + number) for number in range(1_024)]))
    assert found.offsets == [6_023]
    assert found.messages_after(0) == 2_048
    assert found.messages_after(6_023) == 1_024


def test_large_messages_make_points_too() -> None:
    found = generation()
    mebibyte = 1024 * 1024
    for number in range(1, 11):
        found.count(rows_of([Message("t", bytes(mebibyte), offset=number)]))
    assert (found.offsets, found.counts) == ([4, 8], [4, 8])
    assert [found.newest(count) for count in (10, 9, 6, 3, 2, 1)] == [0, 4, 4, 8, 8, 8]
    # After a start nobody knows how much followed the last point.
    found.unmarked_bytes = 0
    found.count(rows_of([Message("t", bytes(5 * mebibyte), offset=11)]))
    assert found.offsets == [4, 8, 11]


def test_the_newest_of_a_generation_without_points() -> None:
    found = generation()
    assert found.newest(5) == 0
    found.count(rows_of([Message("t", b"", offset=number) for number in range(1, 61)]))
    assert [found.newest(count) for count in (0, 32, 60, 100)] == [0, 0, 0, 0]


@pytest.mark.parametrize("layout", ["skipscan", "bitmask"])
def test_what_writing_remembers_goes_with_the_rotation(path: Path, layout: str) -> None:
    config = RocksdbConfig(layout=layout)
    database = RocksDatabase.open(path, config=config, now_us=NOW_US)
    append_all(database, message("a/1"), message("b"), message("a/1"))
    append_all(database, message("a/1"))
    ended = database._generations.current.layout
    assert isinstance(ended, (SkipScanLayout, BitmaskLayout))
    assert len(ended._keys) > 0
    database.rotate(NOW_US + 10)
    assert not ended._keys
    database.close()


def test_table_names() -> None:
    assert table_generation("g00000012.data") == 12
    assert table_generation("g00000012.index") == 12
    for other in ("state", "default", "g1.other", "gx.data", "data"):
        assert table_generation(other) == 0


async def test_a_generation_begins_with_a_structure(path: Path) -> None:
    fill(path)
    database = RocksDatabase.open(path, now_us=NOW_US)
    info = database.rotate_to(Structure((3, 1), ("rooms/+/t",)), NOW_US + 10)
    assert (info.generation, info.stream_count) == (2, 0)
    append_all(database, message("rooms/1/t"), message("rooms/2/t"), message("a/1"))
    database.close()
    database = RocksDatabase.open(path)
    append_all(database, message("rooms/3/t"), message("a/2"))
    assert {each.pattern for each in database.streams(2)} == {"rooms/+/t", "a/1", "a/+"}
    assert [m.topic for m in await read_all(database, "rooms/+/t")] == [
        *("rooms/1/t", "rooms/2/t", "rooms/3/t")
    ]
    assert list(database.check()) == []
    # The next one inherits it.
    database.rotate(NOW_US + 20)
    append_all(database, message("rooms/1/t"))
    assert [each.pattern for each in database.streams(3)] == ["rooms/+/t"]
    with pytest.raises(ConfigError):
        database.rotate_to(Structure((), ()), NOW_US + 30)
    database.close()


async def test_a_layout_that_learns_nothing_takes_no_structure(path: Path) -> None:
    database = RocksDatabase.open(path, config=RocksdbConfig(layout="bitmask"), now_us=NOW_US)
    assert database.rotate_to(Structure((3,), ("rooms/+",)), NOW_US + 10).generation == 2
    append_all(database, message("rooms/1"))
    assert [m.topic for m in await read_all(database, "rooms/+")] == ["rooms/1"]
    database.close()
