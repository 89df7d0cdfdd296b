"""What a node submits by itself; all else is in the contract of stores, and in the model."""

from __future__ import annotations

import itertools

import pytest

from perdure.storage.batch import Batch
from perdure.storage.ordered import replica as module
from perdure.storage.ordered.record import Expel, decode_record
from tests.contract.values import message
from tests.support.cluster_node import SteppedReplica
from tests.support.shared_log import SharedLog

DEAD_AFTER_US = 6_000_000


@pytest.fixture
def log() -> SharedLog:
    return SharedLog()


@pytest.fixture
def nodes(log: SharedLog) -> list[SteppedReplica]:
    incarnations = itertools.count(1)
    return [SteppedReplica(log, name, None, incarnations).join() for name in ("a", "b", "c")]


def members(node: SteppedReplica) -> list[str]:
    return [member.name for member in node.members.current()]


def expulsions(log: SharedLog) -> int:
    acts = (act for entry in log.entries for act in decode_record(entry.value).acts)
    return sum(isinstance(act, Expel) for act in acts)


def say(node: SteppedReplica) -> None:
    """Have something on its way."""
    batch = Batch()
    batch.append(message("t"))
    node.submit(batch, 0)


def test_what_applying_costs_is_told_with_what_was_applied(log: SharedLog) -> None:
    """Of all messages that are recorded, whoever has submitted them, however they came."""
    clock = itertools.count(100, 7)
    writer = SteppedReplica(log, "writer").join()
    reader = SteppedReplica(log, "reader", cpu_us=lambda: next(clock)).join()
    told: dict[str, list[tuple[int, int]]] = {"writer": [], "reader": []}
    for node in (writer, reader):
        node.peers.on_applied = lambda count, us, to=told[node.name]: to.append((count, us))
    batch = Batch()
    for topic in ("t", "t", "u"):
        batch.append(message(topic))
    writer.submit(batch, 0)
    say(reader)
    log.take_all()
    assert sum(count for count, _ in told["reader"]) == 4
    assert sum(count for count, _ in told["writer"]) == 4
    assert {us for _, us in told["reader"]} == {7}
    assert {us for _, us in told["writer"]} == {0}


def let_the_others_be_silent(log: SharedLog, node: SteppedReplica) -> None:
    """For so long that they count as dead; this node has something on its way then."""
    for _ in range(DEAD_AFTER_US // 1_000_000 + 1):
        log.now_us += 1_000_000
        say(node)
        log.take_all()
    say(node)


def test_a_node_that_always_has_something_on_its_way_expels_who_is_silent(
    log: SharedLog, nodes: list[SteppedReplica]
) -> None:
    """As all nodes of a busy cluster have, or one whose log is slow."""
    first, second, silent = nodes
    for _ in range(9):
        log.now_us += 1_000_000
        for node in (first, second):
            say(node)
            node.beat(dead_after_us=DEAD_AFTER_US)
        # What was submitted before comes back; something is on its way again at once.
        assert first.flying_count
        log.take_all()
    assert members(first) == members(second) == ["a", "b"]
    assert silent.has_failed


def test_an_expulsion_is_submitted_once(log: SharedLog, nodes: list[SteppedReplica]) -> None:
    """However long the log stands still, or other nodes do."""
    first = nodes[0]
    let_the_others_be_silent(log, first)
    for _ in range(9):
        say(first)
        first.beat(dead_after_us=DEAD_AFTER_US)
    log.take_all()
    assert expulsions(log) == 2  # of two nodes, in one record
    assert members(first) == ["a"]


def test_nothing_is_said_only_to_say_something(
    log: SharedLog, nodes: list[SteppedReplica], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = nodes[0]
    first.beat(dead_after_us=DEAD_AFTER_US)
    assert first.flying_count == 1
    first.beat(dead_after_us=DEAD_AFTER_US)
    assert first.flying_count == 1
    # Nor beyond what others remember of a node.
    log.take_all()
    let_the_others_be_silent(log, first)
    monkeypatch.setattr(module, "IN_FLIGHT_MAX", 1)
    first.beat(dead_after_us=DEAD_AFTER_US)
    log.take_all()
    assert expulsions(log) == 0
