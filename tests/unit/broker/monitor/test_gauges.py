"""Gauges: what they say, and that they ask no store that has failed."""

from __future__ import annotations

import pytest

from perdure.broker.monitor import gauges
from perdure.errors import StorageUnavailable
from perdure.model import Message
from perdure.mqtt.packets import PUBACK, Ack
from perdure.session.seqno import PACKET_IDS, packet_id_of
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client, make_sim


def _publisher(sim: SimBroker) -> Client:
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    return publisher


def test_gauges_ask_no_store_that_has_failed() -> None:
    sim = make_sim()
    publisher = _publisher(sim)
    publisher.deliver("t")
    services = sim.live.services
    services.gauges.update()
    assert services.metrics.storage_messages == 1
    sim.store.write_error = StorageUnavailable("broken")
    publisher.publish("t")
    sim.run_for(10_000)
    sim.store.read_error = StorageUnavailable("not open")
    with pytest.raises(StorageUnavailable):
        sim.store.generations()
    services.gauges.update()
    assert services.metrics.storage_messages == 1


def test_the_age_of_what_is_not_acknowledged() -> None:
    sim = make_sim()
    publisher, slow, slower = (
        _publisher(sim),
        *(Client(sim, name, acks=False) for name in ("slow", "slower")),
    )
    for reader, topic in ((slow, "a"), (slower, "b")):
        reader.connect()
        reader.subscribe(topic, qos=1)
    services = sim.live.services
    services.gauges.update()
    assert services.metrics.oldest_unacked_seconds == 0
    publisher.deliver("b")
    sim.run_for(30_000_000)
    publisher.deliver("a")
    publisher.deliver("b")
    sim.run_for(5_500_000)
    services.gauges.update()
    assert services.metrics.oldest_unacked_seconds == 35
    slower.send(Ack(PUBACK, slower.messages[0].packet_id))
    sim.run_for(1_000)
    services.gauges.update()
    assert services.metrics.oldest_unacked_seconds == 5


def test_a_session_that_is_held_up_is_told_once() -> None:
    sim = make_sim()
    client = Client(sim, "stuck", acks=False)
    client.connect()
    services = sim.live.services
    outbound = services.registry.live["stuck"].outbound
    message = Message("t", b"x")
    for offset in range(1, PACKET_IDS + 1):
        outbound.offer(message, 1, False, (), offset)
        if offset > 1:
            outbound.acknowledge(packet_id_of(offset))
    for _ in range(20):
        services.gauges.update()
        assert services.metrics.sessions_held_up == 1
        sim.run_for(1_000_000)
    (told,) = sim.logged("session.held_up")
    assert (told["client_id"], told["packet_id"], told["behind"]) == ("stuck", 1, PACKET_IDS - 1)
    outbound.acknowledge(1)
    services.gauges.update()
    assert services.metrics.sessions_held_up == 0
    assert not services.gauges.held_up


def test_many_sessions_are_looked_at_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "STEP_SESSIONS", 2)
    sim = make_sim()
    for number in range(5):
        Client(sim, f"c{number}", acks=False).connect()
    services = sim.live.services
    steps = services.gauges.steps()
    next(steps)
    next(steps)
    Client(sim, "c5").connect()  # who comes meanwhile is seen the next time
    assert list(steps) == []
    assert services.gauges.updated_us == services.clock.monotonic_us()


def test_looks_that_overlap_tell_of_a_session_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "STEP_SESSIONS", 2)
    sim = make_sim()
    for name in ("stuck", "other", "third"):
        Client(sim, name, acks=False).connect()
    services = sim.live.services
    outbound = services.registry.live["stuck"].outbound
    for offset in range(1, PACKET_IDS + 1):
        outbound.offer(Message("t", b"x"), 1, False, (), offset)
        if offset > 1:
            outbound.acknowledge(packet_id_of(offset))
    services.gauges.update()
    sim.run_for(gauges.HELD_UP_US)
    steps = services.gauges.steps()
    next(steps)
    services.gauges.update()
    assert list(steps) == []
    assert len(sim.logged("session.held_up")) == 1
    assert set(services.gauges.held_up) == {"stuck"}
