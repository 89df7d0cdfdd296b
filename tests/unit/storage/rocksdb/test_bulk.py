"""Bulk reads give what reads give, however a range is cut and filters are combined."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.config.schema import RocksdbConfig
from perdure.errors import FormatTooNew, StorageUnavailable
from perdure.model import Message
from perdure.storage import bundle
from perdure.storage.batch import Batch
from perdure.storage.codec import decode_message
from perdure.storage.rocksdb import RocksDatabase, bulk_rows, bulk_slices, single_rows
from perdure.storage.rocksdb.bulk import (
    FilterSets,
    LogFiles,
    intersection,
)
from perdure.storage.rocksdb.bulk_slices import Slice
from perdure.storage.rocksdb.layout_v1_keys import unpack_data
from perdure.topic.matching import matches
from tests.support.staged import Staged, take_offset

START = 1_700_000_000_000_000
LEVELS = st.sampled_from(["a", "b", "c", "d", "e", "", "$x", "42"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTER_LEVELS = st.sampled_from(["a", "b", "c", "", "$x", "42", "+", "+"])
FILTERS = st.builds(
    lambda levels, tail: "/".join([*levels, "#"] if tail else levels),
    st.lists(FILTER_LEVELS, min_size=1, max_size=4),
    st.booleans(),
).filter(bool)
CONFIG = RocksdbConfig(learn_thresholds=(2, 2), tail_messages=0)


def write(database: RocksDatabase, topics: list[str], *, at: int, step: int = 10) -> list[Message]:
    staged = Staged(database)
    messages = [Message(topic, topic.encode(), 1, publisher="p") for topic in topics]
    for number, message in enumerate(messages):
        staged.append(message, at + number * step)
    return messages


def read(
    files: LogFiles, sets: FilterSets, slices: list[Slice], rows_max: int = 3
) -> list[Message]:
    found = []
    for part in slices:
        layout = files.layout(part.generation)
        for page in files.pages(sets, part, rows_max=rows_max):
            assert len(page.keys) == len(page.values) > 0
            for key, value in zip(page.keys, page.values, strict=True):
                found.append(decode_message(layout.topic(key), unpack_data(key)[1], value))
    return found


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    opened = RocksDatabase.open(tmp_path / "db", config=CONFIG, now_us=START)
    yield opened
    opened.close()


@settings(
    max_examples=25,
)
@given(
    bursts=st.lists(st.tuples(TOPICS, st.sampled_from([1, 1, 1, 3, 70])), min_size=1, max_size=30),
    # One by one, or in bursts that are rows of many messages.
    step=st.sampled_from([10, 0]),
    sets=st.lists(st.lists(FILTERS, min_size=1, max_size=3).map(tuple), max_size=2).map(tuple),
    cuts=st.lists(st.integers(0, 400), max_size=4),
    rotate=st.booleans(),
    shares=st.booleans(),
)
def test_equal_to_a_naive_filter_on_the_whole_log(
    tmp_path_factory: pytest.TempPathFactory,
    bursts: list[tuple[str, int]],
    step: int,
    sets: FilterSets,
    cuts: list[int],
    rotate: bool,
    shares: bool,
) -> None:
    path = tmp_path_factory.mktemp("bulk")
    database = RocksDatabase.open(path, config=CONFIG, now_us=START)
    topics = [topic for topic, count in bursts for _ in range(count)]
    half = len(topics) // 2 if rotate else 0
    written = write(database, topics[:half], at=START, step=step)
    if rotate:
        database.rotate(START + 30_000)
    written += write(database, topics[half:], at=START + 40_000, step=step)
    files = LogFiles(path)
    bounds = sorted(
        {0, *(START + (not rotate) * 40_000 + cut * (step or 1) for cut in cuts), 2 * START}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_slices, "_CONSTRAINTS_PER_SHARE", 0)
        slices = [
            part
            for after, until in pairwise(bounds)
            for part in files.slices(sets, after, until, rows_max=7, shares=shares)
        ]
    found = read(files, sets, slices)
    expected = [
        message
        for message in written
        if all(any(matches(each, message.topic) for each in filters) for filters in sets)
    ]
    assert sorted(found, key=lambda message: message.offset) == expected
    files.close()
    database.close()


def test_pages_of_bursts_end_after_many_bytes(database: RocksDatabase, tmp_path: Path) -> None:
    batch = Batch()
    for _ in range(300):
        # At one time: of a burst.
        batch.append(Message("d/1", bytes(100), 1))
    database.submit(batch, START)
    files = LogFiles(tmp_path / "db")
    rows = list(files._engine.keys(files.layout(1).tables[0], b"", b"\xff"))
    assert len(rows) == -(-300 // bundle.MESSAGES_MAX)
    part = Slice(1, 0, START * 2, 300)
    for sets in ((), (("d/1",),)):
        pages = list(files.pages(sets, part, rows_max=1_000, bytes_max=10_000))
        assert sum(len(page.keys) for page in pages) == 300
        assert max(len(page.keys) for page in pages) <= 90 + 64
    files.close()


def test_a_bundle_is_found_among_many() -> None:
    single, several = b"\x01x", bytes([bundle.KIND]) + b"x"
    assert single_rows._any_bundle([b"k", single, b"k", several])
    assert not single_rows._any_bundle([several, single, several, single])
    assert single_rows._any_bundle([b"k", single, b"k", b"", b"k", several])
    assert not single_rows._any_bundle([b"k", b"", b"k", single])


def test_slices_follow_the_sparse_counts(database: RocksDatabase, tmp_path: Path) -> None:
    for number in range(5):
        write(database, ["a/b"] * 1024, at=START + number * 1024 * 10)
    files = LogFiles(tmp_path / "db")
    slices = files.slices((), 0, START * 2, rows_max=1024)
    assert len(slices) == 5
    assert [len(read(files, (), [part])) for part in slices] == [1024] * 5
    assert len(files.slices((("other/#",),), 0, START * 2, rows_max=1024)) == 0
    files.close()


def test_the_newest_message_is_one_that_can_be_seen(
    database: RocksDatabase, tmp_path: Path
) -> None:
    empty = LogFiles(tmp_path / "db")
    assert empty.newest() is None
    empty.close()
    written = write(database, ["a", "b/c", "a"], at=START)
    # What is placed besides is no message.
    take_offset(database, START + 1_000_000)
    write(database, [], at=START)
    files = LogFiles(tmp_path / "db")
    newest = files.newest()
    assert newest is not None
    assert newest == (1, written[-1].offset)
    database.rotate(START + 2_000_000)
    again = LogFiles(tmp_path / "db")
    assert again.newest() == newest
    files.close()
    again.close()


def test_beside_a_writer_it_sees_what_was_there_when_opened(
    database: RocksDatabase, tmp_path: Path
) -> None:
    write(database, ["a"] * 3, at=START)
    files = LogFiles(tmp_path / "db")
    write(database, ["a"] * 3, at=START + 1_000)
    part = Slice(1, 0, START * 2, 3)
    assert len(read(files, (), [part])) == 3
    later = LogFiles(tmp_path / "db")
    assert len(read(later, (), [part])) == 6
    assert later.database_id == files.database_id
    files.close()
    later.close()


def test_a_dropped_generation_is_named(database: RocksDatabase, tmp_path: Path) -> None:
    write(database, ["a"], at=START)
    database.rotate(START + 1_000)
    kept = LogFiles(tmp_path / "db")
    database.drop_generation(1)
    # Who had it open before reads on; who comes after is told.
    assert len(read(kept, (), [Slice(1, 0, START * 2, 1)])) == 1
    files = LogFiles(tmp_path / "db")
    with pytest.raises(StorageUnavailable, match=r"generation 1 .* was dropped"):
        files.layout(1)
    kept.close()
    files.close()


def test_another_layout_is_refused(tmp_path: Path) -> None:
    database = RocksDatabase.open(tmp_path, config=RocksdbConfig(layout="bitmask"), now_us=START)
    write(database, ["a"], at=START)
    files = LogFiles(tmp_path)
    with pytest.raises(FormatTooNew, match="not read in bulk"):
        files.slices((), 0, START * 2, rows_max=10)
    files.close()
    database.close()


def test_no_database(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="holds no database"):
        LogFiles(tmp_path)


@pytest.mark.parametrize("rows_max", [1, 7, 1024, 1025, 3000])
@pytest.mark.parametrize("skipped", [0, 1030])
def test_bound_lets_through_no_more_than_it_was_told(
    database: RocksDatabase, tmp_path: Path, rows_max: int, skipped: int
) -> None:
    written = write(database, ["a/b", "a/c"] * 1300, at=START)
    database.rotate(START + 100_000)
    written += write(database, ["a/b"] * 1100, at=START + 200_000)
    files = LogFiles(tmp_path / "db")
    after = written[skipped].offset
    through = files.bound((), after, written[-1].offset, rows_max)
    passed = [message for message in written if after < message.offset <= through]
    assert 0 < len(passed) <= rows_max
    one = files.bound((("a/c",),), after, written[-1].offset, 3)
    passed = [message for message in written if after < message.offset <= one]
    assert 0 < sum(message.topic == "a/c" for message in passed) <= 3
    files.close()


def test_pages_end_after_many_bytes(database: RocksDatabase, tmp_path: Path) -> None:
    batch = Batch()
    for _ in range(5):
        batch.append(Message("a", bytes(9 * 1024 * 1024), 1))
    database.submit(batch, START)
    files = LogFiles(tmp_path / "db")
    pages = list(files.pages((), Slice(1, 0, START * 2, 5), rows_max=1000))
    assert [len(page.keys) for page in pages] == [4, 1]
    files.close()


def test_intersection_joins_constraints() -> None:
    one = {1: None, 2: {((0, "x"),)}, 3: {((0, "x"),)}, 4: {((1, "y"),)}}
    other = {1: {((0, "z"),)}, 2: None, 3: {((0, "y"),)}, 4: {((0, "x"),), ((1, "n"),)}, 5: None}
    assert intersection(one, other) == {
        1: {((0, "z"),)},
        2: {((0, "x"),)},
        4: {((0, "x"), (1, "y"))},
    }


def test_few_messages_of_single_topics_do_not_make_many_slices(tmp_path: Path) -> None:
    config = RocksdbConfig(tail_messages=0, learn_thresholds=(100, 2))
    database = RocksDatabase.open(tmp_path, config=config, now_us=START)
    # The first topics have streams of their own, from before the level was learned.
    write(database, [f"d/{number % 50}" for number in range(6_000)], at=START)
    files = LogFiles(tmp_path)
    one = (("d/7",),)
    both = (("d/0", "d/7"),)
    assert None in files.plan(1, both).values()
    for sets, rows_max, count in (
        (one, 1_024, 1),
        (both, 1_024, 1),
        # 120 of "d/0" are as much as was counted: then they may be many.
        (both, 800, 6),
        ((("d/+",),), 1_024, 6),
        ((), 1_024, 6),
    ):
        slices = files.slices(sets, 0, START * 2, rows_max=rows_max)
        assert len(slices) == count, (sets, rows_max)
        found = read(files, sets, slices)
        assert len(found) == {one: 120, both: 240}.get(sets, 6_000)
    files.close()
    database.close()


def test_more_rows_than_are_looked_up_at_once_come_as_they_are_found(
    database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = write(database, [f"d/{number % 5}/{number % 3}" for number in range(90)], at=START)
    files = LogFiles(tmp_path / "db")
    sets = (("d/3/+", "d/4/1"),)
    part = files.slices(sets, 0, START * 2, rows_max=1_000)
    found = read(files, sets, part, rows_max=1_000)
    monkeypatch.setattr(bulk_rows, "PICKED_MAX", 3)
    assert read(files, sets, part, rows_max=1_000) == found
    wanted = [each for each in written if each.topic[:3] == "d/3" or each.topic == "d/4/1"]
    assert sorted(found, key=lambda message: message.offset) == wanted
    files.close()


def test_reads_agree_with_the_contract(database: RocksDatabase, tmp_path: Path) -> None:
    write(database, [f"devices/{number % 9}/t" for number in range(200)], at=START)
    files = LogFiles(tmp_path / "db")
    sets = (("devices/7/+", "devices/1/t"),)
    found = read(files, sets, files.slices(sets, 0, START * 2, rows_max=50))
    page = asyncio.run(database.read(sets[0], after_offset=0, until_offset=START * 2, limit=10_000))
    assert sorted(found, key=lambda message: message.offset) == page.messages
    files.close()
