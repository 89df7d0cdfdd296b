"""The life of a session: resumed, taken over, ended; its will and its expiry."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.broker.connection.connection import Connection
from perdure.broker.runtime.turn_budget import BEGUN_MAX
from perdure.limits import SESSION_EXPIRY_NEVER_S
from perdure.model import Will
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import (
    PUBREC,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Publish,
    Suback,
    Subscribe,
    SubscribeFilter,
)
from perdure.storage.operations import DiscardSession
from tests.support.network import PEER
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client, make_sim


def _watch(sim: SimBroker) -> Client:
    watcher = Client(sim, "watcher")
    watcher.connect(expiry_s=0, clean=True)
    watcher.subscribe("will/#", qos=1)
    return watcher


@pytest.mark.trap(42)
@pytest.mark.trap(20)
def test_the_later_connection_wins_and_takes_what_is_owed() -> None:
    """Traps 20 and 42: what the first connection did not acknowledge comes to the second."""
    sim = make_sim()
    publisher, first, second = (
        Client(sim, "p"),
        Client(sim, "c", acks=False),
        Client(sim, "c"),
    )
    publisher.connect(expiry_s=0, clean=True)
    first.connect()
    first.subscribe("t", qos=1)
    for number in range(3):
        publisher.deliver("t", b"%d" % number)
    sim.run_for(10_000)
    sent = [message.packet_id for message in first.messages]
    assert second.connect().session_present
    assert first.take(Disconnect).reason == 0x8E
    sim.run_for(10_000)
    assert first.is_lost
    assert [message.packet_id for message in second.messages] == sent
    assert all(message.dup for message in second.messages)
    assert list(sim.live.services.registry.live) == ["p", "c"]


@pytest.mark.spec("MQTT-3.3.1-1")
@pytest.mark.spec("MQTT-4.3.3-10")
def test_who_comes_back_in_the_turn_in_which_it_went_finds_what_it_left() -> None:
    """The end of one connection and the CONNECT of the next may arrive together."""
    sim = make_sim()
    publisher, first, second = (
        Client(sim, "p"),
        Client(sim, "c", acks=False),
        Client(sim, "c", acks=False),
    )
    publisher.connect(expiry_s=0, clean=True)
    first.connect()
    first.subscribe("t", qos=1)
    publisher.deliver("t")
    assert not first.take(Publish).dup
    second.open()
    assert second.wire is not None
    gone = sim.live.services.registry.live["c"].connection
    come = sim.live.connection(second.wire, PEER)
    second.wire.accept(come)
    assert isinstance(gone, Connection)
    gone.receive(encode(Publish("other", b"x", 2, packet_id=7), 5))
    gone.connection_lost(None)
    come.receive(encode(Connect(5, False, 0, "c"), 5))
    second.publish("other", qos=2, packet_id=7, dup=True)
    assert second.take(Connack).session_present
    assert second.take(Publish).dup
    assert second.take(Ack) == Ack(PUBREC, 7)
    assert sim.live.services.metrics.messages_received_2 == 2
    assert len(sim.live.services.registry.live["c"].inbound.awaiting_release) == 1


def test_clients_that_come_and_subscribe_together_share_two_writes() -> None:
    """One for the sessions that begin in a turn, and one for their subscriptions."""
    sim = make_sim()
    clients = [Client(sim, f"c{number}") for number in range(BEGUN_MAX)]
    before = sim.store.write_count
    for client in clients:
        client.connect(wait=False)
    for client in clients:
        assert not client.take(Connack).session_present
    assert sim.store.write_count == before + 1
    for client in clients:
        client.send(Subscribe(1, [SubscribeFilter("t", 1)]))
    for client in clients:
        assert client.take(Suback).reasons == [1]
    assert sim.store.write_count == before + 2


@pytest.mark.trap(42)
def test_connections_that_flap_do_not_wedge_the_client_id() -> None:
    """Trap 42: any number of takeovers at once leave one connection and one session."""
    sim = make_sim()
    clients = [Client(sim, "c") for _ in range(20)]
    for client in clients:
        client.connect(wait=False)
    sim.run_for(1_000_000)
    alive = [client for client in clients if not client.is_lost]
    assert len(alive) == 1
    assert alive[0].take(Connack).reason == 0
    assert len(sim.live.services.registry.live) == 1
    alive[0].cut()
    assert Client(sim, "c").connect().session_present


@pytest.mark.trap(48)
def test_the_own_old_session_counts_for_nothing() -> None:
    """Trap 48: a client that comes back is no second client, to any count there is."""
    sim = make_sim()
    for _ in range(3):
        client = Client(sim, "c")
        client.connect()
    services = sim.live.services
    assert services.metrics.sessions_connected == 1
    client.cut()
    assert (services.metrics.sessions_connected, services.metrics.sessions_offline) == (0, 1)
    Client(sim, "c").connect()
    assert (services.metrics.sessions_connected, services.metrics.sessions_offline) == (1, 0)


@pytest.mark.trap(43)
def test_a_session_of_expiry_0_ends_with_a_takeover() -> None:
    """Trap 43: Session Present 0, nothing of it is left, its will is sent at once."""
    sim = make_sim()
    watcher = _watch(sim)
    first = Client(sim, "c")
    first.connect(expiry_s=0, will=Will("will/c", b"w", 1, delay_s=100))
    first.subscribe("t")
    second = Client(sim, "c")
    assert not second.connect(expiry_s=0).session_present
    assert watcher.payloads() == [b"w"]
    watcher.publish("t")
    second.none_comes(Publish)


@pytest.mark.trap(44)
@pytest.mark.parametrize("clean", [False, True])
def test_a_takeover_publishes_the_will_once(clean: bool) -> None:
    """Trap 44: on takeover, with clean start too, and never twice."""
    sim = make_sim()
    watcher = _watch(sim)
    first, second = Client(sim, "c"), Client(sim, "c")
    first.connect(will=Will("will/c", b"w", 1))
    second.connect(clean=clean)
    assert watcher.payloads(within_us=5_000_000) == [b"w"]
    second.disconnect()
    assert watcher.payloads(within_us=5_000_000) == []


@pytest.mark.trap(44)
def test_a_delayed_will_is_cancelled_by_coming_back() -> None:
    sim = make_sim()
    watcher = _watch(sim)
    client = Client(sim, "c")
    client.connect(will=Will("will/c", b"w", 1, delay_s=10))
    client.cut()
    sim.run_for(9_000_000)
    client.connect()
    assert watcher.payloads(within_us=30_000_000) == []


@pytest.mark.trap(44)
def test_a_clean_start_within_the_delay_sends_the_will() -> None:
    """The session ends with it, so the will is due [MQTT-3.1.2-8]."""
    sim = make_sim()
    watcher = _watch(sim)
    client = Client(sim, "c")
    client.connect(will=Will("will/c", b"w", 1, delay_s=10))
    client.cut()
    client.connect(clean=True)
    assert watcher.payloads(within_us=30_000_000) == [b"w"]


def test_a_will_and_the_end_of_its_session_are_one_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or a kill between them, or another node, would find the session and say it again."""
    sim = make_sim()
    watcher = _watch(sim)
    client = Client(sim, "c")
    client.connect(will=Will("will/c", b"w", 1, delay_s=10))
    client.cut()
    services = sim.live.services
    database = services.database
    read_inbox, real = database.read_inbox, database.submit
    submitted: list[tuple[list[str], bool]] = []

    async def read(*args: Any, **options: Any) -> Any:
        # What is open is written while a store takes its time.
        services.pipeline.write()
        return await read_inbox(*args, **options)

    def spy(batch: Any, now_us: int) -> None:
        ends = any(isinstance(each, DiscardSession) for each in batch.operations)
        submitted.append(([each.topic for each in batch.messages], ends))
        real(batch, now_us)

    monkeypatch.setattr(database, "read_inbox", read)
    monkeypatch.setattr(database, "submit", spy)
    client.connect(clean=True)
    assert watcher.payloads() == [b"w"]
    assert (["will/c"], True) in submitted


@pytest.mark.trap(45)
@pytest.mark.parametrize(("reason", "expected"), [(0, []), (4, [b"w"])])
def test_disconnect_with_or_without_will(reason: int, expected: list[bytes]) -> None:
    sim = make_sim()
    watcher = _watch(sim)
    client = Client(sim, "c")
    client.connect(will=Will("will/c", b"w", 1))
    client.disconnect(reason=reason)
    assert watcher.payloads(within_us=5_000_000) == expected


@pytest.mark.trap(46)
def test_a_clean_start_forgets_everything() -> None:
    """Trap 46: also with an expiry, and also for what comes after."""
    sim = make_sim()
    publisher, client = Client(sim, "p"), Client(sim, "c")
    publisher.connect(expiry_s=0, clean=True)
    client.connect()
    client.subscribe("t")
    client.cut()
    publisher.deliver("t", b"old", qos=1)
    assert not client.connect(clean=True).session_present
    publisher.deliver("t", b"not subscribed")
    client.none_comes(Publish)
    client.cut()
    assert client.connect().session_present
    client.none_comes(Publish)


@pytest.mark.trap(46)
def test_the_reaper_spares_a_session_that_is_back() -> None:
    """Trap 46: its old deadline ends nothing."""
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(expiry_s=10)
    client.cut()
    sim.run_for(9_000_000)
    client.connect(expiry_s=10)
    sim.run_for(60_000_000)
    assert not client.is_lost
    client.cut()
    sim.run_for(9_000_000)
    assert client.connect(expiry_s=10).session_present
    client.cut()
    sim.run_for(10_500_000)
    assert not client.connect(expiry_s=10).session_present


@pytest.mark.trap(47)
def test_expiry_may_change_at_disconnect() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(expiry_s=SESSION_EXPIRY_NEVER_S)
    client.disconnect(expiry_s=5)
    sim.run_for(6_000_000)
    assert not client.connect(expiry_s=5).session_present
    client.disconnect(expiry_s=SESSION_EXPIRY_NEVER_S)
    sim.kill()
    sim.clock.advance_us(10**15)
    sim.start()
    assert client.connect().session_present


@pytest.mark.trap(47)
def test_expiry_cannot_be_raised_from_0() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(expiry_s=0)
    client.disconnect(expiry_s=5)
    assert not client.connect(expiry_s=0).session_present


@pytest.mark.trap(52)
def test_a_resume_does_not_bring_retained_messages_again() -> None:
    sim = make_sim()
    publisher, client = Client(sim, "p"), Client(sim, "c")
    publisher.connect(expiry_s=0, clean=True)
    publisher.deliver("t", b"kept", retain=True)
    client.connect()
    client.subscribe("t")
    assert client.payloads() == [b"kept"]
    client.cut()
    client.connect()
    assert client.payloads() == []


@pytest.mark.trap(2)
def test_a_clean_start_between_two_durable_lives_leaves_no_counter() -> None:
    """Trap 2: packet identifiers and messages begin anew with the session."""
    sim = make_sim()
    publisher, client = Client(sim, "p"), Client(sim, "c")
    publisher.connect(expiry_s=0, clean=True)
    client.connect()
    client.subscribe("t", qos=1)
    for number in range(5):
        publisher.deliver("t", b"%d" % number)
    client.cut()
    client.connect(clean=True, expiry_s=0)
    client.subscribe("t", qos=1)
    publisher.deliver("t", b"ephemeral")
    client.cut()
    client.connect()
    client.subscribe("t", qos=1)
    client.cut()
    client.messages.clear()
    publisher.deliver("t", b"a")
    publisher.deliver("t", b"b")
    client.connect()
    assert client.payloads() == [b"a", b"b"]
    assert [message.packet_id for message in client.messages] == [1, 2]


@pytest.mark.trap(12)
@pytest.mark.trap(15)
def test_a_qos_2_message_survives_restarts_in_every_state() -> None:
    """Traps 12, 15 and 16: PUBLISH with its flags and identifier, then PUBREL, then nothing."""
    sim = make_sim()
    publisher, client = Client(sim, "p"), Client(sim, "c", acks=False)
    publisher.connect(expiry_s=0, clean=True)
    client.connect()
    client.subscribe("t", retain_as_published=1)
    publisher.deliver("t", b"x", qos=2, retain=True)
    first = client.take(Publish)
    sim.kill()
    sim.start()
    client.connect()
    again = client.take(Publish)
    assert (again.packet_id, again.qos, again.retain) == (first.packet_id, 2, True)
    assert again.dup
    client.send(Ack(5, first.packet_id))
    assert client.take(Ack) == Ack(6, first.packet_id)
    sim.kill(power=True)
    sim.start()
    client.connect()
    assert client.take(Ack) == Ack(6, first.packet_id)
    client.none_comes(Publish)
    client.send(Ack(7, first.packet_id))
    sim.run_for(50_000)
    sim.kill()
    sim.start()
    client.connect()
    client.none_comes(Ack)
    client.none_comes(Publish)


@pytest.mark.trap(50)
def test_after_a_crash_nobody_is_connected() -> None:
    """Trap 50: wills fall due and expiry begins when the broker is back."""
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(expiry_s=100, will=Will("will/c", b"w", 1, delay_s=10))
    sim.kill(power=True)
    sim.run_for(1_000_000_000)
    sim.start()
    watcher = _watch(sim)
    assert watcher.payloads(within_us=9_000_000) == []
    assert watcher.payloads(within_us=2_000_000) == [b"w"]
    sim.run_for(95_000_000)
    assert not client.connect().session_present


@pytest.mark.trap(44)
def test_a_delayed_will_survives_a_restart() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(will=Will("will/c", b"w", 1, delay_s=10))
    client.cut()
    sim.kill()
    sim.run_for(4_000_000)
    sim.start()
    watcher = _watch(sim)
    assert watcher.payloads(within_us=5_000_000) == []
    assert watcher.payloads(within_us=2_000_000) == [b"w"]
    sim.kill()
    sim.start()
    watcher = _watch(sim)
    assert watcher.payloads(within_us=60_000_000) == []


def test_an_ephemeral_session_with_a_will_is_cleaned_up_after_a_crash() -> None:
    sim = make_sim()
    client = Client(sim, "c")
    client.connect(expiry_s=0, clean=True, will=Will("will/c", b"w", 1, True))
    sim.kill()
    sim.start()
    watcher = _watch(sim)
    assert watcher.payloads() == [b"w"]
    assert sim.live.services.metrics.sessions_expired == 1
