"""The last hour of other nodes: on one grid with this one's, with gaps where nothing was said."""

from __future__ import annotations

import msgspec

from perdure.admin.records.node import History, Overview
from perdure.server.administration.history import POINTS_MAX
from perdure.server.administration.node_histories import SERIES, STEP_US, NodeHistories
from tests.unit.server.administration.fake_service import overview

START_US = 1_700_000_000_000_000


def said(node: str, at_us: int, connections: int, **rates: float | None) -> Overview:
    base = overview(node)
    return msgspec.structs.replace(
        base,
        as_of_us=at_us,
        connections=connections,
        rates=msgspec.structs.replace(base.rates, **rates),
    )


def test_each_word_is_a_point() -> None:
    histories = NodeHistories()
    for step in range(4):
        histories.add(said("n2", START_US + step * STEP_US, step, messages_received=step / 2))
    found = histories.history("n2", 3_600)
    assert (found.step_s, found.until_us) == (10, START_US + 3 * STEP_US)
    assert set(found.series) == set(SERIES)
    assert found.series["connections"] == [0, 1, 2, 3]
    assert found.series["messages_received"] == [0, 0.5, 1, 1.5]
    assert histories.history("n2", 20).series["connections"] == [2, 3]
    # Heard twice, or late, it is one.
    histories.add(said("n2", START_US + STEP_US, 9))
    assert histories.history("n2", 3_600).series["connections"] == [0, 1, 2, 3]


def test_words_come_a_little_early_or_late() -> None:
    histories = NodeHistories()
    for step, off_us in enumerate((0, 4_000_000, -4_000_000, 3_000_000, 0)):
        histories.add(said("n2", START_US + step * STEP_US + off_us, step))
    assert histories.history("n2", 3_600).series["connections"] == [0, 1, 2, 3, 4]


def test_what_was_not_said_is_a_gap() -> None:
    histories = NodeHistories()
    for step in (0, 1, 6):
        histories.add(said("n2", START_US + step * STEP_US, step, ack_p99_us=None, cpu_cores=None))
    found = histories.history("n2", 3_600).series
    assert found["connections"] == [0, 1, 1, None, None, None, 6], "carried on once"
    assert found["cpu_cores"] == [None] * 7
    assert found["ack_p99_us"][0] == 0


def test_an_hour_is_kept() -> None:
    histories = NodeHistories()
    for step in range(POINTS_MAX + 10):
        histories.add(said("n2", START_US + step * STEP_US, step))
    assert histories.history("n2", 3_600).series["connections"] == [*range(10, POINTS_MAX + 10)]
    histories.forget("n2")
    nothing = histories.history("n2", 3_600)
    assert (nothing.until_us, nothing.series["connections"]) == (0, [])


def test_all_nodes_together() -> None:
    histories = NodeHistories()
    for step in range(3):
        at_us = START_US + step * STEP_US + 3_000_000
        histories.add(said("n2", at_us, 10 + step, messages_received=1.0, ack_p99_us=step))
    own = History(
        step_s=10,
        until=None,
        until_us=START_US + 3 * STEP_US,
        series={
            name: {"connections": [1.0] * 5, "log_bytes": [7.0] * 5, "ack_p99_us": [1.0] * 5}.get(
                name, [0.0] * 5
            )
            for name in SERIES
        },
    )
    found = histories.total(own, ["n2", "n3"])
    assert found.until_us == own.until_us
    assert found.series["connections"] == [1, 11, 12, 13, 13]
    assert found.series["messages_received"] == [0, 1, 1, 1, 1]
    assert found.series["ack_p99_us"] == [1, 1, 1, 2, 2]
    assert found.series["log_bytes"] == [7] * 5, "the same on each node"
    assert histories.total(own, []).series == own.series
