"""Large wills are written some in each turn, and none while the disk has enough."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from perdure.broker.commit.log_sync import LogSync
from perdure.broker.connection.connection import Connection
from perdure.broker.connection.large_wills import TURN_BYTES
from perdure.broker.sessions.lifecycle import SessionLifecycle
from perdure.model import Will
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client, make_sim

COUNT = 20
SIZE = 60_000
WILL = Will("w", bytes(SIZE), qos=1)


def _connected(sim: SimBroker, will: Will) -> list[Client]:
    clients = [Client(sim, f"c{number}") for number in range(COUNT)]
    for client in clients:
        client.connect(will=will)
    return clients


def _lose_all(sim: SimBroker) -> None:
    """The transports of all clients that have a will, in one turn of the loop."""
    for session in list(sim.live.services.registry.live.values()):
        if session.record.will is not None:
            assert isinstance(session.connection, Connection)
            session.connection.connection_lost(None)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Sessions that were left in each turn."""
    turns: Counter[int] = Counter()
    detach = SessionLifecycle.detach

    def counted(sessions: SessionLifecycle, *args: Any, **kwargs: Any) -> None:
        turns[sessions._parts.pipeline.number] += 1
        detach(sessions, *args, **kwargs)

    monkeypatch.setattr(SessionLifecycle, "detach", counted)
    return turns


def test_those_that_are_lost_at_once_are_left_some_in_each_turn(ends: Counter[int]) -> None:
    sim = make_sim()
    watcher = Client(sim, "watcher")
    watcher.connect()
    watcher.subscribe("w", qos=1)
    _connected(sim, WILL)
    _lose_all(sim)
    sim.run_for(1_000_000)
    assert len(watcher.messages) == COUNT
    assert ends.total() == COUNT
    assert max(ends.values()) == TURN_BYTES // SIZE
    assert sim.live.services.registry.live.keys() == {"watcher"}


def test_small_ones_wait_for_nothing(ends: Counter[int]) -> None:
    sim = make_sim()
    _connected(sim, Will("w", bytes(5_000)))
    _lose_all(sim)
    assert list(ends.values()) == [COUNT]


def test_nothing_is_written_while_the_disk_has_enough(
    ends: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = make_sim()
    clients = _connected(sim, WILL)
    newcomer, publisher = Client(sim, "newcomer"), Client(sim, "publisher")
    publisher.connect()
    registry = sim.live.services.registry
    monkeypatch.setattr(LogSync, "is_large", lambda _: True)
    for client in clients:
        client.cut()
    newcomer.connect(will=WILL, wait=False)
    sim.run_for(100_000)
    assert not ends
    assert "newcomer" not in registry.live
    # Its client comes back meanwhile: it is the later one's session now.
    monkeypatch.setattr(LogSync, "is_large", lambda _: False)
    again = Client(sim, clients[0].client_id)
    assert again.connect().session_present
    publisher.publish("t")  # a sync ends, and they are told
    sim.run_for(100_000)
    assert ends.total() == COUNT
    assert registry.live.keys() == {"newcomer", "publisher", again.client_id}
    assert sim.live.services.newcomers.taken_bytes == 0


def test_what_goes_wrong_costs_that_connection_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = make_sim()
    clients = _connected(sim, WILL)
    detach = SessionLifecycle.detach

    def broken(sessions: SessionLifecycle, session: Any, **kwargs: Any) -> None:
        if session.client_id == clients[-1].client_id:
            raise ValueError("broken")
        detach(sessions, session, **kwargs)

    monkeypatch.setattr(SessionLifecycle, "detach", broken)
    for client in clients:
        client.cut()
    sim.run_for(1_000_000)
    assert sim.live.services.registry.live.keys() == {clients[-1].client_id}
    assert sim.live.services.metrics.unexpected_errors
