"""Clients whose coming or going writes much wait for their turns, and while the disk has enough."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from perdure.broker.commit.log_sync import LogSync
from perdure.broker.connection.connection import Connection
from perdure.broker.connection.heavy_turns import FILTER_BYTES, TURN_BYTES
from perdure.broker.sessions.lifecycle import SessionLifecycle
from perdure.model import Will
from perdure.mqtt.packets import Disconnect, Publish
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


MEMBERS = 6
HELD = 300


def _members(sim: SimBroker) -> tuple[Client, list[Client]]:
    """One who stays, and members that hold what their group gave them; the last has a will."""
    stays = Client(sim, "stays")
    stays.connect()
    stays.subscribe("w", qos=1)
    members = [Client(sim, f"c{number}", acks=False) for number in range(MEMBERS)]
    for member in members:
        member.connect(will=Will("w", member.client_id.encode(), qos=1))
        member.subscribe("$share/g/t", qos=1)
    for number in range(MEMBERS * HELD):
        stays.publish("t", b"%d" % number)
        if number % HELD == 0:
            sim.run_for(100_000)
    sim.run_for(100_000)
    assert all(len(member.messages) == HELD for member in members)
    stays.subscribe("$share/g/t", qos=1)
    return stays, members


def _held(clients: list[Client]) -> set[bytes]:
    return {message.payload for client in clients for message in client.messages}


def test_members_that_hold_much_leave_some_in_each_turn(ends: Counter[int]) -> None:
    sim = make_sim()
    stays, members = _members(sim)
    held = _held(members)
    _lose_all(sim)
    sim.run_for(1_000_000)
    assert ends.total() == MEMBERS
    assert max(ends.values()) == 1
    wills = {member.client_id.encode() for member in members}
    assert {message.payload for message in stays.messages} == held | wills
    assert len(stays.messages) == len(held) + len(wills)  # each once


def test_who_takes_leave_has_its_turn_too_and_no_will(ends: Counter[int]) -> None:
    sim = make_sim()
    stays, members = _members(sim)
    held = _held(members)
    for member in members:
        # What follows DISCONNECT counts for nothing.
        member.send(Disconnect(), Publish("t", b"late", 0))
    for member in members:
        assert member.wire is not None
        member.wire.hang_up()
    sim.run_for(1_000_000)
    assert ends.total() == MEMBERS
    assert max(ends.values()) == 1
    assert {message.payload for message in stays.messages} == held
    assert len(stays.messages) == len(held)
    assert sim.live.services.registry.live.keys() == {"stays"}


def test_who_waits_to_leave_is_taken_over_without_its_will(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sim = make_sim()
    stays, members = _members(sim)
    monkeypatch.setattr(LogSync, "is_large", lambda _: True)
    members[0].send(Disconnect())
    sim.run_for(10_000)
    assert members[0].client_id in sim.live.services.registry.live
    again = Client(sim, members[0].client_id)
    assert again.connect().session_present
    monkeypatch.setattr(LogSync, "is_large", lambda _: False)
    sim.run_for(1_000_000)
    assert not stays.messages  # neither the will nor what it held and has again
    assert _held([again]) == _held(members[:1])


def test_those_with_many_filters_leave_some_in_each_turn(ends: Counter[int]) -> None:
    sim = make_sim()
    clients = [Client(sim, f"c{number}") for number in range(6)]
    filters = TURN_BYTES // FILTER_BYTES // 2
    for client in clients:
        client.connect(clean=True)
        client.subscribe(*[f"{client.client_id}/{n}/+" for n in range(filters)])
    for session in list(sim.live.services.registry.live.values()):
        assert isinstance(session.connection, Connection)
        session.connection.connection_lost(None)
    sim.run_for(1_000_000)
    assert ends.total() == len(clients)
    assert max(ends.values()) == 2
    assert len(sim.live.services.router.index) == 0
