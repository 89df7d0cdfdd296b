"""Shared subscriptions: none of a group's messages is lost when members come and go."""

from __future__ import annotations

import pytest

from perdure.broker.runtime.turn_budget import TurnBudget
from perdure.model import InboxEntry, StoredSession
from perdure.mqtt.encode import properties_from_forward
from perdure.mqtt.packets import PUBACK, PUBCOMP, PUBREC, Ack, Publish
from tests.unit.broker.harness import Client, make_sim
from tests.unit.broker.sharing import (
    NAME,
    connect_member,
    connect_publisher,
    payloads_of,
    send_numbers,
)


@pytest.mark.trap(39)
def test_what_a_member_did_not_acknowledge_passes_on_when_it_goes() -> None:
    sim = make_sim()
    publisher = connect_publisher(sim)
    silent, other = connect_member(sim, "a", acks=False), connect_member(sim, "b")
    bodies = send_numbers(publisher, 10)
    assert len(other.messages) == 5
    silent.cut()
    assert payloads_of(other) == bodies
    # It comes back to nothing: the others have it.
    silent.messages.clear()
    silent.acks = True
    silent.connect()
    assert payloads_of(silent) == []
    assert payloads_of(other, silent) == bodies


@pytest.mark.trap(39)
def test_what_went_back_to_the_group_is_no_loss_of_its_member() -> None:
    """The client is told of what was dropped, and this was not."""
    sim = make_sim()
    publisher = connect_publisher(sim)
    silent, other = connect_member(sim, "a", acks=False), connect_member(sim, "b")
    silent.subscribe("own", qos=1)
    send_numbers(publisher, 10)
    silent.cut()
    sim.run_for(100_000)
    assert len(other.messages) == 10
    silent.messages.clear()
    silent.acks = True
    assert silent.connect().session_present
    publisher.deliver("own", b"later")
    sim.run_for(100_000)
    (later,) = silent.messages
    assert later.payload == b"later"
    assert properties_from_forward(later.forward).user_properties == ()


@pytest.mark.trap(39)
def test_a_member_that_is_taken_over_keeps_what_it_has() -> None:
    """Trap 39: it is back already, so nothing is given to others."""
    sim = make_sim()
    publisher = connect_publisher(sim)
    silent, other = connect_member(sim, "a", acks=False), connect_member(sim, "b")
    send_numbers(publisher, 10)
    held = [message.packet_id for message in silent.messages]
    again = Client(sim, "a")
    assert again.connect().session_present
    sim.run_for(100_000)
    assert [message.packet_id for message in again.messages] == held
    assert all(message.dup for message in again.messages)
    assert len(other.messages) == 5


@pytest.mark.trap(39)
def test_what_an_expired_member_held_passes_on() -> None:
    sim = make_sim()
    publisher = connect_publisher(sim)
    silent = Client(sim, "a", acks=False)
    silent.connect(expiry_s=10)
    silent.subscribe(NAME, qos=1)
    bodies = send_numbers(publisher, 4)
    silent.cut()
    sim.kill()
    sim.start()
    sim.run_for(20_000_000)
    other = Client(sim, "b")
    other.connect()
    other.subscribe(NAME, qos=1)
    # The group went with its last member: a new one starts here.
    assert payloads_of(other) == []
    assert len(bodies) == 4


@pytest.mark.trap(39)
def test_the_first_member_back_takes_what_another_left() -> None:
    sim = make_sim()
    publisher = connect_publisher(sim)
    silent, other = connect_member(sim, "a", acks=False), connect_member(sim, "b")
    other.cut()
    bodies = send_numbers(publisher, 4)
    assert len(silent.messages) == 4
    silent.cut()
    sim.kill(power=True)
    sim.start()
    other.connect()
    assert payloads_of(other) == bodies
    silent.messages.clear()
    silent.connect()
    assert payloads_of(silent) == []


@pytest.mark.parametrize("expires", [False, True])
def test_what_a_member_acknowledged_out_of_order_does_not_pass_on(expires: bool) -> None:
    sim = make_sim()
    other = Client(sim, "other")
    other.connect(expiry_s=600)
    other.subscribe(NAME, qos=1)
    other.cut()
    away = Client(sim, "away", acks=False)
    away.connect(expiry_s=10)
    away.subscribe(NAME, qos=1)
    send_numbers(connect_publisher(sim), 4)
    sim.run_for(100_000)
    away.send(Ack(PUBACK, away.take_all(Publish)[1].packet_id))
    sim.run_for(1_000_000)
    away.cut()
    sim.run_for(20_000_000 if expires else 1_000_000)
    other.connect(expiry_s=600)
    assert payloads_of(other) == [b"0", b"2", b"3"]


@pytest.mark.spec("MQTT-4.8.2-4")
def test_a_qos_2_message_that_was_sent_stays_with_its_member() -> None:
    sim = make_sim()
    publisher = connect_publisher(sim)
    silent, other = connect_member(sim, "a", acks=False, qos=2), connect_member(sim, "b", qos=2)
    send_numbers(publisher, 2, qos=2)
    (held,) = silent.messages
    silent.cut()
    assert len(other.messages) == 1
    silent.connect()
    again = silent.take(Publish)
    assert (again.packet_id, again.payload, again.dup) == (held.packet_id, held.payload, True)
    silent.send(Ack(PUBREC, held.packet_id))
    assert silent.take(Ack).packet_id == held.packet_id
    silent.send(Ack(PUBCOMP, held.packet_id))
    send_numbers(publisher, 2, first=2, qos=2)
    assert len(other.messages) == 2


@pytest.mark.trap(40)
def test_members_that_leave_at_once_corrupt_nothing() -> None:
    """Trap 40: cut, expired, unsubscribed and taken over in one turn."""
    sim = make_sim()
    publisher = connect_publisher(sim)
    members = [connect_member(sim, f"m{number}", acks=False) for number in range(12)]
    survivor = connect_member(sim, "z")
    bodies = send_numbers(publisher, 26)
    assert len(survivor.messages) == 2
    for number, member in enumerate(members):
        assert member.wire is not None
        if number % 3 == 2:
            member.acks = True
            member.messages.clear()
            Client.connect(member, wait=False)
        else:
            member.wire.cut()
    sim.run_for(1_000_000)
    back = [member for number, member in enumerate(members) if number % 3 == 2]
    assert payloads_of(survivor, *back) == bodies
    group = sim.live.services.shared_subscriptions.groups["g/t/#"]
    assert sorted(m.client_id for m in group.members) == sorted(
        ["z", *(member.client_id for member in back)]
    )


def test_an_ephemeral_member_loses_nothing_for_the_group() -> None:
    """The group keeps what it gave to a session that lives in memory."""
    sim = make_sim()
    publisher = connect_publisher(sim)
    durable = connect_member(sim, "d")
    durable.cut()
    ephemeral = Client(sim, "e", acks=False)
    ephemeral.connect(expiry_s=0, clean=True)
    ephemeral.subscribe(NAME, qos=1)
    bodies = send_numbers(publisher, 4)
    assert len(ephemeral.messages) == 4
    sim.kill(power=True)
    sim.start()
    durable.connect()
    assert payloads_of(durable) == bodies


def test_a_group_without_members_is_forgotten() -> None:
    sim = make_sim()
    member = connect_member(sim, "a")
    assert list(sim.live.services.shared_subscriptions.groups) == ["g/t/#"]
    member.unsubscribe(NAME)
    sim.run_for(100_000)
    assert not sim.live.services.shared_subscriptions.groups
    sim.kill()
    sim.start()
    assert not sim.live.services.shared_subscriptions.groups


def test_a_qos_2_message_that_was_sent_before_a_crash_stays_with_its_member() -> None:
    """It waits behind a small window now, but its member had it before."""
    sim = make_sim()
    publisher = connect_publisher(sim)
    member, other = connect_member(sim, "a", acks=False, qos=2), Client(sim, "b")
    bodies = send_numbers(publisher, 5, qos=2)
    assert len(member.messages) == 5
    sim.kill()
    sim.start()
    other.connect()
    other.subscribe(NAME, qos=2)
    member.messages.clear()
    member.connect(receive_maximum=1)
    sim.run_for(50_000)
    again = Client(sim, "a")
    again.connect()
    assert payloads_of(again) == bodies
    assert payloads_of(other) == []


def test_what_an_offline_member_holds_is_taken_back_when_the_store_takes_writes_again() -> None:
    """The store fails while the member's client identifier is waited for."""
    sim = make_sim()
    publisher = connect_publisher(sim)
    silent = connect_member(sim, "a", acks=False)
    bodies = send_numbers(publisher, 4)
    silent.cut()
    services = sim.live.services
    registry, committer, shared = (
        services.registry,
        services.committer,
        services.shared_subscriptions,
    )
    (key,) = shared.groups

    def taken_back() -> list[bytes]:
        found: list[InboxEntry] = []

        async def read() -> None:
            found.extend(await services.database.read_group_entries(key, limit=9))

        assert sim.scheduler is not None
        sim.scheduler.run(read())
        return [each.message.payload for each in found if each.message is not None]

    assert sim.scheduler is not None
    sim.scheduler.run(registry.acquire("a"))
    shared._reclaim_later("a")
    sim.run_for(1_000)
    committer.writable = False
    registry.release("a")
    sim.run_for(3_000_000)
    assert committer.batch.is_empty()
    committer.writable = True
    sim.run_for(3_000_000)
    assert taken_back() == bodies


def test_of_many_offline_members_one_is_looked_at_in_a_turn() -> None:
    sim = make_sim()
    publisher = connect_publisher(sim)
    silent = [connect_member(sim, f"m{number}", acks=False) for number in range(20)]
    bodies = send_numbers(publisher, 60)
    for member in silent:
        member.cut()
    shared, turns = sim.live.services.shared_subscriptions, sim.live.services.turn_budget
    take_back, run, looked_at = shared.reclaim, turns._run, [0]

    def turn(budget: TurnBudget) -> None:
        looked_at.append(0)
        run()

    async def counted(self: object, stored: StoredSession, *, ends: bool) -> None:
        looked_at[-1] += 1
        await take_back(stored, ends=ends)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TurnBudget, "_run", turn)
        patch.setattr(type(shared), "reclaim", counted)
        assert payloads_of(connect_member(sim, "other")) == bodies
    assert sum(looked_at) == len(silent)
    assert max(looked_at) == 1
