"""What one node has acknowledged holds at the next one at once: three processes on a real Kafka.

Each case goes around the nodes, and never waits for anything but answers. The wire cases do the
same by chance, all of them: ``PERDURE_TEST_BACKEND=cluster pytest tests/wire``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import pytest

from tests.wire.cluster_broker import ClusterBroker
from tests.wire.harness import Options
from tests.wire.packets import Kind, Prop, Reason, Will
from tests.wire.process_broker import ProcessBroker
from tests.wire.reader import Packet

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

AROUND: Final = tuple(itertools.permutations(range(3)))
"""Every order of the nodes."""
NO_LOCAL: Final = 0x04

Nodes = tuple[ProcessBroker, ProcessBroker, ProcessBroker]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterBroker]:
    cluster = ClusterBroker(tmp_path_factory.mktemp("cluster"), Options())
    cluster.start()
    yield cluster
    cluster.close()


@pytest.fixture
def around(broker: ClusterBroker) -> Iterator[Iterator[tuple[str, Nodes]]]:
    """A name and the nodes in an order, of each round of a case."""

    def rounds() -> Iterator[tuple[str, Nodes]]:
        for number, order in enumerate(AROUND):
            first, second, third = (broker.nodes[at] for at in order)
            yield f"r{number}", (first, second, third)
            for node in broker.nodes:
                node.close_peers()

    yield rounds()
    broker.check_health()


Around = Iterator[tuple[str, Nodes]]


def test_suback_then_publish(around: Around) -> None:
    for name, (first, second, third) in around:
        readers = [first.connect(f"{name}a"), third.connect(f"{name}b", version=4)]
        publisher = second.connect(f"{name}p")
        for qos in (0, 1, 2):
            topic = f"{name}/sub/{qos}"
            for reader in readers:
                reader.subscribe((topic, 2))
            publisher.publish(topic, b"x", qos=qos)
            for reader in readers:
                reader.receive_publish(topic, b"x", qos=qos)


def test_unsuback_then_publish(around: Around) -> None:
    for name, (first, second, _) in around:
        reader, publisher = first.connect(f"{name}a"), second.connect(f"{name}p")
        for number in range(4):
            reader.subscribe((f"{name}/u", 1))
            publisher.publish(f"{name}/u", b"%d" % number, qos=1)
            reader.unsubscribe(f"{name}/u")
            publisher.publish(f"{name}/u", b"unwanted", qos=1)
            found = [each.payload for each in reader.drain() if each.kind is Kind.PUBLISH]
            assert found == [b"%d" % number]


def test_retained_then_subscribe_and_cleared_then_subscribe(around: Around) -> None:
    for name, (first, second, third) in around:
        for number in range(3):
            topic = f"{name}/r/{number}"
            first.connect(f"{name}a").publish(topic, b"kept", qos=number, retain=True)
            reader = second.connect(f"{name}b")
            reader.subscribe((f"{name}/r/+", 0))
            found = {reader.take_publish().topic for _ in range(number + 1)}
            assert topic in found
        for number in range(3):
            third.connect(f"{name}c").publish(f"{name}/r/{number}", b"", qos=1, retain=True)
            left = first.connect(f"{name}d")
            left.subscribe((f"{name}/r/+", 0))
            assert len([p for p in left.drain() if p.kind is Kind.PUBLISH]) == 2 - number


def test_who_comes_elsewhere_takes_the_session_over(around: Around) -> None:
    """With its subscriptions, their identifiers, and what is not acknowledged; or without all."""
    for name, (first, second, third) in around:
        one = first.connect(name, expiry=600, properties=[(Prop.RECEIVE_MAX, 2)])
        one.subscribe((f"{name}/t", 1), properties=[(Prop.SUBSCRIPTION_ID, 77)])
        publisher = third.connect(f"{name}p")
        for number in range(5):
            publisher.publish(f"{name}/t", b"%d" % number, qos=1)
        held = [one.expect_packet(Kind.PUBLISH) for _ in range(2)]
        one.expect_silence(0.05)
        two = second.connect(
            name,
            clean=False,
            expiry=600,
            properties=[(Prop.RECEIVE_MAX, 3)],
            session_present=True,
        )
        one.expect_refusal(Reason.TAKEN_OVER)
        again = [two.expect_packet(Kind.PUBLISH) for _ in range(3)]
        two.expect_silence(0.05)
        assert [(p.payload, p.packet_id) for p in again[:2]] == [
            (p.payload, p.packet_id) for p in held
        ]
        assert [p.dup for p in again] == [True, True, False]
        assert all(dict(p.properties)[Prop.SUBSCRIPTION_ID] == 77 for p in again)
        for packet in again:
            two.acknowledge(packet)
        for number in (3, 4):
            two.receive_publish(f"{name}/t", b"%d" % number, qos=1, dup=False)
        three = third.connect(name, clean=True, expiry=600, session_present=False)
        two.expect_refusal(Reason.TAKEN_OVER)
        publisher.publish(f"{name}/t", b"unwanted", qos=1)
        assert three.drain() == []
        first.connect(name, clean=False, expiry=600, session_present=True)


def test_qos_2_goes_on_wherever_it_was_left(around: Around) -> None:
    for name, (first, second, third) in around:
        topic = f"{name}/q"
        reader = third.connect(f"{name}r", expiry=600)
        reader.subscribe((topic, 2))
        sender = first.connect(name, expiry=600)
        sender.send(sender.build.publish(topic, b"once", qos=2, packet_id=9))
        sender.expect_ack(Kind.PUBREC, 9)
        sender = second.connect(name, clean=False, expiry=600, session_present=True)
        sender.send(sender.build.publish(topic, b"once", qos=2, packet_id=9, dup=True))
        sender.expect_ack(Kind.PUBREC, 9)
        sender.send(sender.build.pubrel(9))
        sender = third.connect(name, clean=False, expiry=600, session_present=True)
        sender.send(sender.build.pubrel(9))
        assert sender.take(Kind.PUBCOMP, 9).reason in (0, Reason.PACKET_ID_NOT_FOUND)
        found = reader.expect_publish(topic, b"once", qos=2)
        reader = first.connect(f"{name}r", clean=False, expiry=600, session_present=True)
        same = reader.expect_publish(topic, b"once", qos=2, dup=True)
        assert same.packet_id == found.packet_id
        reader.send(reader.build.pubrec(same.packet_id))
        reader.expect_ack(Kind.PUBREL, same.packet_id)
        reader = second.connect(f"{name}r", clean=False, expiry=600, session_present=True)
        reader.expect_ack(Kind.PUBREL, same.packet_id)
        reader.send(reader.build.pubcomp(same.packet_id))
        sender.publish(topic, b"next", qos=2)
        reader.receive_publish(topic, b"next", qos=2, dup=False)


def test_wills_are_said_when_they_are_due(around: Around) -> None:
    """At a cut and a takeover at once; not after DISCONNECT, nor if the client is back in time."""
    for name, (first, second, third) in around:
        reader = third.connect(f"{name}r")
        reader.subscribe((f"{name}/w", 2))
        will = Will(topic=f"{name}/w", payload=b"cut", qos=1)
        first.connect(f"{name}a", will=will).abort()
        reader.receive_publish(f"{name}/w", b"cut", qos=1)
        will = Will(topic=f"{name}/w", payload=b"taken", qos=2)
        first.connect(f"{name}b", will=will)
        second.connect(f"{name}b")
        reader.receive_publish(f"{name}/w", b"taken", qos=2)
        will = Will(topic=f"{name}/w", payload=b"unsaid", qos=1)
        first.connect(f"{name}c", will=will).disconnect()
        delayed = Will(topic=f"{name}/w", payload=b"late", qos=1, properties=[(Prop.WILL_DELAY, 1)])
        first.connect(f"{name}d", will=delayed, expiry=600).abort()
        second.connect(f"{name}d", clean=False, expiry=600, session_present=True)
        first.connect(f"{name}e", will=delayed, expiry=600).abort()
        reader.receive_publish(f"{name}/w", b"late", qos=1)
        assert reader.drain() == []


def test_a_session_ends_when_its_client_has_said(around: Around) -> None:
    for name, (first, second, third) in around:
        ended = first.connect(f"{name}a", expiry=600)
        ended.disconnect(0, [(Prop.SESSION_EXPIRY, 0)])
        second.connect(f"{name}a", clean=False, session_present=False)
        kept = first.connect(f"{name}b", expiry=0)
        kept.close()
        third.connect(f"{name}b", clean=False, session_present=False)
        stays = first.connect(f"{name}c", expiry=1)
        stays.disconnect(0, [(Prop.SESSION_EXPIRY, 600)])
        third.connect(f"{name}c", clean=False, expiry=1, session_present=True)


def test_a_message_has_the_rest_of_its_time(around: Around) -> None:
    for name, (first, second, third) in around:
        first.connect(f"{name}r", expiry=600).subscribe((f"{name}/e", 1))
        first.close_peers()
        properties = [(Prop.MESSAGE_EXPIRY, 100)]
        publisher = second.connect(f"{name}p")
        publisher.publish(f"{name}/e", b"x", qos=1, retain=True, properties=properties)
        reader = third.connect(f"{name}r", clean=False, expiry=600, session_present=True)
        late = first.connect(f"{name}s")
        late.subscribe((f"{name}/e", 1))
        for peer in (reader, late):
            found = peer.expect_publish(f"{name}/e", b"x", qos=1)
            assert 95 <= int(dict(found.properties)[Prop.MESSAGE_EXPIRY]) <= 100


def test_who_has_said_no_local_hears_nothing_of_its_own_from_elsewhere(around: Around) -> None:
    for name, (first, second, third) in around:
        peer = first.connect(name, expiry=600)
        peer.subscribe((f"{name}/n", 1 | NO_LOCAL))
        peer = second.connect(name, clean=False, expiry=600, session_present=True)
        peer.publish(f"{name}/n", b"own", qos=1)
        third.connect(f"{name}p").publish(f"{name}/n", b"other", qos=1)
        peer = third.connect(name, clean=False, expiry=600, session_present=True)
        peer.receive_publish(f"{name}/n", b"other", qos=1)
        assert peer.drain() == []


def test_a_share_is_handed_on(around: Around) -> None:
    """From a member that goes, and from one that moves: everything comes, and QoS 2 once."""
    for name, (first, second, third) in around:
        shared = f"$share/g/{name}/s"
        one = first.connect(f"{name}a", expiry=600)
        one.subscribe((shared, 2))
        publisher = third.connect(f"{name}p")
        two = second.connect(f"{name}b", expiry=600)
        two.subscribe((shared, 2))
        bodies = {b"%d" % number for number in range(12)}
        for body in sorted(bodies):
            publisher.publish(f"{name}/s", body, qos=1)
        one.close()
        two = third.connect(f"{name}b", clean=False, expiry=600, session_present=True)
        found: set[bytes] = set()
        while found != bodies:
            found.add(two.take_publish().payload)
        for number in range(12):
            publisher.publish(f"{name}/s", b"exactly %d" % number, qos=2)
        once: list[Packet] = []
        while len(once) < 12:
            packet = two.take_publish()
            if packet.payload.startswith(b"exactly"):
                once.append(packet)
        assert sorted(p.payload for p in once) == sorted(b"exactly %d" % n for n in range(12))
