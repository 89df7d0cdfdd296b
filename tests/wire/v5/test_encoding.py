"""MQTT 5.0, sections 1.5 and 2.1: integers and strings at the edges of what is legal."""

from __future__ import annotations

import pytest

from tests.wire.harness import Broker
from tests.wire.packets import V5, Kind, Prop, Reason, Value, Will, packet, text, u16, varint
from tests.wire.v5.samples import field

T = text("t")

OVER_LONG = {
    "remaining-length-2": packet(0x30, T + b"\x00", length=varint(4, width=2)),
    "remaining-length-4": packet(0x30, T + b"\x00", length=varint(4, width=4)),
    "remaining-length-of-pingreq": packet(0xC0, b"", length=b"\x80\x00"),
    "property-length": packet(0x30, T + varint(0, width=2)),
    "property-length-4": packet(0x30, T + varint(7, width=4) + b"\x26" + text("k") + text("v")),
    "property-identifier": packet(0x30, T + field(varint(0x01, width=2) + b"\x00")),
    "subscription-identifier": packet(
        0x82, u16(1) + field(b"\x0b" + varint(5, width=2)) + T + b"\x00"
    ),
}


@pytest.mark.spec("MQTT-1.5.5-1")
@pytest.mark.parametrize("raw", OVER_LONG.values(), ids=OVER_LONG)
def test_over_long_integer(broker: Broker, name: str, raw: bytes) -> None:
    """The encoded value must use the fewest bytes; anything else is malformed.

    Mosquitto takes over-long forms.
    """
    peer = broker.connect(name)
    peer.send(raw)
    peer.expect_refusal(Reason.MALFORMED)


@pytest.mark.spec("MQTT-1.5.5-1")
def test_over_long_length_of_connect(broker: Broker, name: str) -> None:
    good = V5.connect(name)
    peer = broker.peer()
    peer.send(good[:1] + varint(good[1], width=2) + good[2:])
    peer.expect_refused_connect(Reason.MALFORMED)


GOOD_TEXT = {
    "empty": "",
    "bom": "\ufeff",
    "bom-inside": "a\ufeffb",
    "two-bytes": "\x80\u07ff",
    "three-bytes": "\u0800\ud7ff\ue000\ufffd",
    "four-bytes": "\U00010000\U0010fffd",
    "controls": "\x01\t\n\r\x1f\x7f\x9f",
    "non-characters": "\ufdd0\ufffe\uffff\U0010ffff",
    "composed": "\u00e9e\u0301",
    "right-to-left": "\u202e\u05d0",
    "longest": "\u20ac" * 21_845,
}


NOT_IN_NAMES = {"two-bytes", "controls", "non-characters"}
"""1.5.4 lets a receiver refuse these; ours does so in topic names and filters only."""


@pytest.mark.spec("MQTT-1.5.4-1")
@pytest.mark.spec("MQTT-1.5.4-3")
@pytest.mark.parametrize("value", GOOD_TEXT.values(), ids=GOOD_TEXT)
@pytest.mark.parametrize("place", ["key", "value", "content-type"])
def test_text_is_kept_to_the_byte(broker: Broker, name: str, place: str, value: str) -> None:
    """No normalisation, no stripping, up to 65,535 bytes.

    Mosquitto refuses control characters and non-characters here too.
    """
    peer = broker.connect(name)
    peer.subscribe((f"{name}/t", 0))
    pairs: dict[str, tuple[int, Value]] = {
        "key": (Prop.USER, (value, "v")),
        "value": (Prop.USER, ("k", value)),
        "content-type": (Prop.CONTENT_TYPE, value),
    }
    raw = V5.publish(f"{name}/t", b"x", properties=[pairs[place]])
    peer.send(raw)
    peer.expect(raw)


@pytest.mark.spec("MQTT-1.5.4-3")
@pytest.mark.spec("MQTT-4.7.3-4")
@pytest.mark.parametrize("which", sorted(set(GOOD_TEXT) - NOT_IN_NAMES - {"empty"}))
def test_topic_is_kept_to_the_byte(broker: Broker, name: str, which: str) -> None:
    """As a name, as a filter and as a will's topic."""
    topic = GOOD_TEXT[which]
    peer = broker.connect(name)
    peer.subscribe((topic, 0))
    raw = V5.publish(topic, b"x")
    peer.send(raw)
    peer.expect(raw)
    broker.connect(f"{name}-mortal", will=Will(topic=topic, payload=b"w")).close()
    peer.expect_publish(topic, b"w")


@pytest.mark.spec("MQTT-1.5.4-1")
@pytest.mark.parametrize("which", sorted(NOT_IN_NAMES))
@pytest.mark.parametrize("place", ["name", "filter", "will", "unsubscribe"])
def test_topic_with_doubtful_characters(broker: Broker, name: str, which: str, place: str) -> None:
    """Taken, or refused as malformed; nothing between the two."""
    topic = GOOD_TEXT[which]
    if place == "will":
        peer = broker.peer()
        peer.send(V5.connect(name, will=Will(topic=topic)))
    else:
        peer = broker.connect(name)
        packets = {
            "name": V5.publish(topic, b"x", qos=1),
            "filter": V5.subscribe((topic, 0)),
            "unsubscribe": V5.unsubscribe(topic),
        }
        peer.send(packets[place])
    found = peer.receive()
    assert found is not None
    code = found.reasons[0] if found.reasons else found.reason
    taken = (0, Reason.NO_MATCHING_SUBSCRIBERS, Reason.NO_SUBSCRIPTION)
    refused = (Reason.MALFORMED, Reason.FILTER_INVALID, Reason.TOPIC_INVALID)
    assert code in (*taken, *refused)


@pytest.mark.spec("MQTT-4.7.3-2")
@pytest.mark.spec("MQTT-4.7.3-3")
@pytest.mark.parametrize("length", [65_534, 65_535])
def test_longest_topics(broker: Broker, name: str, length: int) -> None:
    """As a topic name and as a filter, with a `#` behind the longest name too."""
    topic = name + "x" * (length - len(name))
    peer = broker.connect(name)
    peer.subscribe((topic, 1))
    peer.publish(topic, b"x", qos=1)
    peer.receive_publish(topic, b"x", qos=1)


@pytest.mark.parametrize("size", [126, 127, 128, 129, 16_382, 16_383, 16_384, 16_385])
def test_property_length_around_its_steps(broker: Broker, name: str, size: int) -> None:
    """The property length itself takes one byte, two or three."""
    peer = broker.connect(name)
    peer.subscribe((f"{name}/t", 0))
    value = "v" * (size - 6)
    raw = V5.publish(f"{name}/t", b"x", properties=[(Prop.USER, ("k", value))])
    peer.send(raw)
    peer.expect(raw)


@pytest.mark.parametrize("size", [2_097_150, 2_097_151, 2_097_152])
def test_remaining_length_of_four_bytes(broker: Broker, name: str, size: int) -> None:
    peer = broker.connect(name)
    peer.subscribe((f"{name}/t", 0))
    head = len(text(f"{name}/t")) + 1
    raw = V5.publish(f"{name}/t", b"x" * (size - head))
    peer.send(raw)
    peer.expect(raw)


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64])
def test_pieces_of_any_size(broker: Broker, name: str, piece: int) -> None:
    """A whole conversation in pieces of this size gives the same answers."""
    peer = broker.peer()
    raw = b"".join(
        [
            V5.connect(name, properties=[(Prop.USER, ("k", "v" * 150))]),
            V5.subscribe((f"{name}/+", 2), packet_id=1, properties=[(Prop.SUBSCRIPTION_ID, 300)]),
            V5.publish(f"{name}/0", b"zero"),
            V5.publish(f"{name}/1", b"one" * 60, qos=1, packet_id=2),
            V5.publish(f"{name}/2", b"two", qos=2, packet_id=3),
            V5.pubrel(3),
            V5.pingreq(),
        ]
    )
    for start in range(0, len(raw), piece):
        peer.send(raw[start : start + piece])
    peer.expect_connack(0)
    peer.expect_packet(Kind.SUBACK, packet_id=1, reasons=(2,))
    peer.take(Kind.PUBACK, 2)
    peer.take(Kind.PUBREC, 3)
    peer.take(Kind.PUBCOMP, 3)
    peer.take(Kind.PINGRESP)
    found = sorted(peer.take_publish().payload for _ in range(3))
    assert found == [b"one" * 60, b"two", b"zero"]
