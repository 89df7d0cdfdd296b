"""Starts: whatever shape the log has, it opens, and its tail is what its tables hold."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.config.schema import RocksdbConfig
from perdure.model import Message
from perdure.storage.rocksdb import RocksDatabase
from tests.contract.values import NOW_US, append_all, message, read_all


class Burst(NamedTuple):
    """Messages that are written together."""

    count: int
    payload_bytes: int
    topics: int


class Shape(NamedTuple):
    """A log, and how it is opened.

    Attributes:
        generations: their layouts, and what was written to each.
        tail_messages, tail_bytes: of the start.
    """

    generations: list[tuple[str, list[Burst]]]
    tail_messages: int
    tail_bytes: int


BURSTS = st.builds(
    Burst,
    st.one_of(st.integers(1, 70), st.sampled_from([1023, 1024, 1025, 1500])),
    st.sampled_from([0, 1, 30, 2_000]),
    st.integers(1, 5),
)
LARGE = st.builds(Burst, st.integers(1, 6), st.sampled_from([70_000, 300_000]), st.integers(1, 3))
GENERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["skipscan", "skipscan", "bitmask"]),
        st.lists(st.one_of(BURSTS, LARGE), max_size=4),
    ),
    min_size=1,
    max_size=3,
)
SHAPES = st.builds(
    Shape,
    GENERATIONS,
    st.sampled_from([0, 1, 10, 1_000, 1_024, 50_000]),
    st.sampled_from([0, 1, 5_000, 400_000, 32 * 1024 * 1024]),
)


def write(path: Path, shape: Shape) -> list[Message]:
    """Make the log; returns its messages."""
    now_us = NOW_US
    written: list[Message] = []
    for number, (layout, bursts) in enumerate(shape.generations):
        database = RocksDatabase.open(path, config=RocksdbConfig(layout=layout), now_us=now_us)
        if number or layout != "skipscan":
            database.rotate(now_us)
        for count, size, topics in bursts:
            now_us += 1_000_000
            some = [message(f"t/{n % topics}", bytes(size)) for n in range(count)]
            append_all(database, *some, now_us=now_us)
            written += some
        database.close()
    return written


def check(path: Path, shape: Shape, written: list[Message]) -> None:
    """Open it and compare it with what was written."""
    config = RocksdbConfig(tail_messages=shape.tail_messages, tail_bytes=shape.tail_bytes)
    database = RocksDatabase.open(path, config=config)
    try:
        database.warm()
        offsets = [each.offset for each in written]
        tail = database._tail
        last = database.last_offset
        kept = tail.between(tail.floor, last, 1_000_000)
        assert kept == [each for each in written if each.offset > tail.floor]
        assert len(kept) <= shape.tail_messages
        assert asyncio.run(read_all(database, "#")) == written
        for after in (0, tail.floor, *offsets[:: max(1, len(offsets) // 5)], last):
            truth = sum(offset > after for offset in offsets)
            assert truth <= database.messages_after(after) <= truth + 1_024
        for count in (0, 1, 32, 1_000, len(offsets)):
            for generation in database._generations:
                header = generation.header
                newest = generation.newest(count)
                assert newest >= header.since_offset - 1
                follow = sum(
                    newest < o and (not header.until_offset or o < header.until_offset)
                    for o in offsets
                )
                assert follow <= max(count, 1_023)
                assert follow >= min(count, generation.message_count) - 1_500
        (offset,) = append_all(database, message("t/0"), now_us=last + 1)
        assert [each.offset for each in asyncio.run(read_all(database, "t/0"))][-1] == offset
        assert list(database.check()) == []
    finally:
        database.close()


@settings(max_examples=12)
@given(SHAPES)
@example(Shape([("skipscan", [Burst(60, 9_000, 1)])], 50_000, 100_000))
@example(Shape([("skipscan", [Burst(60, 9_000, 1)]), ("skipscan", [])], 50_000, 100_000))
@example(Shape([("skipscan", [Burst(1_024, 0, 1), Burst(3, 300_000, 2)])], 50_000, 400_000))
def test_every_shape_starts(shape: Shape) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "d"
        written = write(path, shape)
        check(path, shape, written)


@pytest.mark.parametrize("count", [1, 60])
def test_few_large_messages(tmp_path: Path, count: int) -> None:
    """More than the tail takes, in fewer messages than there are between two points."""
    shape = Shape([("skipscan", [Burst(1, 1_000_000, 1)] * count)], 150_000, 32 * 1024 * 1024)
    written = write(tmp_path / "d", shape)
    check(tmp_path / "d", shape, written)
