"""How soon messages are sent, live and from the log; what is timed is a sample of each turn."""

from __future__ import annotations

import pytest

from perdure.broker.commit.pipeline import SEARCH_TURNS
from perdure.observe.metrics import Metrics
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client, make_sim


def _readers(sim: SimBroker, *names: str) -> tuple[Client, ...]:
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    readers = tuple(Client(sim, name) for name in names)
    for reader in readers:
        reader.connect()
        reader.subscribe("t", qos=1)
    return publisher, *readers


def _metrics(sim: SimBroker) -> Metrics:
    return sim.live.services.metrics


def test_a_live_message_is_timed_once_for_its_turn() -> None:
    sim = make_sim()
    publisher, *_ = _readers(sim, "a", "b")
    live = _metrics(sim).publish_to_delivery_seconds_live
    before = live.count
    publisher.deliver("t")
    assert live.count == before + 1
    assert _metrics(sim).publish_to_delivery_seconds_replay.count == 0


def test_what_nobody_gets_is_not_timed() -> None:
    sim = make_sim()
    publisher, *_ = _readers(sim, "a")
    publisher.deliver("nobody/wants/it")
    assert _metrics(sim).publish_to_delivery_seconds_live.count == 0


def test_what_waits_for_a_sync_takes_as_long_as_that() -> None:
    sim = make_sim()
    publisher, *_ = _readers(sim, "a")
    assert sim.scheduler is not None
    sim.scheduler.blocking_us = (40_000, 40_000)
    publisher.deliver("t", qos=2)
    live = _metrics(sim).publish_to_delivery_seconds_live
    assert (live.count, live.sum >= 40_000) == (1, True)


def test_what_comes_from_the_log_is_as_old_as_it_is() -> None:
    sim = make_sim()
    publisher, reader = _readers(sim, "a")
    reader.disconnect()
    for _ in range(3):
        publisher.deliver("t")
    sim.run_for(60_000_000)
    live = _metrics(sim).publish_to_delivery_seconds_live.count
    reader.connect()
    sim.run_for(100_000)
    assert len(reader.messages) == 3
    replay = _metrics(sim).publish_to_delivery_seconds_replay
    assert replay.count == 1
    assert replay.sum == pytest.approx(60_000_000, rel=0.01)
    assert _metrics(sim).publish_to_delivery_seconds_live.count == live


def test_a_search_is_timed_in_one_of_many_turns() -> None:
    sim = make_sim()
    publisher, *_ = _readers(sim, "a")
    timed = _metrics(sim).subscription_match_seconds
    index = sim.live.services.router.index
    publisher.deliver("t")
    assert timed.count == 1
    turn = sim.live.services.pipeline.number
    while sim.live.services.pipeline.number < turn + SEARCH_TURNS // 2:
        publisher.deliver("t")
    assert timed.count == 1
    while sim.live.services.pipeline.number < turn + SEARCH_TURNS:
        publisher.deliver("t")
    publisher.deliver("t")
    assert timed.count == 2
    assert index.looked == 0, "nobody is charged for it"


def test_a_sync_that_hangs_is_seen() -> None:
    sim = make_sim()
    publisher, *_ = _readers(sim, "a")
    assert sim.scheduler is not None
    sim.scheduler.blocking_us = (90_000_000, 90_000_000)
    publisher.publish("t")
    sim.run_for(7_500_000)
    gauges, metrics = sim.live.services.gauges, _metrics(sim)
    gauges.update()
    assert (metrics.storage_backlog_messages, metrics.storage_backlog_seconds) == (1, 7)
    sim.run_for(90_000_000)
    gauges.update()
    assert (metrics.storage_backlog_messages, metrics.storage_backlog_seconds) == (0, 0)
