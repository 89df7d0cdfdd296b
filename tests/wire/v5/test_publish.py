"""MQTT 5.0, section 3.3: what a PUBLISH carries from one client to another.

Mosquitto refuses Unicode non-characters, as 1.5.4 allows; we take and keep them.
"""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Prop, Reason, Value
from tests.wire.v5.samples import SAMPLE


@pytest.mark.parametrize("to", [4, 5])
@pytest.mark.parametrize("origin", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_between_the_versions(broker: Broker, name: str, origin: int, to: int, qos: int) -> None:
    subscriber = broker.connect(f"{name}-subscriber", version=to)
    subscriber.subscribe(f"{name}/t")
    publisher = broker.connect(name, version=origin)
    publisher.publish(f"{name}/t", b"x", qos=qos)
    subscriber.receive_publish(f"{name}/t", b"x", qos=qos)
    subscriber.expect_nothing()


FORWARDED: dict[str, list[tuple[int, Value]]] = {
    "payload-format-0": [(Prop.PAYLOAD_FORMAT, 0)],
    "payload-format-1": [(Prop.PAYLOAD_FORMAT, 1)],
    "content-type": [(Prop.CONTENT_TYPE, "application/json; charset=utf-8")],
    "content-type-empty": [(Prop.CONTENT_TYPE, "")],
    "response-topic": [(Prop.RESPONSE_TOPIC, "a/b//c/ü")],
    "correlation-data": [(Prop.CORRELATION_DATA, bytes(range(256)))],
    "correlation-data-empty": [(Prop.CORRELATION_DATA, b"")],
    "correlation-data-longest": [(Prop.CORRELATION_DATA, b"\xff" * 65_535)],
    "user": [(Prop.USER, ("k", "v"))],
    "user-empty": [(Prop.USER, ("", ""))],
    "user-unicode": [(Prop.USER, ("ключ", "値😀\ufeff"))],
    "user-non-characters": [(Prop.USER, ("\ufdd0", "\uffff"))],
    "user-repeated": [(Prop.USER, ("k", "v")), (Prop.USER, ("k", "v"))],
    "user-order": [(Prop.USER, (key, str(i))) for i, key in enumerate("zaybxc")],
    "user-longest": [(Prop.USER, ("k" * 65_535, "v" * 65_535))],
    "user-many": [(Prop.USER, (f"{i % 7}", f"{i}")) for i in range(500)],
    "all": [
        (identifier, SAMPLE[identifier])
        for identifier in (
            Prop.PAYLOAD_FORMAT,
            Prop.CONTENT_TYPE,
            Prop.RESPONSE_TOPIC,
            Prop.CORRELATION_DATA,
            Prop.USER,
        )
    ],
}


@pytest.mark.spec("MQTT-3.3.2-4")
@pytest.mark.spec("MQTT-3.3.2-15")
@pytest.mark.spec("MQTT-3.3.2-16")
@pytest.mark.spec("MQTT-3.3.2-17")
@pytest.mark.spec("MQTT-3.3.2-18")
@pytest.mark.spec("MQTT-3.3.2-20")
@pytest.mark.spec("MQTT-3.1.3-10")
@pytest.mark.parametrize("properties", FORWARDED.values(), ids=FORWARDED)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_property_is_forwarded_unaltered(
    broker: Broker, name: str, qos: int, properties: list[tuple[int, Value]]
) -> None:
    subscriber = broker.connect(f"{name}-subscriber")
    subscriber.subscribe(f"{name}/t")
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"{}", qos=qos, properties=properties)
    found = subscriber.receive_publish(f"{name}/t", b"{}", qos=qos)
    by_identifier = sorted(found.properties, key=lambda item: item[0])
    assert by_identifier == sorted(properties, key=lambda item: item[0])


@pytest.mark.parametrize("properties", FORWARDED.values(), ids=FORWARDED)
def test_property_is_stored_with_a_retained_message(
    broker: Broker, name: str, properties: list[tuple[int, Value]]
) -> None:
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"{}", qos=1, retain=True, properties=properties)
    subscriber = broker.connect(f"{name}-subscriber")
    subscriber.subscribe(f"{name}/t")
    found = subscriber.receive_publish(f"{name}/t", b"{}", qos=1, retain=True)
    by_identifier = sorted(found.properties, key=lambda item: item[0])
    assert by_identifier == sorted(properties, key=lambda item: item[0])
    publisher.publish(f"{name}/t", b"", retain=True)


@pytest.mark.parametrize("properties", FORWARDED.values(), ids=FORWARDED)
def test_property_is_stored_for_an_offline_session(
    broker: Broker, name: str, properties: list[tuple[int, Value]]
) -> None:
    subscriber = broker.connect(f"{name}-subscriber", expiry=60)
    subscriber.subscribe(f"{name}/t")
    subscriber.disconnect()
    broker.connect(name).publish(f"{name}/t", b"{}", qos=1, properties=properties)
    subscriber = broker.connect(f"{name}-subscriber", clean=False, session_present=True)
    found = subscriber.receive_publish(f"{name}/t", b"{}", qos=1)
    by_identifier = sorted(found.properties, key=lambda item: item[0])
    assert by_identifier == sorted(properties, key=lambda item: item[0])


def test_properties_do_not_reach_311(broker: Broker, name: str) -> None:
    """The strict reader refuses a property field in a 3.1.1 PUBLISH as part of the payload."""
    subscriber = broker.connect(f"{name}-subscriber", version=4)
    subscriber.subscribe(f"{name}/t")
    properties: list[tuple[int, Value]] = [(Prop.USER, ("k", "v")), (Prop.CONTENT_TYPE, "x")]
    broker.connect(name).publish(f"{name}/t", b"payload", qos=1, properties=properties)
    subscriber.receive_publish(f"{name}/t", b"payload", qos=1)


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\xff\xfe", "ü\0".encode(), b"\xed\xa0\x80"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_payload_is_opaque(broker: Broker, name: str, payload: bytes, qos: int) -> None:
    """3.3.3: zero length is valid, the content is nobody's business."""
    peer = broker.connect(name)
    peer.subscribe(f"{name}/t")
    peer.publish(f"{name}/t", payload, qos=qos)
    peer.receive_publish(f"{name}/t", payload, qos=qos)


def test_payload_format_is_not_checked_or_is_refused_by_its_code(broker: Broker, name: str) -> None:
    """3.3.2.3.2: a receiver MAY validate; the only codes for it are PUBACK or DISCONNECT 0x99."""
    peer = broker.connect(name)
    raw = V5.publish(f"{name}/t", b"\xff", qos=1, properties=[(Prop.PAYLOAD_FORMAT, 1)])
    peer.send(raw)
    found = peer.receive()
    assert found is not None
    assert found.kind in (Kind.PUBACK, Kind.DISCONNECT)
    assert found.reason in (0, Reason.NO_MATCHING_SUBSCRIBERS, Reason.PAYLOAD_FORMAT_INVALID)


SIZES = [0, 1, 100, 116, 117, 118, 16_250, 16_375, 16_376, 65_535, 65_536, 300_000, 2_097_152]


def test_packet_id_may_be_used_again_after_its_exchange(broker: Broker, name: str) -> None:
    """2.2.1: a PUBACK or PUBCOMP frees it at once."""
    peer = broker.connect(name)
    for qos in (1, 2, 1, 2, 2, 1):
        peer.send(V5.publish(f"{name}/t", b"x", qos=qos, packet_id=1))
        if qos == 1:
            peer.expect_packet(Kind.PUBACK, packet_id=1)
        else:
            peer.expect_packet(Kind.PUBREC, packet_id=1)
            peer.send(V5.pubrel(1))
            peer.expect_packet(Kind.PUBCOMP, packet_id=1)


@pytest.mark.spec("MQTT-4.6.0-2")
@pytest.mark.spec("MQTT-4.6.0-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledgements_come_in_order(broker: Broker, name: str, qos: int) -> None:
    """PUBACKs, PUBRECs and PUBCOMPs in the order of what they answer."""
    peer = broker.connect(name)
    ids = [5, 3, 9, 1, 7]
    peer.send(*(V5.publish(f"{name}/t", b"x", qos=qos, packet_id=i) for i in ids))
    kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
    for packet_id in ids:
        peer.expect_packet(kind, packet_id=packet_id)
    if qos == 2:
        peer.send(*(V5.pubrel(i) for i in reversed(ids)))
        for packet_id in reversed(ids):
            peer.expect_packet(Kind.PUBCOMP, packet_id=packet_id, reason=0)


def test_three_subscribers_of_different_kinds(broker: Broker, name: str) -> None:
    """One message, three deliveries, each with its own QoS, version and retain flag."""
    old = broker.connect(f"{name}-old", version=4)
    old.subscribe((f"{name}/t", 0))
    new = broker.connect(f"{name}-new")
    new.subscribe((f"{name}/+", 2 | 0x08), properties=[(Prop.SUBSCRIPTION_ID, 200)])
    small = broker.connect(f"{name}-small", properties=[(Prop.RECEIVE_MAX, 1)])
    small.subscribe((f"{name}/#", 1))
    publisher = broker.connect(name)
    publisher.publish(f"{name}/t", b"x", qos=2, retain=True, properties=[(Prop.USER, ("k", "v"))])
    old.receive_publish(f"{name}/t", b"x", qos=0, retain=False)
    found = new.receive_publish(f"{name}/t", b"x", qos=2, retain=True)
    assert found.properties in (
        [(Prop.USER, ("k", "v")), (Prop.SUBSCRIPTION_ID, 200)],
        [(Prop.SUBSCRIPTION_ID, 200), (Prop.USER, ("k", "v"))],
    )
    found = small.receive_publish(f"{name}/t", b"x", qos=1, retain=False)
    assert found.properties == [(Prop.USER, ("k", "v"))]
    publisher.publish(f"{name}/t", b"", retain=True)
