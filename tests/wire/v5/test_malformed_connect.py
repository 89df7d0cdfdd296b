"""MQTT 5.0: each defect of a CONNECT packet is answered with its reason code, then the close.

Section 4.13.1: a malformed packet or protocol error before the CONNACK is answered with a
CONNACK that bears the reason code.
"""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Prop, Reason, Value, Will, packet, prop, text, u16, varint
from tests.wire.peer import REASONS_REQUIRED
from tests.wire.v5.samples import BAD_TEXT, SAMPLE, field

MALFORMED = Reason.MALFORMED
PROTOCOL_ERROR = Reason.PROTOCOL_ERROR

OF_CONNECT = {
    Prop.SESSION_EXPIRY,
    Prop.AUTH_METHOD,
    Prop.AUTH_DATA,
    Prop.REQUEST_PROBLEM_INFO,
    Prop.REQUEST_RESPONSE_INFO,
    Prop.RECEIVE_MAX,
    Prop.TOPIC_ALIAS_MAX,
    Prop.USER,
    Prop.MAX_PACKET_SIZE,
}
OF_WILL = {
    Prop.PAYLOAD_FORMAT,
    Prop.MESSAGE_EXPIRY,
    Prop.CONTENT_TYPE,
    Prop.RESPONSE_TOPIC,
    Prop.CORRELATION_DATA,
    Prop.WILL_DELAY,
    Prop.USER,
}
HEAD = text("MQTT") + b"\x05"


def with_will(properties: list[tuple[int, Value]] | bytes) -> bytes:
    """A CONNECT whose only particular is its will's properties."""
    return V5.connect("c", will=Will(topic="will", payload=b"w", properties=properties))


@pytest.mark.parametrize("foreign", [p for p in Prop if p not in OF_CONNECT], ids=lambda p: p.name)
def test_property_that_connect_does_not_have(broker: Broker, foreign: Prop) -> None:
    """2.2.2.2: an identifier that is not valid for its packet type makes a malformed packet."""
    peer = broker.peer()
    peer.send(V5.connect("c", properties=[(foreign, SAMPLE[foreign])]))
    peer.expect_refused_connect(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.parametrize("foreign", [p for p in Prop if p not in OF_WILL], ids=lambda p: p.name)
def test_property_that_a_will_does_not_have(broker: Broker, foreign: Prop) -> None:
    peer = broker.peer()
    peer.send(with_will([(foreign, SAMPLE[foreign])]))
    peer.expect_refused_connect(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.parametrize(
    "twice", sorted(OF_CONNECT - {Prop.USER, Prop.AUTH_DATA}), ids=lambda p: p.name
)
def test_property_twice(broker: Broker, twice: Prop) -> None:
    """3.1.2.11: each of these is a protocol error if included more than once."""
    pair = (twice, SAMPLE[twice])
    peer = broker.peer()
    peer.send(V5.connect("c", properties=[pair, pair]))
    peer.expect_refused_connect(PROTOCOL_ERROR)


@pytest.mark.parametrize("twice", sorted(OF_WILL - {Prop.USER}), ids=lambda p: p.name)
def test_will_property_twice(broker: Broker, twice: Prop) -> None:
    """3.1.3.2: each of these is a protocol error if included more than once."""
    pair = (twice, SAMPLE[twice])
    peer = broker.peer()
    peer.send(with_will([pair, pair]))
    peer.expect_refused_connect(PROTOCOL_ERROR)


@pytest.mark.parametrize("identifier", [0x00, 0x04, 0x0A, 0x20, 0x2B, 0x7F, 0x80, 0x1000])
def test_unknown_property(broker: Broker, identifier: int) -> None:
    """2.2.2.2: the identifier is a variable byte integer, and only the listed ones exist."""
    peer = broker.peer()
    peer.send(V5.connect("c", properties=field(varint(identifier) + b"\0")))
    peer.expect_refused_connect(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.parametrize(
    ("identifier", "value", "codes"),
    [
        pytest.param(Prop.RECEIVE_MAX, 0, (PROTOCOL_ERROR,), id="receive-maximum-0"),
        pytest.param(Prop.MAX_PACKET_SIZE, 0, (PROTOCOL_ERROR,), id="maximum-packet-size-0"),
        pytest.param(Prop.REQUEST_PROBLEM_INFO, 2, (PROTOCOL_ERROR,), id="problem-information-2"),
        pytest.param(
            Prop.REQUEST_PROBLEM_INFO, 255, (PROTOCOL_ERROR,), id="problem-information-255"
        ),
        pytest.param(Prop.REQUEST_RESPONSE_INFO, 2, (PROTOCOL_ERROR,), id="response-information-2"),
        pytest.param(Prop.AUTH_DATA, b"x", (PROTOCOL_ERROR,), id="data-without-method"),
    ],
)
def test_forbidden_value(
    broker: Broker, identifier: Prop, value: Value, codes: tuple[int, ...]
) -> None:
    """3.1.2.11: the section of each of these properties calls the value a protocol error.

    Mosquitto accepts Authentication Data without a method (3.1.2.11.10).
    """
    peer = broker.peer()
    peer.send(V5.connect("c", properties=[(identifier, value)]))
    peer.expect_refused_connect(*codes)


TRUNCATED = {
    "length-beyond-the-packet": b"\x7f",
    "length-of-five-bytes": b"\x80\x80\x80\x80\x01",
    "identifier-without-value": field(b"\x11"),
    "four-byte-value-cut": field(b"\x11\x00\x00"),
    "two-byte-value-cut": field(b"\x21\x00"),
    "byte-value-cut": field(b"\x17"),
    "string-length-cut": field(b"\x15\x00"),
    "string-cut": field(b"\x15\x00\x05ab"),
    "binary-cut": field(prop(Prop.AUTH_METHOD, "a") + b"\x16\x00\x05ab"),
    "pair-without-value": field(b"\x26\x00\x01a"),
    "pair-value-cut": field(b"\x26\x00\x01a\x00\x02b"),
}


@pytest.mark.parametrize("raw", TRUNCATED.values(), ids=TRUNCATED)
def test_property_field_cut_short(broker: Broker, raw: bytes) -> None:
    """A value may not reach past the property field."""
    peer = broker.peer()
    peer.send(V5.connect("c", properties=raw))
    peer.expect_refused_connect(MALFORMED)


@pytest.mark.spec("MQTT-1.5.4-1")
@pytest.mark.spec("MQTT-1.5.4-2")
@pytest.mark.spec("MQTT-3.1.3-4")
@pytest.mark.parametrize("bad", BAD_TEXT.values(), ids=BAD_TEXT)
def test_client_id_is_not_utf8(broker: Broker, bad: bytes) -> None:
    """1.5.4: ill-formed UTF-8 makes a malformed packet; 0x85 is named for client identifiers."""
    peer = broker.peer()
    peer.send(V5.connect(bad))
    peer.expect_refused_connect(MALFORMED, Reason.CLIENT_ID_INVALID)


@pytest.mark.spec("MQTT-3.1.3-12")
@pytest.mark.parametrize("bad", BAD_TEXT.values(), ids=BAD_TEXT)
def test_user_name_is_not_utf8(broker: Broker, bad: bytes) -> None:
    peer = broker.peer()
    peer.send(V5.connect("c", username=bad, password=b"p"))
    peer.expect_refused_connect(MALFORMED)


@pytest.mark.spec("MQTT-3.1.3-11")
@pytest.mark.parametrize("bad", BAD_TEXT.values(), ids=BAD_TEXT)
def test_will_topic_is_not_utf8(broker: Broker, bad: bytes) -> None:
    peer = broker.peer()
    peer.send(V5.connect("c", will=Will(topic=bad)))
    peer.expect_refused_connect(MALFORMED, Reason.TOPIC_INVALID)


@pytest.mark.spec("MQTT-1.5.7-1")
@pytest.mark.parametrize("bad", BAD_TEXT.values(), ids=BAD_TEXT)
@pytest.mark.parametrize("side", ["key", "value"])
def test_user_property_is_not_utf8(broker: Broker, bad: bytes, side: str) -> None:
    """1.5.7: both halves of a string pair are UTF-8 strings."""
    pair = text(bad) + text("x") if side == "key" else text("x") + text(bad)
    peer = broker.peer()
    peer.send(V5.connect("c", properties=field(b"\x26" + pair)))
    peer.expect_refused_connect(MALFORMED)


@pytest.mark.spec("MQTT-4.7.3-1")
@pytest.mark.parametrize("topic", ["", "#", "+", "a/#", "a/+/b", "a#", "+a"])
@pytest.mark.spec("MQTT-3.3.2-2")
def test_will_topic_is_no_topic_name(broker: Broker, topic: str) -> None:
    """[MQTT-3.3.2-2] [MQTT-4.7.3-1]: the will is published, so its topic is a topic name."""
    peer = broker.peer()
    peer.send(V5.connect("c", will=Will(topic=topic)))
    peer.expect_refused_connect(MALFORMED, PROTOCOL_ERROR, Reason.TOPIC_INVALID)


FLAGS = {
    "reserved": 0x03,
    "will-qos-3": 0x1E,
    "will-qos-without-will": 0x0A,
    "will-qos-2-without-will": 0x12,
    "will-retain-without-will": 0x22,
}


@pytest.mark.spec("MQTT-3.1.2-3")
@pytest.mark.spec("MQTT-3.1.2-11")
@pytest.mark.spec("MQTT-3.1.2-12")
@pytest.mark.spec("MQTT-3.1.2-13")
@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
def test_connect_flags(broker: Broker, flags: int) -> None:
    will = Will(topic="will", payload=b"w") if flags & 4 else None
    peer = broker.peer()
    peer.send(V5.connect("c", will=will, flags=flags))
    peer.expect_refused_connect(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.spec("MQTT-2.1.3-1")
@pytest.mark.parametrize("flags", range(1, 16))
def test_fixed_header_flags(broker: Broker, flags: int) -> None:
    """2.1.3: a reserved flag that is set makes a malformed packet; the server has to close."""
    peer = broker.peer()
    peer.send(V5.connect("c", first=0x10 | flags))
    found = peer.receive()
    if found is not None:
        assert found.reason in (MALFORMED, PROTOCOL_ERROR)
        peer.expect_closed()


BODIES = {
    "empty": b"",
    "name-cut": b"\x00\x04MQ",
    "no-level": text("MQTT"),
    "no-flags": HEAD,
    "no-keep-alive": HEAD + b"\x02",
    "keep-alive-cut": HEAD + b"\x02\x00",
    "no-properties": HEAD + b"\x02\x00\x3c",
    "no-client-id": HEAD + b"\x02\x00\x3c\x00",
    "client-id-cut": HEAD + b"\x02\x00\x3c\x00\x00\x05ab",
    "will-flag-without-will": HEAD + b"\x06\x00\x3c\x00" + text("c"),
    "will-without-topic": HEAD + b"\x06\x00\x3c\x00" + text("c") + b"\x00",
    "will-without-payload": HEAD + b"\x06\x00\x3c\x00" + text("c") + b"\x00" + text("w"),
    "user-flag-without-name": HEAD + b"\x82\x00\x3c\x00" + text("c"),
    "password-flag-without-one": HEAD + b"\xc2\x00\x3c\x00" + text("c") + text("u"),
    "bytes-too-many": HEAD + b"\x02\x00\x3c\x00" + text("c") + b"\x00",
    "name-without-flag": HEAD + b"\x02\x00\x3c\x00" + text("c") + text("u"),
    "password-without-flag": HEAD + b"\x82\x00\x3c\x00" + text("c") + text("u") + text("p"),
}


@pytest.mark.spec("MQTT-3.1.2-9")
@pytest.mark.spec("MQTT-3.1.2-16")
@pytest.mark.spec("MQTT-3.1.2-17")
@pytest.mark.spec("MQTT-3.1.2-18")
@pytest.mark.spec("MQTT-3.1.2-19")
@pytest.mark.spec("MQTT-3.1.3-1")
@pytest.mark.spec("MQTT-3.1.3-3")
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_body_does_not_agree_with_itself(broker: Broker, body: bytes) -> None:
    """4.13.1: MAY send a CONNACK before the close; a level that was read makes us able to."""
    peer = broker.peer()
    peer.send(packet(0x10, body))
    found = peer.receive()
    if found is not None:
        assert found.reason in (MALFORMED, PROTOCOL_ERROR), found
        peer.expect_closed()
    else:
        assert len(body) <= len(HEAD) or not REASONS_REQUIRED, "closed without the reason code"


@pytest.mark.spec("MQTT-3.1.2-1")
@pytest.mark.parametrize("protocol", ["", "mqtt", "MQTTT", "MQT", "HTTP", "MQIsdp", "ＭＱＴＴ"])
def test_protocol_name(broker: Broker, protocol: str) -> None:
    """3.1.2.1: MAY be answered with 0x84; the connection has to be closed."""
    peer = broker.peer()
    peer.send(V5.connect("c", protocol=protocol))
    raw = peer.receive_raw()
    codes = (0x01, Reason.UNSUPPORTED_VERSION, MALFORMED, PROTOCOL_ERROR)
    assert not raw or (raw[0] == 0x20 and raw[3] in codes), raw.hex(" ")


@pytest.mark.spec("MQTT-3.1.2-2")
@pytest.mark.parametrize("level", [0, 1, 2, 6, 7, 0x7F, 0x80, 0x84, 0xFF])
def test_protocol_level(broker: Broker, level: int) -> None:
    """3.1.2.2: MAY be answered with 0x84 (0x01 to a 3.1.1 client), and has to be closed.

    The two bytes of the answer's code stand at the same place in both versions.
    """
    peer = broker.peer(4)
    peer.send(packet(0x10, text("MQTT") + bytes([level]) + b"\x02\x00\x3c\x00" + text("c")))
    raw = peer.receive_raw()
    if raw:
        assert raw[0] == 0x20
        assert raw[2] == 0
        assert raw[3] in (0x01, Reason.UNSUPPORTED_VERSION)


@pytest.mark.spec("MQTT-3.1.0-2")
def test_second_connect(broker: Broker, name: str) -> None:
    """A second CONNECT is a protocol error."""
    peer = broker.connect(name)
    peer.send(V5.connect(name))
    peer.expect_refusal(PROTOCOL_ERROR)


@pytest.mark.spec("MQTT-3.1.0-2")
@pytest.mark.spec("MQTT-3.2.0-2")
def test_second_connect_in_the_same_segment(broker: Broker, name: str) -> None:
    """One CONNACK only, then the protocol error."""
    peer = broker.peer()
    peer.send(V5.connect(name), V5.connect(name))
    peer.expect_connack(0)
    peer.expect_refusal(PROTOCOL_ERROR)


FIRST = {
    "publish": V5.publish("t", b"x"),
    "publish-qos-1": V5.publish("t", b"x", qos=1),
    "puback": V5.puback(1),
    "pubrec": V5.pubrec(1),
    "pubrel": V5.pubrel(1),
    "pubcomp": V5.pubcomp(1),
    "subscribe": V5.subscribe(("t", 0)),
    "unsubscribe": V5.unsubscribe("t"),
    "pingreq": V5.pingreq(),
    "disconnect": V5.disconnect(),
    "auth": V5.auth(0x18, [(Prop.AUTH_METHOD, "M")]),
    "connack": b"\x20\x03\x00\x00\x00",
    "type-0": b"\x00\x00",
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
    "remaining-length-of-five-bytes": b"\x10\xff\xff\xff\xff\x7f",
}


@pytest.mark.spec("MQTT-3.1.0-1")
@pytest.mark.spec("MQTT-3.14.0-1")
@pytest.mark.spec("MQTT-3.2.0-1")
@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_first_packet_is_no_connect(broker: Broker, first: bytes) -> None:
    """Closed; a server sends no DISCONNECT before its CONNACK."""
    peer = broker.peer()
    peer.send(first)
    raw = peer.receive_raw()
    assert not raw or (raw[0] == 0x20 and raw[3] >= 0x80), raw.hex(" ")


@pytest.mark.spec("MQTT-3.1.4-6")
def test_packets_after_a_refused_connect_have_no_effect(broker: Broker, name: str) -> None:
    """The server processes nothing that follows a CONNECT that it refused."""
    watcher = broker.connect(f"{name}-watcher")
    watcher.subscribe(f"{name}/#")
    peer = broker.peer()
    refused = V5.connect(name, properties=[(Prop.RECEIVE_MAX, 0)])
    peer.send(refused, V5.publish(f"{name}/t", b"leaked", qos=1))
    peer.expect_refused_connect(PROTOCOL_ERROR)
    watcher.publish(f"{name}/t", b"control", qos=1)
    watcher.receive_publish(f"{name}/t", b"control", qos=1)


@pytest.mark.spec("MQTT-3.2.2-6")
def test_refused_connect_has_no_properties_of_a_session(broker: Broker) -> None:
    """[MQTT-3.2.2-6]: Session Present is 0 with a refusal."""
    peer = broker.peer()
    peer.send(V5.connect("c", clean=False, properties=[(Prop.MAX_PACKET_SIZE, 0)]))
    connack = peer.expect_refused_connect(PROTOCOL_ERROR)
    assert not connack.session_present


def test_level_is_judged_before_the_rest(broker: Broker) -> None:
    """3.1.2.2: a later version's CONNECT may be laid out in ways that we cannot know."""
    peer = broker.peer(4)
    peer.send(packet(0x10, text("MQTT") + b"\x06" + u16(7) + b"\xff\xff\xff"))
    raw = peer.receive_raw()
    assert not raw or raw[3] in (0x01, Reason.UNSUPPORTED_VERSION), raw.hex(" ")
