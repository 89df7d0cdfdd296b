"""Shared subscriptions: each message to one member, none lost when members come and go."""

from __future__ import annotations

import pytest
from tests.unit.broker.harness import QUIET, Client, make_world

from perdure.config.schema import Config, SessionConfig
from perdure.mqtt.packets import PUBACK, PUBCOMP, PUBREC, Ack, Publish
from perdure.testing.world import World

NAME = "$share/g/t/#"


def _publisher(world: World) -> Client:
    publisher = Client(world, "p")
    publisher.connect(expiry_s=0, clean=True)
    return publisher


def _member(
    world: World, name: str, *, acks: bool = True, qos: int = 1, window: int = 100
) -> Client:
    member = Client(world, name, acks=acks)
    member.connect(receive_maximum=window)
    member.subscribe(NAME, qos=qos)
    return member


def _send(publisher: Client, count: int, *, first: int = 0, qos: int = 1) -> list[bytes]:
    bodies = [b"%d" % number for number in range(first, first + count)]
    for body in bodies:
        publisher.publish("t/a", body, qos=qos)
    publisher.world.run_for(100_000)
    return bodies


def _got(*members: Client) -> list[bytes]:
    for member in members:
        member.world.run_for(200_000)
    return sorted((m.payload for member in members for m in member.messages), key=int)


@pytest.mark.parametrize("qos", [1, 2])
def test_each_message_goes_to_one_member(qos: int) -> None:
    world = make_world()
    publisher = _publisher(world)
    members = [_member(world, name, qos=qos) for name in ("a", "b", "c")]
    bodies = _send(publisher, 30, qos=qos)
    assert _got(*members) == bodies
    assert all(len(member.messages) == 10 for member in members)


@pytest.mark.trap(37)
@pytest.mark.parametrize("power", [None, False, True])
def test_a_group_takes_up_where_it_was_when_a_member_resumes(power: bool | None) -> None:
    """Trap 37: on resume, not on SUBSCRIBE alone; after a restart too."""
    world = make_world()
    publisher = _publisher(world)
    member = _member(world, "a")
    first = _send(publisher, 3)
    assert _got(member) == first
    member.cut()
    later = _send(publisher, 5, first=3)
    if power is not None:
        world.kill(power=power)
        world.start()
    member.connect()
    assert _got(member) == first + later
    assert [m.payload for m in member.messages] == first + later


@pytest.mark.trap(38)
def test_after_a_restart_a_group_gives_nothing_twice_and_goes_on() -> None:
    """Trap 38: neither stands still nor starts again."""
    world = make_world()
    members = [_member(world, name) for name in ("a", "b")]
    bodies: list[bytes] = []
    for round_ in range(3):
        publisher = _publisher(world)
        bodies += _send(publisher, 10, first=round_ * 10)
        world.run_for(2_000_000)  # what was settled is synced once a second
        world.kill(power=True)
        world.start()
        for member in members:
            assert member.connect().session_present
    assert _got(*members) == sorted(bodies, key=int)


@pytest.mark.trap(39)
def test_what_a_member_did_not_acknowledge_passes_on_when_it_goes() -> None:
    world = make_world()
    publisher = _publisher(world)
    silent, other = _member(world, "a", acks=False), _member(world, "b")
    bodies = _send(publisher, 10)
    assert len(other.messages) == 5
    silent.cut()
    assert _got(other) == bodies
    # It comes back to nothing: the others have it.
    silent.messages.clear()
    silent.acks = True
    silent.connect()
    assert _got(silent) == []
    assert _got(other, silent) == bodies


@pytest.mark.trap(39)
def test_a_member_that_is_taken_over_keeps_what_it_has() -> None:
    """Trap 39: it is back already, so nothing is given to others."""
    world = make_world()
    publisher = _publisher(world)
    silent, other = _member(world, "a", acks=False), _member(world, "b")
    _send(publisher, 10)
    held = [message.packet_id for message in silent.messages]
    again = Client(world, "a")
    assert again.connect().session_present
    world.run_for(100_000)
    assert [message.packet_id for message in again.messages] == held
    assert all(message.dup for message in again.messages)
    assert len(other.messages) == 5


@pytest.mark.trap(39)
def test_what_an_expired_member_held_passes_on() -> None:
    world = make_world()
    publisher = _publisher(world)
    silent = Client(world, "a", acks=False)
    silent.connect(expiry_s=10)
    silent.subscribe(NAME, qos=1)
    bodies = _send(publisher, 4)
    silent.cut()
    world.kill()
    world.start()
    world.run_for(20_000_000)
    other = Client(world, "b")
    other.connect()
    other.subscribe(NAME, qos=1)
    # The group went with its last member: a new one starts here.
    assert _got(other) == []
    assert len(bodies) == 4


@pytest.mark.trap(39)
def test_the_first_member_back_takes_what_another_left() -> None:
    world = make_world()
    publisher = _publisher(world)
    silent, other = _member(world, "a", acks=False), _member(world, "b")
    other.cut()
    bodies = _send(publisher, 4)
    assert len(silent.messages) == 4
    silent.cut()
    world.kill(power=True)
    world.start()
    other.connect()
    assert _got(other) == bodies
    silent.messages.clear()
    silent.connect()
    assert _got(silent) == []


@pytest.mark.spec("MQTT-4.8.2-4")
def test_a_qos_2_message_that_was_sent_stays_with_its_member() -> None:
    world = make_world()
    publisher = _publisher(world)
    silent, other = _member(world, "a", acks=False, qos=2), _member(world, "b", qos=2)
    _send(publisher, 2, qos=2)
    (held,) = silent.messages
    silent.cut()
    assert len(other.messages) == 1
    silent.connect()
    again = silent.take(Publish)
    assert (again.packet_id, again.payload, again.dup) == (held.packet_id, held.payload, True)
    silent.send(Ack(PUBREC, held.packet_id))
    assert silent.take(Ack).packet_id == held.packet_id
    silent.send(Ack(PUBCOMP, held.packet_id))
    _send(publisher, 2, first=2, qos=2)
    assert len(other.messages) == 2


@pytest.mark.trap(36)
def test_a_qos_0_member_neither_blocks_nor_repeats() -> None:
    """Trap 36: what it is given is given; the group moves on."""
    world = make_world()
    publisher = _publisher(world)
    member = _member(world, "a", qos=0)
    bodies = _send(publisher, 10)
    assert _got(member) == bodies
    member.cut()
    later = _send(publisher, 3, first=10)
    world.kill(power=True)
    world.start()
    member.connect()
    assert _got(member) == bodies + later


@pytest.mark.trap(34)
def test_a_member_that_joins_relieves_a_full_one() -> None:
    """Trap 34: the group does not wait for the member that is full."""
    world = make_world()
    publisher = _publisher(world)
    full = _member(world, "a", acks=False, window=2)
    bodies = _send(publisher, 10)
    assert len(full.messages) == 2
    other = _member(world, "b")
    assert _got(full, other) == bodies


@pytest.mark.trap(34)
def test_a_full_member_goes_on_when_it_acknowledges() -> None:
    world = make_world()
    publisher = _publisher(world)
    member = _member(world, "a", acks=False, window=3)
    _send(publisher, 10)
    for number in range(10):
        message = member.take(Publish)
        assert message.payload == b"%d" % number
        member.send(Ack(PUBACK, message.packet_id))
    member.none_comes()


@pytest.mark.trap(40)
def test_members_that_leave_at_once_corrupt_nothing() -> None:
    """Trap 40: cut, expired, unsubscribed and taken over in one turn."""
    world = make_world()
    publisher = _publisher(world)
    members = [_member(world, f"m{number}", acks=False) for number in range(12)]
    survivor = _member(world, "z")
    bodies = _send(publisher, 26)
    assert len(survivor.messages) == 2
    for number, member in enumerate(members):
        assert member.wire is not None
        if number % 3 == 2:
            member.acks = True
            member.messages.clear()
            Client.connect(member, wait=False)
        else:
            member.wire.cut()
    world.run_for(1_000_000)
    back = [member for number, member in enumerate(members) if number % 3 == 2]
    assert _got(survivor, *back) == bodies
    group = world.live.services.shares.groups["g/t/#"]
    assert sorted(m.client_id for m in group.members) == sorted(
        ["z", *(member.client_id for member in back)]
    )


def test_an_ephemeral_member_loses_nothing_for_the_group() -> None:
    """The group keeps what it gave to a session that lives in memory."""
    world = make_world()
    publisher = _publisher(world)
    durable = _member(world, "d")
    durable.cut()
    ephemeral = Client(world, "e", acks=False)
    ephemeral.connect(expiry_s=0, clean=True)
    ephemeral.subscribe(NAME, qos=1)
    bodies = _send(publisher, 4)
    assert len(ephemeral.messages) == 4
    world.kill(power=True)
    world.start()
    durable.connect()
    assert _got(durable) == bodies


def test_a_group_without_members_is_forgotten() -> None:
    world = make_world()
    member = _member(world, "a")
    assert list(world.live.services.shares.groups) == ["g/t/#"]
    member.unsubscribe(NAME)
    world.run_for(100_000)
    assert not world.live.services.shares.groups
    world.kill()
    world.start()
    assert not world.live.services.shares.groups


def test_no_member_gets_what_it_cannot_take_at_once() -> None:
    config = Config(sys=QUIET, session=SessionConfig(inflight_max=2))
    world = make_world(config=config)
    publisher = _publisher(world)
    slow, quick = _member(world, "a", acks=False), _member(world, "b")
    bodies = _send(publisher, 20)
    assert len(slow.messages) == 2
    assert _got(slow, quick) == bodies


def test_a_qos_2_message_that_was_sent_before_a_crash_stays_with_its_member() -> None:
    """It waits behind a small window now, but its member had it before."""
    world = make_world()
    publisher = _publisher(world)
    member, other = _member(world, "a", acks=False, qos=2), Client(world, "b")
    bodies = _send(publisher, 5, qos=2)
    assert len(member.messages) == 5
    world.kill()
    world.start()
    other.connect()
    other.subscribe(NAME, qos=2)
    member.messages.clear()
    member.connect(receive_maximum=1)
    world.run_for(50_000)
    again = Client(world, "a")
    again.connect()
    assert _got(again) == bodies
    assert _got(other) == []


@pytest.mark.parametrize("restarts", [False, True])
def test_what_comes_back_keeps_its_place_before_the_log(restarts: bool) -> None:
    """What was given late has a late offset of its own; its place is the one in the log, before
    what retention has carried over since."""
    world = make_world()
    publisher = _publisher(world)
    member = _member(world, "a", acks=False, window=5)
    bodies = _send(publisher, 20)
    assert _got(member) == bodies[:5]
    # The next five are given, and wait in the dispatch behind a message that is not synced.
    assert world.scheduler is not None
    world.scheduler.blocking_us = (2_000_000, 2_000_000)
    publisher.publish("other", qos=2)
    world.run_for(2_000)
    for message in member.messages:
        member.send(Ack(PUBACK, message.packet_id))
    world.run_for(20_000)
    assert len(member.messages) == 5
    member.cut()
    world.run_for(3_000_000)
    world.scheduler.blocking_us = (1_000, 1_000)
    world.store.rotate(world.clock.now_us())
    dropped: list[int] = []

    async def drop() -> None:
        info = world.store.generations()[0]
        dropped.append(await world.live.services.retention.drop(info))

    world.scheduler.run(drop())
    assert dropped == [10]
    if restarts:
        world.kill()
        world.start()
    taker = Client(world, "b")
    taker.connect()
    taker.subscribe(NAME, qos=1)
    world.run_for(200_000)
    assert [message.payload for message in taker.messages] == bodies[5:]
