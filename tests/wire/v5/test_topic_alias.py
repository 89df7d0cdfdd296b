"""MQTT 5.0, section 3.3.2.3.4: topic aliases, in both directions."""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Prop, Reason, Will
from tests.wire.peer import Peer


def maximum(peer: Peer) -> int:
    """Topic Alias Maximum of the broker."""
    value = peer.connack.get(Prop.TOPIC_ALIAS_MAX)
    return value if isinstance(value, int) else 0


def publish(topic: str, payload: bytes, alias: int, qos: int = 0, packet_id: int = 1) -> bytes:
    """A PUBLISH with a topic alias."""
    return V5.publish(
        topic,
        payload,
        qos=qos,
        packet_id=packet_id if qos else None,
        properties=[(Prop.TOPIC_ALIAS, alias)],
    )


# --- from the client --------------------------------------------------------------------


def test_broker_accepts_aliases(broker: Broker, name: str) -> None:
    """The cases below need some; ours has a default above zero."""
    assert maximum(broker.connect(name)) >= 10


@pytest.mark.spec("MQTT-3.3.2-10")
@pytest.mark.spec("MQTT-3.3.2-7")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_alias_stands_for_its_topic(broker: Broker, name: str, qos: int) -> None:
    subscriber = broker.connect(f"{name}-subscriber")
    subscriber.subscribe(f"{name}/#")
    peer = broker.connect(name)
    for packet_id, (topic, payload) in enumerate(
        [(f"{name}/t", b"1"), ("", b"2"), ("", b"3")], start=1
    ):
        peer.send(publish(topic, payload, 1, qos, packet_id))
        if qos:
            peer.take(Kind.PUBACK if qos == 1 else Kind.PUBREC, packet_id)
        if qos == 2:
            peer.send(V5.pubrel(packet_id))
            peer.take(Kind.PUBCOMP, packet_id)
        found = subscriber.receive_publish(f"{name}/t", payload, qos=qos)
        assert found.get(Prop.TOPIC_ALIAS) is None  # ours is not the publisher's alias


@pytest.mark.spec("MQTT-3.3.2-11")
def test_every_alias_up_to_the_maximum(broker: Broker, name: str) -> None:
    subscriber = broker.connect(f"{name}-subscriber")
    subscriber.subscribe((f"{name}/#", 0))
    peer = broker.connect(name)
    aliases = sorted({1, 2, maximum(peer) // 2, maximum(peer) - 1, maximum(peer)})
    for alias in aliases:
        peer.send(publish(f"{name}/{alias}", b"set", alias))
        subscriber.expect_publish(f"{name}/{alias}", b"set")
    for alias in reversed(aliases):
        peer.send(publish("", b"use", alias))
        subscriber.expect_publish(f"{name}/{alias}", b"use")


@pytest.mark.spec("MQTT-3.3.2-9")
@pytest.mark.parametrize("beyond", [1, 1000])
def test_alias_beyond_the_maximum(broker: Broker, name: str, beyond: int) -> None:
    peer = broker.connect(name)
    peer.send(publish(f"{name}/t", b"x", maximum(peer) + beyond))
    peer.expect_refusal(Reason.TOPIC_ALIAS_INVALID)


@pytest.mark.spec("MQTT-3.3.2-8")
@pytest.mark.parametrize("topic", ["", "t"])
def test_alias_zero(broker: Broker, name: str, topic: str) -> None:
    """2.4: 0x94 is the code for an alias that is not valid. Mosquitto says 0x81."""
    peer = broker.connect(name)
    peer.send(publish(topic, b"x", 0))
    peer.expect_refusal(Reason.TOPIC_ALIAS_INVALID, Reason.PROTOCOL_ERROR)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_unknown_alias(broker: Broker, name: str, qos: int) -> None:
    """3.3.2.3.4: no mapping and no topic is a protocol error, 0x82."""
    peer = broker.connect(name)
    peer.send(publish("", b"x", 1, qos))
    peer.expect_refusal(Reason.PROTOCOL_ERROR)


def test_alias_can_be_set_anew(broker: Broker, name: str) -> None:
    subscriber = broker.connect(f"{name}-subscriber")
    subscriber.subscribe((f"{name}/#", 0))
    peer = broker.connect(name)
    for topic in ("a", "b", "a", "c"):
        peer.send(publish(f"{name}/{topic}", b"set", 3), publish("", b"use", 3))
        subscriber.expect_publish(f"{name}/{topic}", b"set")
        subscriber.expect_publish(f"{name}/{topic}", b"use")


def test_two_aliases_for_one_topic(broker: Broker, name: str) -> None:
    subscriber = broker.connect(f"{name}-subscriber")
    subscriber.subscribe((f"{name}/#", 0))
    peer = broker.connect(name)
    peer.send(publish(f"{name}/t", b"1", 1), publish(f"{name}/t", b"2", 2))
    peer.send(publish("", b"3", 1), publish("", b"4", 2))
    for payload in (b"1", b"2", b"3", b"4"):
        subscriber.expect_publish(f"{name}/t", payload)


def test_aliases_of_clients_are_apart(broker: Broker, name: str) -> None:
    subscriber = broker.connect(f"{name}-subscriber")
    subscriber.subscribe((f"{name}/#", 0))
    one, two = broker.connect(f"{name}1"), broker.connect(f"{name}2")
    one.send(publish(f"{name}/one", b"set", 1))
    subscriber.expect_publish(f"{name}/one", b"set")
    two.send(publish(f"{name}/two", b"set", 1))
    subscriber.expect_publish(f"{name}/two", b"set")
    one.send(publish("", b"use", 1))
    subscriber.expect_publish(f"{name}/one", b"use")


@pytest.mark.spec("MQTT-3.3.2-7")
@pytest.mark.parametrize("ending", ["disconnect", "abort", "takeover"])
def test_alias_ends_with_its_connection(broker: Broker, name: str, ending: str) -> None:
    """A durable session keeps no aliases."""
    peer = broker.connect(name, expiry=60)
    peer.send(publish(f"{name}/t", b"x", 1, 1))
    peer.take(Kind.PUBACK, 1)
    if ending != "takeover":
        getattr(peer, ending)()
    again = broker.connect(name, clean=False, expiry=60, session_present=True)
    again.send(publish("", b"x", 1))
    again.expect_refusal(Reason.PROTOCOL_ERROR)


def test_alias_in_a_retained_message(broker: Broker, name: str) -> None:
    """The message is stored under its topic, without the alias."""
    peer = broker.connect(name)
    peer.send(publish(f"{name}/t", b"set", 1))
    peer.send(V5.publish("", b"kept", qos=1, retain=True, properties=[(Prop.TOPIC_ALIAS, 1)]))
    peer.take(Kind.PUBACK, 1)
    subscriber = broker.connect(f"{name}-subscriber")
    subscriber.subscribe((f"{name}/t", 1))
    found = subscriber.receive_publish(f"{name}/t", b"kept", retain=True)
    assert found.get(Prop.TOPIC_ALIAS) is None
    peer.publish(f"{name}/t", b"", retain=True)


def test_alias_in_a_message_for_an_offline_session(broker: Broker, name: str) -> None:
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe((f"{name}/t", 1))
    subscriber.disconnect()
    peer = broker.connect(name)
    peer.send(publish(f"{name}/t", b"1", 1, 1, 1), publish("", b"2", 1, 1, 2))
    peer.take(Kind.PUBACK, 2)
    subscriber = broker.connect(f"{name}-subscriber", clean=False, session_present=True)
    subscriber.receive_publish(f"{name}/t", b"1", qos=1)
    subscriber.receive_publish(f"{name}/t", b"2", qos=1)


def test_alias_of_a_dollar_topic_or_of_any_text(broker: Broker, name: str) -> None:
    subscriber = broker.connect(f"{name}-subscriber")
    subscriber.subscribe((f"$x/{name}//ü", 0))
    peer = broker.connect(name)
    peer.send(publish(f"$x/{name}//ü", b"1", 7), publish("", b"2", 7))
    subscriber.expect_publish(f"$x/{name}//ü", b"1")
    subscriber.expect_publish(f"$x/{name}//ü", b"2")


def test_wildcard_with_an_alias_is_still_refused(broker: Broker, name: str) -> None:
    peer = broker.connect(name)
    peer.send(publish(f"{name}/#", b"x", 1))
    peer.expect_refusal(Reason.MALFORMED, Reason.PROTOCOL_ERROR, Reason.TOPIC_INVALID)


# --- to the client ----------------------------------------------------------------------


@pytest.mark.spec("MQTT-3.1.2-27")
@pytest.mark.spec("MQTT-3.2.2-18")
@pytest.mark.parametrize("stated", [None, 0])
def test_no_alias_to_a_client_that_wants_none(
    broker: Broker, name: str, stated: int | None
) -> None:
    properties = [] if stated is None else [(Prop.TOPIC_ALIAS_MAX, stated)]
    subscriber = broker.connect(f"{name}-subscriber", properties=properties)
    subscriber.subscribe((f"{name}/t", 0))
    publisher = broker.connect(name)
    for _ in range(5):
        publisher.publish(f"{name}/t", b"x")
        found = subscriber.expect_publish(f"{name}/t", b"x")
        assert found.get(Prop.TOPIC_ALIAS) is None


@pytest.mark.spec("MQTT-3.1.2-26")
@pytest.mark.spec("MQTT-3.3.2-12")
@pytest.mark.parametrize("limit", [1, 2, 10, 65_535])
def test_aliases_from_the_broker_are_consistent(broker: Broker, name: str, limit: int) -> None:
    """Whether it uses them is its choice; if so, each resolves to the right topic."""
    subscriber = broker.connect(f"{name}-subscriber", properties=[(Prop.TOPIC_ALIAS_MAX, limit)])
    subscriber.subscribe((f"{name}/#", 0))
    publisher = broker.connect(name)
    known: dict[int, str] = {}
    for index in range(60):
        topic = f"{name}/{index * 7 % 5}"
        publisher.send(V5.publish(topic, b"%d" % index))
        found = subscriber.expect_packet(Kind.PUBLISH, payload=b"%d" % index)
        alias = found.get(Prop.TOPIC_ALIAS)
        if isinstance(alias, int):
            assert 1 <= alias <= limit
            if found.topic:
                known[alias] = found.topic
            assert known[alias] == topic
        else:
            assert found.topic == topic


@pytest.mark.spec("MQTT-3.1.2-26")
def test_aliases_from_the_broker_on_resume(broker: Broker, name: str) -> None:
    """A repeated message may not use an alias that only the last connection knew."""
    subscriber = broker.connect(
        f"{name}-subscriber", expiry=60, properties=[(Prop.TOPIC_ALIAS_MAX, 5)]
    )
    subscriber.subscribe((f"{name}/t", 1))
    publisher = broker.connect(name)
    for index in range(4):
        publisher.publish(f"{name}/t", b"%d" % index, qos=1)
        subscriber.expect_packet(Kind.PUBLISH, payload=b"%d" % index)
    subscriber.abort()
    again = broker.connect(
        f"{name}-subscriber",
        clean=False,
        expiry=60,
        properties=[(Prop.TOPIC_ALIAS_MAX, 5)],
        session_present=True,
    )
    known: dict[int, str] = {}
    for index in range(4):
        found = again.expect_packet(Kind.PUBLISH, payload=b"%d" % index, dup=True)
        alias = found.get(Prop.TOPIC_ALIAS)
        if isinstance(alias, int) and found.topic:
            known[alias] = found.topic
        assert found.topic == f"{name}/t" or known[alias] == f"{name}/t"  # type: ignore[index]


def test_alias_maximum_of_the_client_is_not_that_of_the_server(broker: Broker, name: str) -> None:
    """Each direction has its own maximum and its own mappings."""
    peer = broker.connect(name, properties=[(Prop.TOPIC_ALIAS_MAX, 1)])
    peer.subscribe((f"{name}/#", 0))
    peer.send(publish(f"{name}/a", b"1", 5), publish("", b"2", 5))
    for payload in (b"1", b"2"):
        found = peer.expect_packet(Kind.PUBLISH, payload=payload)
        assert found.get(Prop.TOPIC_ALIAS) in (None, 1)


def test_will_message_has_no_alias(broker: Broker, name: str) -> None:
    """3.1.3.2 knows no topic alias; a will to a client with aliases is still readable."""
    watcher = broker.connect(f"{name}-watcher", properties=[(Prop.TOPIC_ALIAS_MAX, 3)])
    watcher.subscribe((f"{name}/w", 0))
    broker.connect(name, will=Will(topic=f"{name}/w", payload=b"gone")).close()
    found = watcher.expect_packet(Kind.PUBLISH, payload=b"gone")
    assert found.topic == f"{name}/w"
