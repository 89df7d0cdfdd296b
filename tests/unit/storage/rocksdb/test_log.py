"""The tail and the tables give the same, and the tail is used where it is less work."""

from __future__ import annotations

from pathlib import Path

from tests.contract.values import NOW_US, append_all, message

from perdure.config.schema import RocksdbConfig
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.layout_v1 import SkipScanLayout


async def test_fresh_reads_ask_no_table(tmp_path: Path) -> None:
    database = RocksDatabase.open(tmp_path / "d", now_us=NOW_US)
    offsets = append_all(database, *[message(f"t/{n % 5}") for n in range(2_000)])
    generation = database._generations.current
    asked: list[int] = []
    scan = generation.layout.scan

    class Watched:
        def __getattr__(self, name: str) -> object:
            return getattr(generation_layout, name)

        def scan(self, filters: object, *, after_offset: int, until_offset: int) -> object:
            asked.append(after_offset)
            return scan(filters, after_offset=after_offset, until_offset=until_offset)  # type: ignore[arg-type]

    generation_layout = generation.layout
    assert isinstance(generation_layout, SkipScanLayout)
    generation.layout = Watched()  # type: ignore[assignment]
    exact, wild = ["t/1", "t/2"], ["t/1/#", "t/2/#"]
    for filters, back, limit, is_fresh in (
        (wild, 10, 10, True),
        (wild, 500, 1, True),
        (wild, 1_500, 1, False),
        (exact, 10, 10, True),
        (exact, 1_500, 1, True),
        (exact, 2_000, 1_000, True),
    ):
        asked.clear()
        bounds = {"after_offset": offsets[-back] - 1, "until_offset": offsets[-1]}
        result = await database.read(filters, limit=limit, **bounds)
        assert bool(asked) != is_fresh
        assert len(result.messages) == min(limit, back * 2 // 5)
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
