"""Runs: messages of one connection that came together, and their acknowledgements."""

from __future__ import annotations

import pytest

from perdure.broker.auth.acl import AclAuthorizer
from perdure.broker.auth.acl_rules import AclRules
from perdure.broker.commit.pipeline import WALL_READ_US
from perdure.config.schema import Config, StorageConfig, SysConfig
from perdure.errors import StorageFull
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscribeFilter,
)
from tests.support.sim_broker import SimBroker
from tests.unit.broker.harness import Client, make_sim, stalled_sim


def _publish(number: int, *, qos: int = 1, topic: str = "t", packet_id: int = 0) -> Publish:
    return Publish(topic, b"%d" % number, qos, packet_id=(packet_id or number) if qos else 0)


def _pair(sim: SimBroker, *, version: int = 5) -> tuple[Client, Client]:
    publisher, subscriber = Client(sim, "p", version=version, acks=False), Client(sim, "s")
    publisher.connect()
    subscriber.connect()
    subscriber.subscribe("#", qos=2)
    return publisher, subscriber


def _answers(client: Client) -> list[Packet]:
    client.sim.run_for(100_000)
    found = list(client.received)
    client.received.clear()
    return found


@pytest.mark.spec("MQTT-4.6.0-2")
def test_messages_that_come_together_are_acknowledged_in_their_order() -> None:
    publisher, subscriber = _pair(make_sim())
    publisher.send(*(_publish(number) for number in range(1, 41)))
    assert _answers(publisher) == [Ack(PUBACK, number) for number in range(1, 41)]
    assert subscriber.payloads() == [b"%d" % number for number in range(1, 41)]


@pytest.mark.spec("MQTT-4.6.0-2")
@pytest.mark.spec("MQTT-4.6.0-3")
def test_a_run_ends_where_the_qos_changes_and_the_order_stays() -> None:
    publisher, subscriber = _pair(make_sim())
    qos = [1, 1, 0, 2, 2, 1, 0, 2]
    publisher.send(*(_publish(number, qos=level) for number, level in enumerate(qos, 1)))
    kinds = {1: PUBACK, 2: PUBREC}
    expected = [Ack(kinds[level], number) for number, level in enumerate(qos, 1) if level]
    assert _answers(publisher) == expected
    for number, level in enumerate(qos, 1):
        if level == 2:
            publisher.send(Ack(PUBREL, number))
    assert subscriber.payloads() == [b"%d" % number for number in range(1, len(qos) + 1)]


def test_a_packet_between_two_messages_is_answered_in_its_place() -> None:
    publisher, _ = _pair(make_sim())
    wish = [SubscribeFilter("other", 1)]
    publisher.send(
        _publish(1), _publish(2), Subscribe(9, wish), _publish(3), Pingreq(), _publish(4)
    )
    found = [packet for packet in _answers(publisher) if not isinstance(packet, Pingresp)]
    assert found == [
        Ack(PUBACK, 1),
        Ack(PUBACK, 2),
        Suback(9, [1]),
        Ack(PUBACK, 3),
        Ack(PUBACK, 4),
    ]


def test_what_came_before_a_broken_packet_is_taken() -> None:
    sim = make_sim()
    publisher, subscriber = _pair(sim)
    publisher.send(
        _publish(1), _publish(2), Publish("t", b"alias", 1, packet_id=3, topic_alias=65_535)
    )
    assert [type(packet) for packet in _answers(publisher)][-1:] == [Disconnect]
    assert subscriber.payloads() == [b"1", b"2"]


@pytest.mark.parametrize("version", [4, 5])
def test_nothing_of_a_run_is_acknowledged_before_the_sync(version: int) -> None:
    sim = stalled_sim()
    publisher = Client(sim, "p", version=version, acks=False)
    publisher.connect(clean=True, expiry_s=0, wait=False)
    sim.run_for(10_000)
    publisher.send(*(_publish(number) for number in range(1, 6)))
    publisher.none_comes(Ack)
    # Messages count, not who waits for them: limits and metrics are in messages.
    assert sim.live.services.committer.backlog() >= 5


def test_what_a_sync_waits_for_is_counted_whatever_pieces_it_comes_in() -> None:
    """A message of many pieces is as long as they are together, and a small one is not counted."""
    sim = stalled_sim()
    publisher = Client(sim, "p", acks=False)
    publisher.connect(clean=True, expiry_s=0, wait=False)
    sim.run_for(10_000)
    sync = sim.live.services.committer.log_sync
    publisher.send(_publish(1))
    sim.run_for(10_000)
    assert sync.is_running
    assert sync.large_bytes == 0
    data = encode(Publish("t", b"x" * 100_000, 1, packet_id=2), 5)
    assert publisher.wire is not None
    for piece in (data[:60_000], data[60_000:-10], data[-10:]):
        assert sync.large_bytes == 0
        publisher.wire.send(piece)
        sim.run_for(10_000)
    assert sync.large_bytes == len(data)


def test_a_refusal_in_a_run_keeps_its_place() -> None:
    rules = AclRules.parse("topic write open/#\ntopic read #\n", name="test")
    sim = SimBroker(config=Config(sys=SysConfig(interval_s=0)), authorizer=AclAuthorizer(rules))
    sim.start()
    publisher = Client(sim, "p", acks=False)
    publisher.connect()
    topics = ["open/1", "closed/2", "open/3", "open/4", "closed/5"]
    publisher.send(*(_publish(number, topic=topic) for number, topic in enumerate(topics, 1)))
    found = [packet for packet in _answers(publisher) if isinstance(packet, Ack)]
    assert [(ack.packet_id, ack.reason == 0x87) for ack in found] == [
        (1, False),
        (2, True),
        (3, False),
        (4, False),
        (5, True),
    ]


@pytest.mark.spec("MQTT-4.3.3-10")
def test_a_repeated_identifier_within_a_run_is_one_message() -> None:
    publisher, subscriber = _pair(make_sim())
    publisher.send(_publish(1, qos=2), _publish(2, qos=2), _publish(1, qos=2), _publish(3, qos=2))
    found = [packet for packet in _answers(publisher) if isinstance(packet, Ack)]
    assert [ack.packet_id for ack in found] == [1, 2, 1, 3]
    for number in (1, 2, 3):
        publisher.send(Ack(PUBREL, number))
    assert subscriber.payloads() == [b"1", b"2", b"3"]


def test_each_message_of_a_run_is_told_whether_anybody_heard_it() -> None:
    publisher = Client(make_sim(), "p", acks=False)
    publisher.connect()
    publisher.subscribe("heard", qos=0)
    topics = ["lost", "heard", "heard", "lost"]
    publisher.send(*(_publish(number, topic=topic) for number, topic in enumerate(topics, 1)))
    found = [packet for packet in _answers(publisher) if isinstance(packet, Ack)]
    assert [ack.reason for ack in found] == [0x10, 0, 0, 0x10]


@pytest.mark.parametrize(("version", "codes"), [(5, [0x97] * 3), (4, [])])
def test_a_store_that_takes_nothing_refuses_each_message_of_a_run(
    version: int, codes: list[int]
) -> None:
    sim = make_sim()
    publisher, _ = _pair(sim, version=version)
    sim.store.write_error = StorageFull("no space")
    publisher.send(*(_publish(number) for number in range(1, 4)))
    found = [packet for packet in _answers(publisher) if isinstance(packet, Ack)]
    assert [ack.reason for ack in found] == codes
    assert publisher.is_lost is (version == 4)
    assert sim.live.services.metrics.messages_dropped_quota == 3


def test_a_run_that_is_not_recorded_is_delivered_and_retained() -> None:
    sim = make_sim(
        config=Config(sys=SysConfig(interval_s=0), storage=StorageConfig(record=("kept/#",)))
    )
    publisher, subscriber = _pair(sim)
    publisher.send(
        _publish(1),
        Publish("t", b"2", 1, retain=True, packet_id=2),
        _publish(3, topic="kept/x"),
        _publish(4),
    )
    assert [p.packet_id for p in _answers(publisher) if isinstance(p, Ack)] == [1, 2, 3, 4]
    assert sorted(subscriber.payloads()) == [b"1", b"2", b"3", b"4"]
    assert [m.payload for m in subscriber.messages if m.topic == "t"] == [b"1", b"2", b"4"]
    late = Client(sim, "late")
    late.connect()
    late.subscribe("t", qos=1)
    assert late.payloads() == [b"2"]


@pytest.mark.spec("MQTT-4.6.0-4")
def test_what_state_owes_is_answered_together_and_in_order() -> None:
    """PUBREL and PUBREC that come together: one waiter and one cursor, each answered."""
    sim = make_sim()
    publisher, subscriber = Client(sim, "p", acks=False), Client(sim, "s", acks=False)
    publisher.connect()
    subscriber.connect()
    subscriber.subscribe("t", qos=2)
    numbers = range(1, 11)
    publisher.send(*(_publish(number, qos=2) for number in numbers))
    assert _answers(publisher) == [Ack(PUBREC, number) for number in numbers]
    sent = [packet.packet_id for packet in _answers(subscriber) if isinstance(packet, Publish)]
    before = sim.store.write_count
    publisher.send(*(Ack(PUBREL, number) for number in numbers))
    assert _answers(publisher) == [Ack(PUBCOMP, number) for number in numbers]
    assert sim.store.write_count == before + 1
    subscriber.send(*(Ack(PUBREC, number) for number in sent))
    assert _answers(subscriber) == [Ack(PUBREL, number) for number in sent]
    assert sim.store.write_count == before + 2
    subscriber.cut()
    assert subscriber.connect().session_present
    # What the cursor says: all of them are past PUBREC, none is sent again.
    assert _answers(subscriber) == [Ack(PUBREL, number) for number in sent]


def test_kinds_of_acknowledgements_that_alternate_keep_their_order() -> None:
    sim = make_sim()
    client = Client(sim, "c", acks=False)
    client.connect()
    client.subscribe("t", qos=2)
    client.send(_publish(1, qos=2), _publish(2, qos=2))
    sent = [packet.packet_id for packet in _answers(client) if isinstance(packet, Publish)]
    client.send(
        Ack(PUBREL, 1),
        Ack(PUBREC, sent[0]),
        _publish(3),
        Ack(PUBREC, sent[1]),
        Ack(PUBREL, 2),
        Ack(PUBREL, 9),
    )
    found = [packet for packet in _answers(client) if isinstance(packet, Ack)]
    assert found == [
        Ack(PUBCOMP, 1),
        Ack(PUBREL, sent[0]),
        Ack(PUBACK, 3),
        Ack(PUBREL, sent[1]),
        Ack(PUBCOMP, 2),
        Ack(PUBCOMP, 9, 0x92),
    ]


@pytest.mark.parametrize("change_us", [3_600_000_000, -3_600_000_000])
def test_a_message_carries_the_wall_time_of_its_arrival(change_us: int) -> None:
    """It is what a replay from a time goes by."""
    sim = make_sim()
    reader, client = Client(sim, "r"), Client(sim, "c")
    reader.connect()
    client.connect()
    moments = []
    for number in range(50):
        moments.append(sim.clock.now_us())
        client.publish("t", b"%d" % number)
        sim.run_for(137)
    sim.clock.step_wall_us(change_us)
    sim.run_for(WALL_READ_US)
    client.publish("t", b"later")
    sim.run_for(137)
    assert 0 <= sim.clock.now_us() - sim.live.services.pipeline.wall_us() <= 137
    for number, moment_us in enumerate(moments):
        reader.subscribe(f"$replay/{moment_us}/t", qos=1)
        sim.run_for(50_000)
        assert reader.messages[0].payload == b"%d" % number
        reader.unsubscribe(f"$replay/{moment_us}/t")
        reader.messages.clear()
