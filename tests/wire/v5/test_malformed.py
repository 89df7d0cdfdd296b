"""MQTT 5.0: each defect of a packet after CONNECT is answered with DISCONNECT, then the close.

The reason codes are those of section 4.13.1 and of each packet's own section. Two codes are
accepted only where the text itself leaves the choice between malformed and protocol error.
Mosquitto 2.0 fails about 70 of these cases: it takes reserved flags [MQTT-2.1.3-1], undefined
reason codes ([MQTT-3.4.2-1] and its like), a body in PINGREQ, packets that only a server sends
and a Subscription Identifier in PUBLISH [MQTT-3.3.4-6] without a word, and answers 0x81 where
3.8.3 and 3.10.3 name a protocol error.
"""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Prop, Reason, Value, packet, prop, text, u16, varint
from tests.wire.v5.samples import (
    ACKS,
    ALLOWED,
    BAD_TEXT,
    SAMPLE,
    field,
    label,
    malformed,
    with_field,
)

MALFORMED = Reason.MALFORMED
PROTOCOL_ERROR = Reason.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("kind", "foreign"),
    [
        (kind, p)
        for kind, allowed in ALLOWED.items()
        for p in Prop
        if p not in allowed and (kind, p) != (Kind.PUBLISH, Prop.SUBSCRIPTION_ID)
    ],
    ids=label,
)
def test_property_that_the_packet_does_not_have(broker: Broker, kind: Kind, foreign: Prop) -> None:
    """2.2.2.2: an identifier that is not valid for its packet type makes a malformed packet."""
    peer = broker.connect("foreign")
    peer.send(with_field(kind, field(prop(foreign, SAMPLE[foreign]))))
    peer.expect_refusal(MALFORMED, PROTOCOL_ERROR)


@pytest.mark.parametrize(
    ("kind", "twice"),
    [(kind, p) for kind, allowed in ALLOWED.items() for p in Prop if p in allowed - {Prop.USER}],
    ids=label,
)
def test_property_twice(broker: Broker, kind: Kind, twice: Prop) -> None:
    """The section of each property calls it a protocol error to include it more than once."""
    peer = broker.connect("twice")
    peer.send(with_field(kind, field(prop(twice, SAMPLE[twice]) * 2)))
    peer.expect_refusal(PROTOCOL_ERROR)


@pytest.mark.parametrize("identifier", [0x00, 0x04, 0x20, 0x7F, 0x80, 0x1000], ids=hex)
@pytest.mark.parametrize("kind", ALLOWED, ids=lambda kind: kind.name)
def test_unknown_property(broker: Broker, kind: Kind, identifier: int) -> None:
    peer = broker.connect("unknown")
    peer.send(with_field(kind, field(varint(identifier) + b"\x00")))
    peer.expect_refusal(MALFORMED, PROTOCOL_ERROR)


FIELDS = {
    "length-beyond-the-packet": b"\x7f",
    "length-of-five-bytes": b"\x80\x80\x80\x80\x01",
    "pair-without-value": field(b"\x26\x00\x01a"),
    "pair-cut": field(b"\x26\x00\x05a"),
    "identifier-cut": field(b"\x80"),
}


@pytest.mark.parametrize("raw", FIELDS.values(), ids=FIELDS)
@pytest.mark.parametrize("kind", ALLOWED, ids=lambda kind: kind.name)
def test_property_field_that_does_not_end(broker: Broker, kind: Kind, raw: bytes) -> None:
    """Nothing follows the field here, so that what it claims to hold cannot be there."""
    peer = broker.connect("cut")
    peer.send(with_field(kind, raw, rest=b""))
    peer.expect_refusal(MALFORMED)


@pytest.mark.spec("MQTT-1.5.7-1")
@pytest.mark.spec("MQTT-1.5.4-1")
@pytest.mark.spec("MQTT-1.5.4-2")
@pytest.mark.parametrize("bad", BAD_TEXT.values(), ids=BAD_TEXT)
@pytest.mark.parametrize("kind", ALLOWED, ids=lambda kind: kind.name)
def test_user_property_is_not_utf8(broker: Broker, kind: Kind, bad: bytes) -> None:
    peer = broker.connect("utf8")
    peer.send(with_field(kind, field(b"\x26" + text("key") + text(bad))))
    peer.expect_refusal(MALFORMED)


PLACES = {
    "topic-name": lambda bad: V5.publish(bad, b"x"),
    "content-type": lambda bad: V5.publish("t", properties=field(b"\x03" + text(bad))),
    "response-topic": lambda bad: V5.publish("t", properties=field(b"\x08" + text(bad))),
    "filter": lambda bad: V5.subscribe((bad, 0)),
    "second-filter": lambda bad: V5.subscribe(("ok", 0), (bad, 0)),
    "shared-filter": lambda bad: V5.subscribe((b"$share/g/" + bad, 0)),
    "unsubscribe": lambda bad: V5.unsubscribe(bad),
    "reason-string-of-disconnect": lambda bad: V5.disconnect(0, field(b"\x1f" + text(bad))),
    "reason-string-of-puback": lambda bad: V5.ack(Kind.PUBACK, 1, 0, field(b"\x1f" + text(bad))),
}


@pytest.mark.spec("MQTT-1.5.4-1")
@pytest.mark.spec("MQTT-1.5.4-2")
@pytest.mark.spec("MQTT-3.3.2-1")
@pytest.mark.spec("MQTT-3.3.2-13")
@pytest.mark.spec("MQTT-3.3.2-19")
@pytest.mark.spec("MQTT-3.8.3-1")
@pytest.mark.spec("MQTT-3.10.3-1")
@pytest.mark.parametrize("bad", BAD_TEXT.values(), ids=BAD_TEXT)
@pytest.mark.parametrize("place", PLACES)
def test_text_is_not_utf8(broker: Broker, place: str, bad: bytes) -> None:
    """1.5.4: ill-formed UTF-8 or U+0000 makes a malformed packet."""
    peer = broker.connect("text")
    peer.send(PLACES[place](bad))
    peer.expect_refusal(MALFORMED, Reason.TOPIC_INVALID, Reason.FILTER_INVALID)


@pytest.mark.spec("MQTT-2.1.3-1")
@pytest.mark.spec("MQTT-3.6.1-1")
@pytest.mark.spec("MQTT-3.8.1-1")
@pytest.mark.spec("MQTT-3.10.1-1")
@pytest.mark.spec("MQTT-3.14.1-1")
@pytest.mark.spec("MQTT-3.15.1-1")
@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        (kind, flags)
        for kind in (*ACKS, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE, Kind.DISCONNECT)
        for flags in range(16)
        if flags != (2 if kind in (Kind.PUBREL, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE) else 0)
    ],
    ids=label,
)
def test_fixed_header_flags(broker: Broker, kind: Kind, flags: int) -> None:
    """2.1.3: reserved flags with another value make a malformed packet."""
    good = with_field(kind, b"\x00")
    peer = broker.connect("flags")
    peer.send(bytes([kind << 4 | flags]) + good[1:])
    peer.expect_refusal(MALFORMED)


@pytest.mark.spec("MQTT-2.1.3-1")
@pytest.mark.parametrize("flags", range(1, 16))
def test_pingreq_flags(broker: Broker, flags: int) -> None:
    """2.1.3 as above."""
    peer = broker.connect("flags")
    peer.send(bytes([0xC0 | flags, 0]))
    peer.expect_refusal(MALFORMED)


DEFECTS: dict[str, tuple[bytes, tuple[int, ...]]] = {
    # PUBLISH
    "publish-qos-3": (packet(0x36, text("t") + u16(1) + b"\x00x"), (MALFORMED,)),
    "publish-qos-3-dup": (packet(0x3E, text("t") + u16(1) + b"\x00x"), (MALFORMED,)),
    "publish-dup-of-qos-0": (V5.publish("t", dup=True), (MALFORMED, PROTOCOL_ERROR)),
    "publish-packet-id-0": (V5.publish("t", qos=1, packet_id=0), malformed()),
    "publish-qos-2-packet-id-0": (V5.publish("t", qos=2, packet_id=0), malformed()),
    "publish-empty": (packet(0x30), (MALFORMED,)),
    "publish-topic-length-cut": (packet(0x30, b"\x00"), (MALFORMED,)),
    "publish-topic-cut": (packet(0x30, b"\x00\x09t"), (MALFORMED,)),
    "publish-no-properties": (packet(0x30, text("t")), (MALFORMED,)),
    "publish-no-packet-id": (packet(0x32, text("t")), (MALFORMED,)),
    "publish-packet-id-cut": (packet(0x32, text("t") + b"\x00"), (MALFORMED,)),
    "publish-no-topic": (V5.publish("", b"x"), (PROTOCOL_ERROR,)),
    "publish-no-topic-qos-1": (V5.publish("", b"x", qos=1), (PROTOCOL_ERROR,)),
    # SUBSCRIBE
    "subscribe-no-filter": (V5.subscribe(), (PROTOCOL_ERROR,)),
    "subscribe-empty": (packet(0x82), (MALFORMED,)),
    "subscribe-packet-id-only": (packet(0x82, u16(1)), (MALFORMED,)),
    "subscribe-packet-id-0": (V5.subscribe(("t", 0), packet_id=0), malformed()),
    "subscribe-no-options": (packet(0x82, u16(1) + b"\x00" + text("t")), (MALFORMED,)),
    "subscribe-filter-cut": (packet(0x82, u16(1) + b"\x00\x00\x05t"), (MALFORMED,)),
    "subscribe-qos-3": (V5.subscribe(("t", 3)), malformed()),
    "subscribe-retain-handling-3": (V5.subscribe(("t", 0x30)), (PROTOCOL_ERROR,)),
    "subscribe-reserved-bit-6": (V5.subscribe(("t", 0x40)), (MALFORMED,)),
    "subscribe-reserved-bit-7": (V5.subscribe(("t", 0x80)), (MALFORMED,)),
    "subscribe-reserved-bits": (V5.subscribe(("t", 0xC0)), (MALFORMED,)),
    "subscribe-second-reserved": (V5.subscribe(("t", 0), ("u", 0x80)), (MALFORMED,)),
    "subscribe-shared-no-local": (V5.subscribe(("$share/g/t", 4)), (PROTOCOL_ERROR,)),
    "subscribe-identifier-0": (
        V5.subscribe(("t", 0), properties=[(Prop.SUBSCRIPTION_ID, 0)]),
        (PROTOCOL_ERROR,),
    ),
    "subscribe-identifier-of-five-bytes": (
        V5.subscribe(("t", 0), properties=field(b"\x0b\x80\x80\x80\x80\x01")),
        (MALFORMED,),
    ),
    # UNSUBSCRIBE
    "unsubscribe-no-filter": (V5.unsubscribe(), (PROTOCOL_ERROR,)),
    "unsubscribe-empty": (packet(0xA2), (MALFORMED,)),
    "unsubscribe-packet-id-only": (packet(0xA2, u16(1)), (MALFORMED,)),
    "unsubscribe-packet-id-0": (V5.unsubscribe("t", packet_id=0), malformed()),
    "unsubscribe-filter-cut": (packet(0xA2, u16(1) + b"\x00\x00\x05t"), (MALFORMED,)),
    # PINGREQ
    "pingreq-with-body": (packet(0xC0, b"\x00"), (MALFORMED,)),
    # DISCONNECT
    "disconnect-reason-1": (V5.disconnect(0x01), malformed()),
    "disconnect-reason-5": (V5.disconnect(0x05), malformed()),
    "disconnect-reason-255": (V5.disconnect(0xFF), malformed()),
    "disconnect-bytes-too-many": (V5.disconnect(0, b"\x00\x00"), (MALFORMED,)),
    "disconnect-expiry-cut": (V5.disconnect(0, field(b"\x11\x00")), (MALFORMED,)),
    # acknowledgements
    **{
        f"{kind.name.lower()}-{defect}": (packet(kind << 4 | flags, body), codes)
        for kind, flags in ACKS.items()
        for defect, body, codes in (
            ("empty", b"", (MALFORMED,)),
            ("packet-id-cut", b"\x00", (MALFORMED,)),
            ("packet-id-0", u16(0), malformed()),
            ("reason-1", u16(1) + b"\x01", malformed()),
            ("reason-255", u16(1) + b"\xff\x00", malformed()),
            ("bytes-too-many", u16(1) + b"\x00\x00\x00", (MALFORMED,)),
        )
    },
    "pubrel-reason-of-a-pubrec": (packet(0x62, u16(1) + b"\x97"), malformed()),
    "pubcomp-reason-of-a-pubrec": (packet(0x70, u16(1) + b"\x97"), malformed()),
    "puback-reason-of-a-pubrel": (packet(0x40, u16(1) + b"\x92"), malformed()),
    # packets that only a server sends, and the types that do not exist
    "connack": (b"\x20\x03\x00\x00\x00", malformed()),
    "suback": (packet(0x90, u16(1) + b"\x00\x00"), malformed()),
    "unsuback": (packet(0xB0, u16(1) + b"\x00\x00"), malformed()),
    "pingresp": (b"\xd0\x00", malformed()),
    "type-0": (b"\x00\x00", malformed()),
    "type-0-with-flags": (b"\x0f\x00", malformed()),
    # AUTH outside an exchange
    "auth-without-method": (V5.auth(), (PROTOCOL_ERROR,)),
    "auth-unasked": (
        V5.auth(Reason.CONTINUE, [(Prop.AUTH_METHOD, "M")]),
        (PROTOCOL_ERROR, Reason.BAD_AUTH_METHOD),
    ),
    "auth-reason-1": (V5.auth(0x01, [(Prop.AUTH_METHOD, "M")]), malformed()),
    "auth-flags": (V5.auth(0x18, [(Prop.AUTH_METHOD, "M")], first=0xF1), malformed()),
    # fixed header
    "remaining-length-of-five-bytes": (b"\x30\x80\x80\x80\x80\x01", (MALFORMED,)),
    "remaining-length-ff": (b"\x30\xff\xff\xff\xff\x7f", (MALFORMED,)),
}


@pytest.mark.spec("MQTT-2.2.1-3")
@pytest.mark.spec("MQTT-3.3.1-2")
@pytest.mark.spec("MQTT-3.3.1-4")
@pytest.mark.spec("MQTT-3.8.3-2")
@pytest.mark.spec("MQTT-3.8.3-4")
@pytest.mark.spec("MQTT-3.8.3-5")
@pytest.mark.spec("MQTT-3.10.3-2")
@pytest.mark.spec("MQTT-3.4.2-1")
@pytest.mark.spec("MQTT-3.5.2-1")
@pytest.mark.spec("MQTT-3.6.2-1")
@pytest.mark.spec("MQTT-3.7.2-1")
@pytest.mark.spec("MQTT-3.14.2-1")
@pytest.mark.spec("MQTT-4.13.1-1")
@pytest.mark.parametrize(("raw", "codes"), DEFECTS.values(), ids=DEFECTS)
def test_defect(broker: Broker, name: str, raw: bytes, codes: tuple[int, ...]) -> None:
    peer = broker.connect(name)
    peer.send(raw)
    peer.expect_refusal(*codes)


@pytest.mark.parametrize(("raw", "codes"), DEFECTS.values(), ids=DEFECTS)
def test_defect_byte_by_byte(broker: Broker, name: str, raw: bytes, codes: tuple[int, ...]) -> None:
    """The same defects are found whatever the segments are."""
    peer = broker.connect(name)
    peer.send_slowly(raw)
    peer.expect_refusal(*codes)


VALUES: dict[str, tuple[Prop, Value, tuple[int, ...]]] = {
    "topic-alias-0": (Prop.TOPIC_ALIAS, 0, (Reason.TOPIC_ALIAS_INVALID,)),
    "topic-alias-65535": (Prop.TOPIC_ALIAS, 65_535, (Reason.TOPIC_ALIAS_INVALID,)),
    "subscription-identifier": (Prop.SUBSCRIPTION_ID, 1, malformed()),
    "subscription-identifier-0": (Prop.SUBSCRIPTION_ID, 0, malformed()),
    "response-topic-hash": (Prop.RESPONSE_TOPIC, "a/#", malformed(Reason.TOPIC_INVALID)),
    "response-topic-plus": (Prop.RESPONSE_TOPIC, "+/a", malformed(Reason.TOPIC_INVALID)),
    "payload-format-2": (
        Prop.PAYLOAD_FORMAT,
        2,
        malformed(Reason.PAYLOAD_FORMAT_INVALID),
    ),
}


@pytest.mark.spec("MQTT-3.3.2-8")
@pytest.mark.spec("MQTT-3.3.2-9")
@pytest.mark.spec("MQTT-3.3.2-14")
@pytest.mark.spec("MQTT-3.3.4-6")
@pytest.mark.parametrize(("identifier", "value", "codes"), VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_forbidden_value_in_publish(
    broker: Broker, name: str, qos: int, identifier: Prop, value: Value, codes: tuple[int, ...]
) -> None:
    peer = broker.connect(name)
    peer.send(V5.publish(f"{name}/t", b"x", qos=qos, properties=[(identifier, value)]))
    peer.expect_refusal(*codes)


@pytest.mark.spec("MQTT-3.3.2-2")
@pytest.mark.spec("MQTT-4.7.0-1")
@pytest.mark.parametrize("topic", ["#", "+", "a/#", "a/+", "+/a", "a+", "a#b", "a/+/b", "/#"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_wildcard_in_topic_name(broker: Broker, name: str, topic: str, qos: int) -> None:
    peer = broker.connect(name)
    peer.send(V5.publish(topic, b"x", qos=qos))
    peer.expect_refusal(MALFORMED, PROTOCOL_ERROR, Reason.TOPIC_INVALID)


@pytest.mark.spec("MQTT-3.14.2-2")
def test_expiry_at_disconnect_where_connect_had_none(broker: Broker, name: str) -> None:
    """3.14.2.2.2: zero in CONNECT and non-zero in DISCONNECT is a protocol error."""
    peer = broker.connect(name)
    peer.send(V5.disconnect(0, [(Prop.SESSION_EXPIRY, 10)]))
    peer.expect_refusal(PROTOCOL_ERROR)


def test_refusal_does_not_disturb_others(broker: Broker, name: str) -> None:
    """4.13: the error of one connection is its own."""
    other = broker.connect(f"{name}-other")
    other.subscribe(f"{name}/t")
    peer = broker.connect(name)
    peer.publish(f"{name}/t", b"good", qos=1)
    peer.send(packet(0x36, text("t") + b"\0\1\0"))
    peer.expect_refusal(MALFORMED)
    other.receive_publish(f"{name}/t", b"good", qos=1)
    other.expect_nothing()


def test_nothing_after_a_defect_is_processed(broker: Broker, name: str) -> None:
    """4.13.1: the connection is closed, so what follows the bad packet has no effect."""
    other = broker.connect(f"{name}-other")
    other.subscribe(f"{name}/t")
    peer = broker.connect(name)
    peer.send(packet(0x36, text("t") + b"\0\1\0"), V5.publish(f"{name}/t", b"late", qos=1))
    peer.expect_refusal(MALFORMED)
    other.publish(f"{name}/t", b"control", qos=1)
    other.receive_publish(f"{name}/t", b"control", qos=1)
