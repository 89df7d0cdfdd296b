"""MQTT 5.0: reason strings, Request Problem Information, request and response (3.1.2.11, 4.10)."""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Prop, Reason, Value, packet, text

REFUSALS = {
    "malformed": (packet(0x36, text("t") + b"\0\1\0"), Reason.MALFORMED),
    "protocol-error": (V5.subscribe(), Reason.PROTOCOL_ERROR),
    "topic-alias": (
        V5.publish("t", properties=[(Prop.TOPIC_ALIAS, 0)]),
        Reason.TOPIC_ALIAS_INVALID,
    ),
}


@pytest.mark.spec("MQTT-3.14.2-3")
@pytest.mark.parametrize(("raw", "code"), REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("asked", [None, 0, 1])
def test_reason_string_of_a_disconnect(
    broker: Broker, name: str, asked: int | None, raw: bytes, code: int
) -> None:
    """3.1.2.11.7: a DISCONNECT may have one even if problem information is not wanted."""
    properties = [] if asked is None else [(Prop.REQUEST_PROBLEM_INFO, asked)]
    peer = broker.connect(name, properties=properties)
    peer.send(raw)
    found = peer.expect_refusal(code)
    assert found is None or isinstance(found.get(Prop.REASON_STRING), str | None)


@pytest.mark.spec("MQTT-3.1.2-29")
def test_no_reason_string_elsewhere_if_not_wanted(broker: Broker, name: str) -> None:
    """Only PUBLISH, CONNACK and DISCONNECT may bear reason strings and user properties then."""
    peer = broker.connect(name, properties=[(Prop.REQUEST_PROBLEM_INFO, 0)])
    peer.send(V5.pubrel(99))
    assert peer.expect_packet(Kind.PUBCOMP, packet_id=99).properties == []
    peer.send(V5.pubrec(99))
    assert peer.expect_packet(Kind.PUBREL, packet_id=99).properties == []
    peer.send(V5.unsubscribe(f"{name}/none", packet_id=5))
    assert peer.expect_packet(Kind.UNSUBACK, packet_id=5).properties == []
    peer.send(V5.subscribe((f"{name}/t", 1), packet_id=6))
    assert peer.expect_packet(Kind.SUBACK, packet_id=6).properties == []
    peer.send(V5.publish(f"{name}/t", b"x", qos=1, packet_id=7))
    assert peer.take(Kind.PUBACK, 7).properties == []


@pytest.mark.spec("MQTT-3.1.2-29")
@pytest.mark.spec("MQTT-3.3.2-17")
@pytest.mark.parametrize("asked", [0, 1])
def test_messages_keep_their_user_properties(broker: Broker, name: str, asked: int) -> None:
    """[MQTT-3.1.2-29] excludes PUBLISH: [MQTT-3.3.2-17] holds whatever was asked."""
    peer = broker.connect(name, properties=[(Prop.REQUEST_PROBLEM_INFO, asked)])
    peer.subscribe((f"{name}/t", 1))
    peer.publish(f"{name}/t", b"x", qos=1, properties=[(Prop.USER, ("k", "v"))])
    found = peer.receive_publish(f"{name}/t", b"x")
    assert found.all(Prop.USER) == [("k", "v")]


@pytest.mark.spec("MQTT-3.3.2-15")
@pytest.mark.spec("MQTT-3.3.2-16")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_request_and_response(broker: Broker, name: str, qos: int) -> None:
    """4.10: the whole round, with two requesters that are told apart by correlation data."""
    responder = broker.connect(f"{name}-responder")
    responder.subscribe(f"{name}/ask")
    requesters = []
    for number in (1, 2):
        requester = broker.connect(f"{name}-{number}")
        requester.subscribe(f"{name}/answer/{number}")
        requesters.append(requester)
        request: list[tuple[int, Value]] = [
            (Prop.RESPONSE_TOPIC, f"{name}/answer/{number}"),
            (Prop.CORRELATION_DATA, bytes([number, 0, 255])),
        ]
        requester.publish(f"{name}/ask", b"?", qos=qos, properties=request)
    for _ in requesters:
        found = responder.receive_publish(f"{name}/ask", b"?", qos=qos)
        topic, data = found.get(Prop.RESPONSE_TOPIC), found.get(Prop.CORRELATION_DATA)
        assert isinstance(topic, str)
        assert isinstance(data, bytes)
        responder.publish(topic, b"!", qos=qos, properties=[(Prop.CORRELATION_DATA, data)])
    for number, requester in enumerate(requesters, start=1):
        found = requester.receive_publish(f"{name}/answer/{number}", b"!", qos=qos)
        assert found.get(Prop.CORRELATION_DATA) == bytes([number, 0, 255])
        requester.expect_nothing()


@pytest.mark.spec("MQTT-3.14.4-1")
@pytest.mark.spec("MQTT-3.14.4-2")
@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(V5.disconnect(), id="short"),
        pytest.param(V5.disconnect(0), id="reason"),
        pytest.param(V5.disconnect(0, b"\x00"), id="empty-properties"),
        pytest.param(V5.disconnect(0, [(Prop.REASON_STRING, "bye")]), id="reason-string"),
        pytest.param(V5.disconnect(0, [(Prop.USER, ("k", "v"))] * 2), id="user"),
        pytest.param(V5.disconnect(0, [(Prop.SESSION_EXPIRY, 0)]), id="expiry-0"),
        pytest.param(V5.disconnect(0x04), id="with-will"),
        pytest.param(V5.disconnect(0x80), id="unspecified"),
    ],
)
def test_nothing_after_a_disconnect(broker: Broker, name: str, raw: bytes) -> None:
    """The broker closes, answers nothing and processes nothing more."""
    watcher = broker.connect(f"{name}-watcher")
    watcher.subscribe((f"{name}/t", 1))
    peer = broker.connect(name)
    peer.send(raw, V5.publish(f"{name}/t", b"late", qos=1), V5.pingreq())
    peer.expect_closed()
    watcher.publish(f"{name}/t", b"control", qos=1)
    watcher.receive_publish(f"{name}/t", b"control", qos=1)


@pytest.mark.parametrize("kind", [Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP])
@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_every_length_of_an_acknowledgement(
    broker: Broker, name: str, kind: Kind, length: int
) -> None:
    """3.4.2.2.1: the reason code and the properties may be left out; property length 0 too."""
    body = (b"\x00\x09\x00\x00" + b"\x00")[:length]
    if length == 5:
        body = b"\x00\x09\x00\x05" + b"\x26\x00\x00\x00\x00"
    peer = broker.connect(name)
    peer.send(packet(kind << 4 | (2 if kind is Kind.PUBREL else 0), body))
    if kind is Kind.PUBREL:
        peer.expect_packet(Kind.PUBCOMP, packet_id=9)
    elif kind is Kind.PUBREC:
        peer.expect_packet(Kind.PUBREL, packet_id=9)
    peer.expect_nothing()
