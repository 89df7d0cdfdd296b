"""A group: each message to one member, in the log's order, and on from where it stood."""

from __future__ import annotations

import pytest

from perdure.broker.access.revoking import revoke
from perdure.config.schema import Config, SessionConfig
from perdure.mqtt.packets import PUBACK, Ack, Properties, Publish
from tests.unit.broker.harness import QUIET, Client, make_sim
from tests.unit.broker.naming import connect_as, make_named_sim, use_acl
from tests.unit.broker.sharing import (
    NAME,
    connect_member,
    connect_publisher,
    payloads_of,
    send_numbers,
)


@pytest.mark.parametrize("qos", [1, 2])
def test_each_message_goes_to_one_member(qos: int) -> None:
    sim = make_sim()
    publisher = connect_publisher(sim)
    members = [connect_member(sim, name, qos=qos) for name in ("a", "b", "c")]
    bodies = send_numbers(publisher, 30, qos=qos)
    assert payloads_of(*members) == bodies
    assert all(len(member.messages) == 10 for member in members)


@pytest.mark.trap(37)
@pytest.mark.parametrize("power", [None, False, True])
def test_a_group_takes_up_where_it_was_when_a_member_resumes(power: bool | None) -> None:
    """Trap 37: on resume, not on SUBSCRIBE alone; after a restart too."""
    sim = make_sim()
    publisher = connect_publisher(sim)
    member = connect_member(sim, "a")
    first = send_numbers(publisher, 3)
    assert payloads_of(member) == first
    member.cut()
    later = send_numbers(publisher, 5, first=3)
    if power is not None:
        sim.kill(power=power)
        sim.start()
    member.connect()
    assert payloads_of(member) == first + later
    assert [m.payload for m in member.messages] == first + later


@pytest.mark.trap(38)
def test_after_a_restart_a_group_gives_nothing_twice_and_goes_on() -> None:
    """Trap 38: neither stands still nor starts again."""
    sim = make_sim()
    members = [connect_member(sim, name) for name in ("a", "b")]
    bodies: list[bytes] = []
    for round_ in range(3):
        publisher = connect_publisher(sim)
        bodies += send_numbers(publisher, 10, first=round_ * 10)
        sim.run_for(2_000_000)  # what was settled is synced once a second
        sim.kill(power=True)
        sim.start()
        for member in members:
            assert member.connect().session_present
    assert payloads_of(*members) == sorted(bodies, key=int)


@pytest.mark.trap(36)
def burst(publisher: Client, count: int) -> None:
    """Publish numbered messages that arrive together."""
    publisher.send(
        *[
            Publish("t/a", b"%d" % number, 1, False, False, number + 1, 0, -1)
            for number in range(count)
        ]
    )
    publisher.sim.run_for(100_000)


def numbers_of(member: Client) -> list[int]:
    return [int(message.payload) for message in member.messages]


def test_members_get_equal_stretches_of_a_burst() -> None:
    sim = make_sim()
    members = [connect_member(sim, f"m{number}") for number in range(3)]
    burst(connect_publisher(sim), 32)
    assert [numbers_of(member) for member in members] == [
        [*range(10), 30],
        [*range(10, 20), 31],
        [*range(20, 30)],
    ]


@pytest.mark.parametrize("where", ["", '{"n": {"$gte": 20}}'])
def test_groups_beside_each_other_and_a_plain_subscriber_get_all(where: str) -> None:
    wish = Properties(user_properties=(("filter", where),) if where else ())
    sim = make_sim()
    plain = Client(sim, "plain")
    plain.connect()
    plain.subscribe("t/#", qos=1)
    groups = [[Client(sim, f"{name}{number}") for number in range(3)] for name in "abc"]
    for name, members in zip("abc", groups, strict=True):
        for member in members:
            member.connect(receive_maximum=100)
            member.subscribe(f"$share/{name}/t/#", qos=1, properties=wish)
    bodies = [b'{"n": %d}' % number for number in range(60)]
    connect_publisher(sim).send(
        *[
            Publish("t/a", body, 1, False, False, number + 1, 0, -1)
            for number, body in enumerate(bodies)
        ]
    )
    sim.run_for(100_000)
    assert [message.payload for message in plain.messages] == bodies
    wanted = bodies[20:] if where else bodies
    for members in groups:
        parts = [[bodies.index(each.payload) for each in member.messages] for member in members]
        assert sorted(number for part in parts for number in part) == [
            bodies.index(body) for body in wanted
        ]
        assert all(part == sorted(part) for part in parts)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_stretch_is_no_longer_than_the_window_has_room() -> None:
    sim = make_sim()
    narrow = connect_member(sim, "narrow", acks=False, window=3)
    others = [connect_member(sim, f"m{number}") for number in range(2)]
    burst(connect_publisher(sim), 30)
    assert numbers_of(narrow) == [0, 1, 2]
    assert payloads_of(narrow, *others) == [b"%d" % number for number in range(30)]
    assert all(numbers_of(member) == sorted(numbers_of(member)) for member in others)


def test_a_stretch_larger_than_a_row_is_several() -> None:
    sim = make_sim()
    member = connect_member(sim, "m", window=2_000)
    burst(connect_publisher(sim), 600)
    assert numbers_of(member) == list(range(600))


def test_a_qos_0_member_neither_blocks_nor_repeats() -> None:
    """Trap 36: what it is given is given; the group moves on."""
    sim = make_sim()
    publisher = connect_publisher(sim)
    member = connect_member(sim, "a", qos=0)
    bodies = send_numbers(publisher, 10)
    assert payloads_of(member) == bodies
    member.cut()
    later = send_numbers(publisher, 3, first=10)
    sim.kill(power=True)
    sim.start()
    member.connect()
    assert payloads_of(member) == bodies + later


@pytest.mark.trap(34)
def test_a_member_that_joins_relieves_a_full_one() -> None:
    """Trap 34: the group does not wait for the member that is full."""
    sim = make_sim()
    publisher = connect_publisher(sim)
    full = connect_member(sim, "a", acks=False, window=2)
    bodies = send_numbers(publisher, 10)
    assert len(full.messages) == 2
    other = connect_member(sim, "b")
    assert payloads_of(full, other) == bodies


@pytest.mark.trap(34)
def test_a_full_member_goes_on_when_it_acknowledges() -> None:
    sim = make_sim()
    publisher = connect_publisher(sim)
    member = connect_member(sim, "a", acks=False, window=3)
    send_numbers(publisher, 10)
    for number in range(10):
        message = member.take(Publish)
        assert message.payload == b"%d" % number
        member.send(Ack(PUBACK, message.packet_id))
    member.none_comes()


def test_no_member_gets_what_it_cannot_take_at_once() -> None:
    config = Config(sys=QUIET, session=SessionConfig(inflight_max=2))
    sim = make_sim(config=config)
    publisher = connect_publisher(sim)
    slow, quick = connect_member(sim, "a", acks=False), connect_member(sim, "b")
    bodies = send_numbers(publisher, 20)
    assert len(slow.messages) == 2
    assert payloads_of(slow, quick) == bodies


@pytest.mark.parametrize("restarts", [False, True])
def test_what_comes_back_keeps_its_place_before_the_log(restarts: bool) -> None:
    """What was given late has a late offset of its own; its place is the one in the log, before
    what retention has carried over since."""
    sim = make_sim()
    publisher = connect_publisher(sim)
    member = connect_member(sim, "a", acks=False, window=5)
    bodies = send_numbers(publisher, 20)
    assert payloads_of(member) == bodies[:5]
    # The next five are given, and wait in the dispatch behind a message that is not synced.
    assert sim.scheduler is not None
    sim.scheduler.blocking_us = (2_000_000, 2_000_000)
    publisher.publish("other", qos=2)
    sim.run_for(2_000)
    for message in member.messages:
        member.send(Ack(PUBACK, message.packet_id))
    sim.run_for(20_000)
    assert len(member.messages) == 5
    member.cut()
    sim.run_for(3_000_000)
    sim.scheduler.blocking_us = (1_000, 1_000)
    sim.store.rotate(sim.clock.now_us())
    dropped: list[int] = []

    async def drop() -> None:
        info = sim.store.generations()[0]
        dropped.append(await sim.live.services.retention.drop(info))

    sim.scheduler.run(drop())
    assert dropped == [10]
    if restarts:
        sim.kill()
        sim.start()
    taker = Client(sim, "b")
    taker.connect()
    taker.subscribe(NAME, qos=1)
    sim.run_for(200_000)
    assert [message.payload for message in taker.messages] == bodies[5:]


ACL = """
topic readwrite #
user reader
topic read t/#
user other
topic read other/#
topic read t/b
"""


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_member_without_rights_swallows_nothing(qos: int) -> None:
    sim = make_named_sim(acl=ACL)
    publisher = connect_publisher(sim)
    able, unable = Client(sim, "a"), Client(sim, "b")
    connect_as(able, "reader")
    connect_as(unable, "other")
    for member in (able, unable):
        assert member.subscribe(NAME, qos=2).reasons == [2]
    bodies = send_numbers(publisher, 20, qos=qos)
    assert payloads_of(able) == bodies
    assert unable.messages == []
    assert sim.live.services.metrics.messages_dropped_not_authorized == 0


def test_the_group_waits_for_the_member_that_may_read() -> None:
    """While its window is full the others, which have room, get nothing of it; then it goes on."""
    sim = make_named_sim(acl=ACL)
    publisher = connect_publisher(sim)
    able, unable = Client(sim, "a", acks=False), Client(sim, "b")
    connect_as(able, "reader", receive_maximum=2)
    connect_as(unable, "other")
    for member in (able, unable):
        member.subscribe(NAME, qos=1)
    bodies = send_numbers(publisher, 10)
    assert payloads_of(able) == bodies[:2]
    able.acks = True
    for message in able.messages[:2]:
        able.send(Ack(PUBACK, message.packet_id))
    assert payloads_of(able, unable) == bodies


@pytest.mark.parametrize("qos", [0, 1])
def test_what_nobody_may_have_is_passed_over_and_counted(qos: int) -> None:
    sim = make_named_sim(acl=ACL)
    publisher = connect_publisher(sim)
    member = Client(sim, "b")
    connect_as(member, "other")
    member.subscribe(NAME, qos=1)
    send_numbers(publisher, 5, qos=qos)
    publisher.publish("t/b", b"99", qos=qos)
    assert payloads_of(member) == [b"99"]
    assert sim.live.services.metrics.messages_dropped_not_authorized == 5


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_too_large_for_one_goes_to_another(qos: int) -> None:
    sim = make_named_sim()
    publisher = connect_publisher(sim)
    small, large = Client(sim, "a"), Client(sim, "b")
    connect_as(small, None, size_max=100)
    connect_as(large, None)
    for member in (small, large):
        member.subscribe(NAME, qos=2)
    for _ in range(6):
        publisher.publish("t/a", bytes(200), qos=qos)
        publisher.publish("t/a", b"s", qos=qos)
    sim.run_for(300_000)
    assert [len(message.payload) for message in large.messages].count(200) == 6
    assert {len(message.payload) for message in small.messages} == {1}
    metrics = sim.live.services.metrics
    assert metrics.messages_dropped_too_large == 0
    large.cut()
    publisher.publish("t/a", bytes(200), qos=qos)
    publisher.publish("t/a", b"s", qos=qos)
    before = len(small.messages)
    sim.run_for(300_000)
    assert len(small.messages) == before + 1
    assert metrics.messages_dropped_too_large == 1


def test_what_a_member_may_not_read_any_more_goes_back_to_the_group() -> None:
    """It waited for the member's window when the right was withdrawn; what was sent stays."""
    sim = make_named_sim(acl=ACL)
    publisher = connect_publisher(sim)
    holder, other = Client(sim, "a", acks=False), Client(sim, "b")
    connect_as(holder, "reader", receive_maximum=10)
    holder.subscribe(NAME, qos=1)
    bodies = send_numbers(publisher, 4)
    assert payloads_of(holder) == bodies
    holder.cut()
    holder.messages.clear()
    connect_as(holder, "reader", receive_maximum=1)
    connect_as(other, "other")
    other.subscribe(NAME, qos=1)
    assert payloads_of(holder) == bodies[:1]
    use_acl(sim, "topic readwrite #\nuser other\ntopic read t/#\n")
    revoke(sim.live.services, sim.live.services.registry, sim.live.services.shared_subscriptions)
    assert payloads_of(other) == bodies[1:]
    assert payloads_of(holder) == bodies[:1]
    assert sim.live.services.metrics.messages_dropped_not_authorized == 0


def test_a_group_that_waits_for_a_member_goes_on_when_the_rules_change() -> None:
    sim = make_named_sim(acl=ACL)
    publisher = connect_publisher(sim)
    full, other = Client(sim, "a", acks=False), Client(sim, "b")
    connect_as(full, "reader", receive_maximum=1)
    connect_as(other, "other")
    for member in (full, other):
        member.subscribe(NAME, qos=1)
    bodies = send_numbers(publisher, 4)
    assert payloads_of(full, other) == bodies[:1]
    use_acl(sim, "topic readwrite #\nuser other\ntopic read t/#\n")
    revoke(sim.live.services, sim.live.services.registry, sim.live.services.shared_subscriptions)
    assert payloads_of(other) == bodies[1:]
