"""Perdure's own: messages by what is in them, with the user property ``filter`` of a SUBSCRIBE.

Mosquitto does not know the property and sends everything.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.binary_payloads import cbor_of, sparkplug_of
from tests.support.content_oracle import document_of, fulfils
from tests.wire.harness import Broker, Options
from tests.wire.packets import V5, Kind, Prop, Reason, Value
from tests.wire.peer import SUBJECT, Peer
from tests.wire.reader import Packet

pytestmark = pytest.mark.skipif(SUBJECT != "perdure", reason="an extension of Perdure")
BROKER_OPTIONS = Options(
    settings={
        "session.feed_chunk": "7",
        "limits.content_filters_max": "40",
        "limits.content_filter_bytes_max": "300",
    }
)

HOT: dict[str, Any] = {"t": {"$gt": 30}}
COLD: dict[str, Any] = {"t": {"$lt": 10}}


def wanting(wanted: object, *more: tuple[int, Value]) -> list[tuple[int, Value]]:
    """Properties of a SUBSCRIBE with a filter."""
    text = wanted if isinstance(wanted, str) else json.dumps(wanted)
    return [(Prop.USER, ("filter", text)), *more]


def subscribe(peer: Peer, topic_filter: str, wanted: object, qos: int = 1) -> None:
    """Subscribes with a filter."""
    peer.subscribe((topic_filter, qos), properties=wanting(wanted))


def degrees(value: float) -> bytes:
    """A payload."""
    return json.dumps({"t": value}).encode()


def payloads(peer: Peer) -> list[bytes]:
    """What came before a fence, acknowledged."""
    return [packet.payload for packet in taken(peer)]


def taken(peer: Peer) -> list[Packet]:
    """The messages that came before a fence, acknowledged."""
    found = [packet for packet in peer.drain() if packet.kind is Kind.PUBLISH]
    for packet in found:
        peer.acknowledge(packet)
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_only_what_fulfils_it_comes(broker: Broker, name: str, qos: int) -> None:
    peer, publisher = broker.connect(name), broker.connect(f"{name}-publisher")
    subscribe(peer, name, HOT, qos)
    for payload in (degrees(31), degrees(30), b"", b"not JSON", b'{"u": 31}', degrees(99.5)):
        publisher.publish(name, payload, qos=qos)
    for payload in (degrees(31), degrees(99.5)):
        peer.receive_publish(name, payload, qos=qos)
    peer.expect_nothing()


def test_user_properties_count(broker: Broker, name: str) -> None:
    peer, publisher = broker.connect(name), broker.connect(f"{name}-publisher")
    subscribe(peer, name, {"$property.site": "north"})
    publisher.publish(name, b"1", qos=1, properties=[(Prop.USER, ("site", "south"))])
    publisher.publish(name, b"2", qos=1, properties=[(Prop.USER, ("site", "north"))])
    assert payloads(peer) == [b"2"]


@pytest.mark.alone
def test_nobody_who_wants_it_is_nobody(broker: Broker, name: str) -> None:
    """0x10: No matching subscribers, whatever the topic filter."""
    peer, publisher = broker.connect(name), broker.connect(f"{name}-publisher")
    subscribe(peer, name, HOT)
    answer = publisher.publish(name, degrees(1), qos=1)
    assert answer is not None
    assert answer.reason == Reason.NO_MATCHING_SUBSCRIBERS
    answer = publisher.publish(name, degrees(31), qos=1)
    assert answer is not None
    assert answer.reason == 0


def test_overlapping_subscriptions_are_one_copy(broker: Broker, name: str) -> None:
    """[MQTT-3.3.4-2] [MQTT-3.3.4-3]: of those that want it."""
    peer, publisher = broker.connect(name), broker.connect(f"{name}-publisher")
    for topic_filter, wanted, qos, identifier in (
        (f"{name}/+", HOT, 1, 1),
        (f"{name}/#", COLD, 2, 2),
        (f"{name}/t", HOT, 0, 3),
    ):
        peer.subscribe(
            (topic_filter, qos),
            properties=wanting(wanted, (Prop.SUBSCRIPTION_ID, identifier)),
        )
    peer.subscribe((f"+/{name}", 1))
    for value, identifiers, qos in ((31, [1, 3], 1), (1, [2], 2)):
        publisher.publish(f"{name}/t", degrees(value), qos=2)
        found = peer.receive_publish(f"{name}/t", degrees(value), qos=qos)
        told = [each for key, each in found.properties if key == Prop.SUBSCRIPTION_ID]
        assert sorted(told, key=str) == identifiers
    publisher.publish(f"{name}/t", degrees(20), qos=2)
    peer.expect_nothing()


def test_retained_and_replayed_messages(broker: Broker, name: str) -> None:
    publisher = broker.connect(f"{name}-publisher")
    for index in range(20):
        publisher.publish(f"{name}/{index}", degrees(index * 3), qos=1, retain=True)
    peer = broker.connect(name)
    subscribe(peer, f"{name}/+", HOT)
    assert sorted(payloads(peer)) == sorted(degrees(n * 3) for n in range(11, 20))
    peer.unsubscribe(f"{name}/+")
    again = wanting(COLD, (Prop.USER, ("replay-from", "0")))
    peer.subscribe((f"{name}/+", 1), properties=again)
    assert payloads(peer) == [degrees(n * 3) for n in range(4)]
    publisher.publish(f"{name}/0", degrees(2), qos=1)
    publisher.publish(f"{name}/0", degrees(50), qos=1)
    assert payloads(peer) == [degrees(2)]


def test_another_filter_counts_from_its_suback(broker: Broker, name: str) -> None:
    """What was owed under the first one comes with its packet identifier all the same."""
    peer = broker.connect(name, expiry=600, properties=[(Prop.RECEIVE_MAX, 1)])
    publisher = broker.connect(f"{name}-publisher")
    subscribe(peer, name, HOT)
    for value in (31, 5, 32, 33):
        publisher.publish(name, degrees(value), qos=1)
    held = peer.expect_publish(name, degrees(31), qos=1)
    subscribe(peer, name, COLD)
    for value in (34, 6):
        publisher.publish(name, degrees(value), qos=1)
    broker.restart()
    peer = broker.connect(name, clean=False, expiry=600, session_present=True)
    peer.receive_publish(name, degrees(31), qos=1, dup=True, packet_id=held.packet_id)
    assert payloads(peer) == [degrees(32), degrees(33), degrees(6)]
    publisher = broker.connect(f"{name}-publisher")
    peer.subscribe((name, 1))
    publisher.publish(name, degrees(20), qos=1)
    assert payloads(peer) == [degrees(20)]


@pytest.mark.virtual
def test_groups_with_other_filters_are_others(broker: Broker, name: str) -> None:
    """Each has all that fulfils its own, given out among its members."""
    publisher = broker.connect(f"{name}-publisher")
    peers = [broker.connect(f"{name}-{index}", expiry=600) for index in range(4)]
    for peer, wanted in zip(peers, (HOT, HOT, COLD, None), strict=True):
        if wanted is None:
            peer.subscribe((f"$share/g/{name}", 1))
        else:
            subscribe(peer, f"$share/g/{name}", wanted)
    for value in (31, 5, 20, 32, 6, 33, 34):
        publisher.publish(name, degrees(value), qos=1)
    shares = [payloads(peer) for peer in peers]
    assert sorted(shares[0] + shares[1]) == [degrees(n) for n in (31, 32, 33, 34)]
    assert all(shares[:2])
    assert shares[2] == [degrees(5), degrees(6)]
    assert shares[3] == [degrees(n) for n in (31, 5, 20, 32, 6, 33, 34)]
    peers[2].disconnect()
    for value in (7, 40, 8):
        publisher.publish(name, degrees(value), qos=1)
    broker.restart()
    peer = broker.connect(f"{name}-2", clean=False, expiry=600, session_present=True)
    assert payloads(peer) == [degrees(7), degrees(8)]
    subscribe(peer, f"$share/g/{name}", HOT)  # another group from now on
    publisher = broker.connect(f"{name}-publisher")
    for value in (9, 50):
        publisher.publish(name, degrees(value), qos=1)
    assert payloads(peer) == [degrees(40), degrees(50)]
    peer.unsubscribe(f"$share/g/{name}")


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [
        ("{", Reason.FILTER_INVALID, "a content filter is a JSON object"),
        ("5", Reason.FILTER_INVALID, "expected a JSON object"),
        ('{"t":{"$near":1}}', Reason.FILTER_INVALID, "t.$near: no such operator"),
        (json.dumps({"t": "x" * 300}), Reason.QUOTA_EXCEEDED, "at most 300 bytes"),
        ('{"$not":' * 17 + "{}" + "}" * 17, Reason.FILTER_INVALID, "nested more than 16"),
    ],
)
def test_what_is_no_filter(broker: Broker, name: str, text: str, code: int, why: str) -> None:
    """Refused for each topic filter of the packet, and the client is told why."""
    peer = broker.connect(name)
    suback = peer.subscribe(
        (name, 1), (f"{name}/+", 1), properties=wanting(text), codes=(code, code)
    )
    told = dict(suback.properties)[Prop.REASON_STRING]
    assert why in str(told)
    broker.connect(f"{name}-publisher").publish(name, degrees(31), qos=1)
    peer.expect_nothing()


def test_two_filters_in_one_packet(broker: Broker, name: str) -> None:
    peer = broker.connect(name)
    twice = wanting(HOT) + wanting(COLD)
    peer.subscribe((name, 1), properties=twice, codes=(Reason.FILTER_INVALID,))


def test_more_distinct_filters_than_may_be(broker: Broker, name: str) -> None:
    """Those that are in use are not refused, and room comes back."""
    peer = broker.connect(name)
    for number in range(40):
        subscribe(peer, f"{name}/{number}", {"n": number})
    peer.subscribe((name, 1), properties=wanting({"n": -1}), codes=(Reason.QUOTA_EXCEEDED,))
    subscribe(peer, name, {"n": 7})
    peer.unsubscribe(f"{name}/8")
    subscribe(peer, name, {"n": -1})
    peer.disconnect()
    subscribe(broker.connect(name), name, {"n": -2})


CHOICES: list[dict[str, Any]] = [
    HOT,
    COLD,
    {"t": {"$in": [1, 5, 9, 30, 31]}},
    {"$or": [{"t": {"$exists": False}}, {"$property.p": {"$lte": 1}}]},
    {"$not": {"t": {"$gte": 20}}},
    {"$payload": {"$gte": "b"}},
    {},
]


@pytest.mark.virtual
@pytest.mark.parametrize("seed", range(12))
def test_what_a_session_gets_is_a_filter_over_the_log(broker: Broker, name: str, seed: int) -> None:
    """However often it goes offline, changes its filter, or the broker dies: what it gets is what
    a plain look at all that was published says, in that order, and each once."""
    chance = random.Random(seed)
    wanted = chance.choice(CHOICES)
    subscriber: Peer | None = broker.connect(name, expiry=600)
    assert subscriber is not None
    subscribe(subscriber, f"{name}/#", wanted, 2)
    publisher = broker.connect(f"{name}-publisher")
    owed: list[bytes] = []
    got: list[Packet] = []
    for number in range(60):
        step = chance.random()
        if step < 0.7:
            payload = chance.choice(
                [degrees(chance.randrange(40)), b"%d" % number, b'"c%d"' % number, b"<%d>" % number]
            )
            if payload.startswith(b"{"):
                payload = payload[:-1] + b',"n":%d}' % number
            pairs = [("p", str(chance.randrange(4)))] * chance.randrange(2)
            publisher.publish(
                f"{name}/{chance.randrange(3)}",
                payload,
                qos=chance.choice([1, 2]),
                properties=[(Prop.USER, pair) for pair in pairs],
            )
            if fulfils(wanted, document_of(payload), pairs):
                owed.append(payload)
        elif step < 0.8 and subscriber is not None:
            got += taken(subscriber)
        elif step < 0.85 and subscriber is not None:
            got += taken(subscriber)
            subscriber.disconnect()
            subscriber = None
        elif step < 0.9 and subscriber is not None:
            wanted = chance.choice(CHOICES)
            subscriber.send(
                V5.subscribe((f"{name}/#", 0x22), packet_id=9, properties=wanting(wanted))
            )
            subscriber.take(Kind.SUBACK, 9)
        elif step < 0.95 or subscriber is None:
            if step < 0.93:
                if subscriber is not None:
                    got += taken(subscriber)
                broker.kill9()
                publisher = broker.connect(f"{name}-publisher")
            subscriber = broker.connect(name, clean=False, expiry=600, session_present=True)
    if subscriber is None:
        subscriber = broker.connect(name, clean=False, expiry=600, session_present=True)
    got += taken(subscriber)
    # A PUBACK that a kill has overtaken is asked for again.
    assert all(packet.dup and packet.qos == 1 for packet in _repeats(got))
    assert list(dict.fromkeys(packet.payload for packet in got)) == owed


def _repeats(packets: list[Packet]) -> list[Packet]:
    seen: set[bytes] = set()
    return [p for p in packets if p.payload in seen or seen.add(p.payload) is not None]


@pytest.mark.parametrize(
    ("topic", "content_type", "payload"),
    [
        ("spBv1.0/{}/DDATA/node/press", "", lambda t: sparkplug_of({"t": t}, 17)),
        ("{}/cbor", "application/cbor", lambda t: cbor_of({"t": t})),
    ],
    ids=["sparkplug", "cbor"],
)
def test_binary_payloads_live_offline_replayed_and_shared(
    broker: Broker, name: str, topic: str, content_type: str, payload: Callable[[float], bytes]
) -> None:
    topic = topic.format(name)
    publisher = broker.connect(f"{name}-publisher")
    said = [(Prop.CONTENT_TYPE, content_type)] if content_type else []

    def publish(*values: float) -> None:
        for value in values:
            publisher.publish(topic, payload(value), qos=1, properties=said)

    peer = broker.connect(name, expiry=600)
    subscribe(peer, topic, HOT)
    shared = broker.connect(f"{name}-shared")
    subscribe(shared, f"$share/g/{topic}", HOT)
    publish(31.5, 3.0, 44.0)
    hot = [payload(31.5), payload(44.0)]
    assert payloads(peer) == hot
    assert payloads(shared) == hot
    peer.disconnect()
    publish(5.0, 77.0)
    peer = broker.connect(name, clean=False, expiry=600, session_present=True)
    assert payloads(peer) == [payload(77.0)]
    again = broker.connect(f"{name}-again")
    subscribe(again, f"$replay/0/{topic}", HOT)
    assert payloads(again) == [*hot, payload(77.0)]
