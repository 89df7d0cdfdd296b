"""Cuts of about equal cost: none lost, none of a size that cannot be read at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.config.schema import RocksdbConfig
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.bulk import LogFiles
from perdure.storage.rocksdb.bulk_slices import (
    PART_COST_MIN,
    PARTS_WANTED,
    PICKED_COST,
    Slice,
    pack_slices,
    picked_cost,
    share_of,
)
from perdure.storage.rocksdb.layout_v1_scan import Plan
from tests.unit.storage.rocksdb.test_bulk import START, read, write

MESSAGES = 40_000
DEVICES = 200
STEP = 10
END = START + MESSAGES * STEP


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogFiles]:
    path = tmp_path_factory.mktemp("log")
    config = RocksdbConfig(tail_messages=0, learn_thresholds=(100, 2))
    database = RocksDatabase.open(path, config=config, now_us=START)
    # One device publishes in the second half only, ten times as often.
    topics = [
        "d/late" if number > MESSAGES // 2 and number % 20 == 0 else f"d/{number % DEVICES}"
        for number in range(MESSAGES)
    ]
    write(database, topics, at=START, step=STEP)
    opened = LogFiles(path)
    yield opened
    opened.close()
    database.close()


def cost(files: LogFiles, *filters: str, until: int = END) -> int:
    plan = files.plan(1, (filters,) if filters else ())
    layout = files.layout(1)
    return picked_cost(layout, plan, START, until, rows_max=10**6, count=MESSAGES)


def test_what_is_picked_out_is_estimated_from_a_few_entries(files: LogFiles) -> None:
    each = MESSAGES // DEVICES * PICKED_COST
    assert cost(files, "d/7") == pytest.approx(each, rel=0.1)
    assert cost(files, "d/7", until=START + MESSAGES * STEP // 4) == pytest.approx(
        each / 4, rel=0.1
    )
    many = [f"d/{number}" for number in range(3, DEVICES, 2)]
    assert cost(files, *many) == pytest.approx(each * len(many), rel=0.2)
    # It began late: then a few entries tell too little, but never less than was found.
    assert 64 * PICKED_COST <= cost(files, "d/late") <= 1_000 * PICKED_COST
    assert cost(files, "d/nobody") == PICKED_COST


def test_what_may_be_all_costs_all(files: LogFiles) -> None:
    assert cost(files) == MESSAGES
    assert cost(files, "d/+") == MESSAGES
    assert cost(files, "#", "d/7") == MESSAGES


def test_rows_of_many_devices_are_worth_more_than_one_part(files: LogFiles) -> None:
    many = (tuple(f"d/{number}" for number in range(3, DEVICES, 8)),)
    slices = files.slices(many, 0, END, rows_max=250_000)
    assert [part.estimate * len(slices) for part in slices] == [
        pytest.approx(MESSAGES, rel=0.2)
    ] * len(slices)
    few = files.slices((("d/7", "d/8"),), 0, END, rows_max=250_000)
    assert len(few) == 1
    for sets, parts in ((many, slices), ((("d/7", "d/8"),), few)):
        found = read(files, sets, parts)
        assert len(found) == len(sets[0]) * MESSAGES // DEVICES - _late(sets[0])
    smaller = files.slices(many, 0, END, rows_max=10_000)
    assert len(smaller) == pytest.approx(MESSAGES / 10_000, abs=1)
    assert [one.until_offset for one in smaller[:-1]] == [two.after_offset for two in smaller[1:]]


def test_shares_of_a_range_look_for_each_constraint_once(files: LogFiles) -> None:
    many = (tuple(f"d/{number}" for number in range(3, DEVICES, 10)),)
    slices = files.slices(many, START, END, rows_max=20_000, shares=True)
    assert [(part.after_offset, part.until_offset) for part in slices] == [(START, END)] * 2
    shares = [read(files, many, [part]) for part in slices]
    found = sorted(message.offset for share in shares for message in share)
    whole = read(files, many, files.slices(many, START, END, rows_max=20_000))
    assert found == sorted(message.offset for message in whole)
    wanted = [{message.topic for message in share} for share in shares]
    assert [len(topics) for topics in wanted] == [len(many[0]) // 2] * 2


def test_a_few_constraints_are_not_dealt_out(files: LogFiles) -> None:
    # One of them may be most of what is found.
    few = (tuple(f"d/{number}" for number in range(15)),)
    slices = files.slices(few, START, END, rows_max=20_000, shares=True)
    assert len(slices) > 1
    assert slices == files.slices(few, START, END, rows_max=20_000)


def test_streams_of_single_topics_are_dealt_out_too() -> None:
    one, two = ((0, "a"),), ((0, "b"),)
    plan: Plan = {3: None, 4: None, 7: {one, two}, 9: {one}}
    first, second = (share_of(plan, Slice(1, 0, 9, 1, share, 2)) for share in range(2))
    assert first == {4: None, 7: {one}, 9: {one}}
    assert second == {3: None, 7: {two}}
    assert share_of(plan, Slice(1, 0, 9, 1)) is plan


def test_constraints_are_picked_where_they_say_all_that_varies(files: LogFiles) -> None:
    layout = files.layout(1)
    (stream,) = (number for number, pattern in layout.streams() if pattern == "d/+")
    assert layout.is_picked(stream, {((0, f"{number}"),) for number in range(1_024)})
    assert not layout.is_picked(stream, {((0, f"{number}"),) for number in range(1_025)})
    assert not layout.is_picked(stream, {()})


def _late(topics: tuple[str, ...]) -> int:
    """Messages that the late device published in the place of others."""
    places = [number for number in range(MESSAGES // 2 + 1, MESSAGES) if number % 20 == 0]
    return sum(f"d/{number % DEVICES}" in topics for number in places)


def test_small_slices_are_packed() -> None:
    slices = [Slice(number, 0, 1, rows) for number, rows in enumerate([5, 5, 20, 1, 1])]
    groups = pack_slices(slices, rows_max=10)
    assert [[part.generation for part in group] for group in groups] == [[0, 1], [2], [3, 4]]


@given(
    estimates=st.lists(st.integers(1, PART_COST_MIN), max_size=60),
    rows_max=st.integers(PART_COST_MIN, 10 * PART_COST_MIN),
)
def test_groups_keep_order_and_are_enough(estimates: list[int], rows_max: int) -> None:
    slices = [Slice(1, number, number + 1, each) for number, each in enumerate(estimates)]
    groups = pack_slices(slices, rows_max=rows_max)
    assert [part for group in groups for part in group] == slices
    sizes = [sum(part.estimate for part in group) for group in groups]
    total = sum(sizes)
    if total:
        assert len(groups) >= min(total // PART_COST_MIN, PARTS_WANTED - 1)
    assert all(
        size <= rows_max or len(group) == 1 for size, group in zip(sizes, groups, strict=True)
    )
    # No two neighbours would have fitted together, so no group is there for nothing.
    fair = total / max(min(total // PART_COST_MIN, PARTS_WANTED), 1)
    limit = min(rows_max, fair)
    assert all(
        one + groups[at + 1][0].estimate > limit for at, (one, _) in enumerate(pairwise(sizes))
    )
