"""The tail and the tables give the same, and the tail is used where it is less work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageCorrupt
from perdure.model import Message
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.engine import Engine
from perdure.storage.rocksdb.layout import table_names
from perdure.storage.rocksdb.layout_v1 import SkipScanLayout
from perdure.topic.filter_set import FilterSet
from tests.contract.values import NOW_US, append_all, message


async def test_fresh_reads_ask_no_table(tmp_path: Path) -> None:
    database = RocksDatabase.open(tmp_path / "d", now_us=NOW_US)
    offsets = append_all(database, *[message(f"t/{n % 5}") for n in range(2_000)])
    generation = database._generations.current
    asked: list[int] = []
    scan = generation.layout.scan

    class Watched:
        def __getattr__(self, name: str) -> object:
            return getattr(generation_layout, name)

        def scan(self, filters: Any, *, after_offset: int, **bounds: Any) -> object:
            asked.append(after_offset)
            return scan(filters, after_offset=after_offset, **bounds)

    generation_layout = generation.layout
    assert isinstance(generation_layout, SkipScanLayout)
    generation.layout = Watched()  # type: ignore[assignment]
    exact, wild, rare = ["t/1", "t/2"], ["t/1/#", "t/2/#"], ["t/9/#"]
    for filters, back, limit, is_fresh in (
        (wild, 10, 10, True),
        (wild, 500, 1, True),
        # However far back it begins, a page is what its own messages cost.
        (wild, 2_000, 256, True),
        (rare, 500, 1, True),
        (rare, 1_500, 1, False),
        (exact, 10, 10, True),
        (exact, 1_500, 1, True),
        (exact, 2_000, 1_000, True),
    ):
        asked.clear()
        bounds = {"after_offset": offsets[-back] - 1, "until_offset": offsets[-1]}
        result = await database.read(filters, limit=limit, **bounds)
        assert bool(asked) != is_fresh
        assert len(result.messages) == (0 if filters is rare else min(limit, back * 2 // 5))
    generation.layout = generation_layout
    database.close()


async def test_tail_and_tables_give_the_same(tmp_path: Path) -> None:
    database = RocksDatabase.open(tmp_path / "d", now_us=NOW_US)
    for first in range(0, 300, 30):
        append_all(
            database, *[message(f"t/{n % 7}", b"x" * (n % 11)) for n in range(first, first + 30)]
        )
    database.sync()
    tables = RocksDatabase.open(
        tmp_path / "d", config=RocksdbConfig(tail_messages=0), read_only=True
    )
    for after in range(NOW_US - 1, NOW_US + 300, 37):
        for filters in (["#"], ["t/3"], ["t/1", "+/2"]):
            for bounds in ({"limit": 7}, {"limit": 500}, {"limit": 500, "bytes_max": 40}):
                until = NOW_US + 280
                expected = await tables.read(
                    filters, after_offset=after, until_offset=until, **bounds
                )
                found = await database.read(
                    filters, after_offset=after, until_offset=until, **bounds
                )
                assert found == expected
    tables.close()
    database.close()


async def test_a_page_is_as_large_as_its_messages(tmp_path: Path) -> None:
    """Not as their payloads: topics and properties are held as well."""
    for tail_messages in (0, 1_000):
        config = RocksdbConfig(tail_messages=tail_messages)
        database = RocksDatabase.open(tmp_path / str(tail_messages), config=config, now_us=NOW_US)
        append_all(
            database,
            *[Message(f"t/{n}", b"", 1, properties=b"p" * 1_000) for n in range(20)],
            *[Message("t" * 1_000 + str(n), b"", 1) for n in range(20)],
        )
        after = NOW_US - 1
        count = 0
        while page := await database.read(
            ["#"], after_offset=after, until_offset=NOW_US + 10**6, limit=100, bytes_max=5_500
        ):
            count += len(page.messages)
            assert len(page.messages) <= 5
            if not page.messages or page.through_offset == NOW_US + 10**6:
                break
            after = page.through_offset
        assert count == 40
        database.close()


def bursts(path: Path, config: RocksdbConfig, count: int) -> list[int]:
    """A closed database with messages of many topics, bursts among them; their offsets."""
    database = RocksDatabase.open(path, config=config, now_us=NOW_US)
    offsets: list[int] = []
    for first in range(0, count, 500):
        topics = [f"t/{n // 3 % 40}" if n % 9 else "$x/y" for n in range(first, first + 500)]
        offsets += append_all(database, *[message(topic, b"x" * 10) for topic in topics])
    database.close()
    return offsets


async def test_a_warm_tail_is_what_the_tables_hold(tmp_path: Path) -> None:
    offsets = bursts(tmp_path / "d", RocksdbConfig(), 5_000)
    cold = RocksDatabase.open(tmp_path / "d", config=RocksdbConfig(tail_messages=0), read_only=True)
    warm = RocksDatabase.open(tmp_path / "d", config=RocksdbConfig(tail_messages=3_000))
    warm.warm()
    floor = warm._tail.floor
    # Where to begin is known to a thousand messages or so.
    assert offsets[-3_001] <= floor <= offsets[-1_900]
    bounds = {"until_offset": offsets[-1], "limit": 10_000}
    for filters in (["#", "$x/#"], ["t/7"], ["$x/y"]):
        for after in (floor, floor + 5, offsets[-10], offsets[0]):
            found = await warm.read(filters, after_offset=after, **bounds)
            assert found == await cold.read(filters, after_offset=after, **bounds)
    assert warm._tail.between(floor, offsets[-1], 10_000) is not None
    (next_offset,) = append_all(warm, message("t/7"), now_us=NOW_US + 10**9)
    found = await warm.read(["t/7"], after_offset=offsets[-1], until_offset=next_offset, limit=9)
    assert [each.offset for each in found.messages] == [next_offset]
    warm.close()
    cold.close()


def test_a_warm_tail_is_in_pieces_that_are_joined(tmp_path: Path) -> None:
    """Rows that are not joined are read as large ones are, which costs twice as much."""
    database = RocksDatabase.open(tmp_path / "d", now_us=NOW_US)
    for first in range(0, 2_000, 100):
        append_all(database, *[message(f"t/{n}", b"x" * 300) for n in range(first, first + 100)])
    database.close()
    database = RocksDatabase.open(tmp_path / "d")
    database.warm()
    chunks = database._tail._chunks
    assert sum(chunk.count for chunk in chunks) == 2_000
    assert all(chunk.blob for chunk in chunks)
    database.close()


def test_a_warm_tail_keeps_its_bounds(tmp_path: Path) -> None:
    offsets = bursts(tmp_path / "d", RocksdbConfig(), 5_000)
    for config, most in (
        (RocksdbConfig(tail_messages=100), 100),
        (RocksdbConfig(tail_bytes=2_000), 200),
        (RocksdbConfig(tail_messages=0), 0),
    ):
        database = RocksDatabase.open(tmp_path / "d", config=config)
        database.warm()
        kept = database._tail.between(database._tail.floor, offsets[-1], 10_000)
        assert kept is not None
        assert len(kept) <= most
        database.close()


def test_what_cannot_be_warm(tmp_path: Path) -> None:
    """Nothing yet, a layout that has no streams, a row that is damaged: reads ask the tables."""
    empty = RocksDatabase.open(tmp_path / "empty", now_us=NOW_US)
    empty.warm()
    empty.close()
    config = RocksdbConfig(layout="bitmask")
    offsets = bursts(tmp_path / "b", config, 500)
    bitmask = RocksDatabase.open(tmp_path / "b", config=config)
    bitmask.warm()
    assert bitmask._tail.floor >= offsets[-1]
    bitmask.close()
    offsets = bursts(tmp_path / "d", RocksdbConfig(), 500)
    engine = Engine(tmp_path / "d", RocksdbConfig())
    data = table_names(1)[0]
    key = next(engine.keys(data, b"", b"\xff"))
    engine.write([data, key, b"\x01"])
    engine.close()
    database = RocksDatabase.open(tmp_path / "d")
    with pytest.raises(StorageCorrupt):
        database.warm()
    assert database._tail.floor >= offsets[-1]
    append_all(database, message("t/1"))
    database.close()


async def test_a_read_that_finds_little_ends_early_and_is_gone_on_with(tmp_path: Path) -> None:
    database = RocksDatabase.open(
        tmp_path / "d", now_us=NOW_US, config=RocksdbConfig(tail_messages=0)
    )
    offsets = append_all(database, *[message(f"t/{n % 1_000}") for n in range(20_000)])
    wanted = FilterSet([f"t/none-{n}" for n in range(400)] + ["t/999"])
    after, reads, found = offsets[0] - 1, 0, []
    while after < offsets[-1]:
        page = await database.read(
            wanted, after_offset=after, until_offset=offsets[-1], limit=1_000
        )
        assert page.through_offset > after
        after, reads = page.through_offset, reads + 1
        found += [each.topic for each in page.messages]
    assert found == ["t/999"] * 20
    assert reads > 2

    after, counts = offsets[0] - 1, []
    while after < offsets[-1]:
        counted = await database.count(
            wanted, after_offset=after, until_offset=offsets[-1], limit=1_000
        )
        assert counted.through_offset > after
        after = counted.through_offset
        counts.append(counted.count)
    assert sum(counts) == 20
    assert len(counts) > 2
    database.close()
