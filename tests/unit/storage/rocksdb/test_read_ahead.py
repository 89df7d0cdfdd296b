"""Readers that go on get what readers that begin anew get, and nothing is held without end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from perdure.config.schema import RocksdbConfig
from perdure.model import Message
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.layout_v1 import SkipScanLayout
from perdure.storage.rocksdb.log import LogReader
from perdure.storage.rocksdb.read_ahead import (
    BYTES_MAX,
    MESSAGES_MAX,
    PAGES,
    READERS_MAX,
    UNUSED_READS_MAX,
    ReadAhead,
)
from tests.contract.values import NOW_US, append_all, message

COLD = RocksdbConfig(tail_messages=0)
"""Nothing is read from memory."""


def _messages(count: int) -> list[Message]:
    return [message(f"t/{number}") for number in range(count)]


@pytest.mark.parametrize("seed", range(8))
async def test_readers_that_go_on_get_the_same(tmp_path: Path, seed: int) -> None:
    """Several at a time, with pages of any length, while messages come and a generation goes."""
    chance = random.Random(seed)
    database = RocksDatabase.open(tmp_path / "d", config=COLD, now_us=NOW_US)
    offsets: list[int] = []
    readers: list[tuple[list[str], int]] = [
        (filters, NOW_US - 1) for filters in (["#"], ["t/+"], ["t/1", "t/2/#"], ["t/+"], ["#"])
    ]
    is_dropped = False
    for turn in range(200):
        act = chance.random()
        if act < 0.15:
            count = chance.choice((1, 40, 300))
            size = chance.choice((1, 1, 1, 2_000))
            offsets += append_all(
                database,
                *[message(f"t/{n % 7}", b"x" * size, offset=0) for n in range(count)],
            )
            continue
        if turn > 100 and offsets and not is_dropped:
            database.rotate(NOW_US)
            database.drop_generation(database.generations()[0].generation)
            is_dropped = True
            continue
        if not offsets:
            continue
        at = chance.randrange(len(readers))
        filters, after = readers[at]
        until = chance.choice((offsets[-1], offsets[-1], chance.choice(offsets)))
        limit, bytes_max = chance.choice((1, 5, 30, 100)), chance.choice((0, 0, 500, 20_000))
        if until <= after:
            continue
        found = await database.read(
            filters, after_offset=after, until_offset=until, limit=limit, bytes_max=bytes_max
        )
        anew = LogReader(database._generations, database._tail, database._offsets)
        expected = anew.read(filters, after, until, 10_000, 0).messages
        assert found.messages == [m for m in expected if m.offset <= found.through_offset]
        assert len(found.messages) <= limit
        assert found.messages or found.through_offset == until
        readers[at] = (filters, found.through_offset)
    assert is_dropped
    database.close()


async def test_who_goes_on_asks_the_tables_once_for_several_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = RocksDatabase.open(tmp_path / "d", config=COLD, now_us=NOW_US)
    offsets = append_all(database, *[message(f"t/{n % 5}") for n in range(1_000)])
    layout = database._generations.current.layout
    assert isinstance(layout, SkipScanLayout)
    asked: list[int] = []

    class Watched:
        def __getattr__(self, name: str) -> object:
            return getattr(layout, name)

        def scan(self, *args: object, **bounds: int) -> object:
            asked.append(bounds["after_offset"])
            return layout.scan(*args, **bounds)  # type: ignore[arg-type]

    database._generations.current.layout = Watched()  # type: ignore[assignment]
    after, got = NOW_US - 1, []
    while after < offsets[-1]:
        page = await database.read(["#"], after_offset=after, until_offset=offsets[-1], limit=50)
        got += [each.offset for each in page.messages]
        after = page.through_offset
    assert got == offsets
    assert len(asked) <= 1_000 // (50 * PAGES) + 2
    database.close()


async def test_what_a_dropped_generation_held_is_not_given(tmp_path: Path) -> None:
    database = RocksDatabase.open(tmp_path / "d", config=COLD, now_us=NOW_US)
    offsets = append_all(database, *[message(f"t/{n % 5}") for n in range(1_000)])
    after = NOW_US - 1
    for _ in range(2):
        page = await database.read(["#"], after_offset=after, until_offset=offsets[-1], limit=10)
        after = page.through_offset
    database.rotate(NOW_US)
    offsets += append_all(database, message("t/new"))
    database.drop_generation(database.generations()[0].generation)
    page = await database.read(["#"], after_offset=after, until_offset=offsets[-1], limit=10)
    assert [each.offset for each in page.messages] == offsets[-1:]
    database.close()


async def test_large_messages_are_not_read_ahead_without_end(tmp_path: Path) -> None:
    database = RocksDatabase.open(tmp_path / "d", config=COLD, now_us=NOW_US)
    size = BYTES_MAX // 8
    offsets = append_all(database, *[message("t", b"x" * size) for _ in range(64)])
    after = NOW_US - 1
    for _ in range(2):
        page = await database.read(["#"], after_offset=after, until_offset=offsets[-1], limit=4)
        after = page.through_offset
    (held,) = database._log._ahead._held.values()
    assert 0 < len(held.messages) * size <= BYTES_MAX
    database.close()


def test_so_many_are_held_and_who_does_not_come_makes_room() -> None:
    ahead = ReadAhead()
    rest = _messages(3)

    def reads(name: str) -> int:
        """The second page of a reader; how many messages are read for it."""
        ahead.gave(((name,), 0), 10, [], 10)
        most = ahead.most(((name,), 10), 100)
        if most > 100:
            ahead.gave(((name,), 10), 20, rest, 30)
        return most

    assert [reads(f"f{n}") for n in range(READERS_MAX)] == [100 * PAGES] * READERS_MAX
    assert reads("more") == 100
    for _ in range(UNUSED_READS_MAX):
        ahead.most((("x",), 0), 1)
    assert reads("late") == 100 * PAGES
    assert ahead.take((("f0",), 20), 100) is None
    held = ahead.take((("f1",), 20), 100)
    assert held is not None
    assert held.messages == rest


def test_a_page_is_never_cut_and_what_is_read_ahead_has_a_bound() -> None:
    ahead = ReadAhead()
    for limit, most in ((1, PAGES), (MESSAGES_MAX, MESSAGES_MAX), (4_096, 4_096)):
        ahead.gave((("#",), 0), 10, [], 10)
        assert ahead.most((("#",), 10), limit) == most
        assert ahead.most((("#",), 10), limit) == limit


def test_what_lies_beyond_the_bound_of_a_reader_is_not_given() -> None:
    ahead = ReadAhead()
    ahead.gave((("#",), 0), 10, _messages(2), 30)
    assert ahead.take((("#",), 10), 29) is None
    assert ahead.take((("#",), 10), 30) is not None
    assert ahead.take((("#",), 10), 30) is None
