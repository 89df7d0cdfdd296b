"""MQTT 3.1.1: each defect of each packet after CONNECT closes the connection, and only that one.

[MQTT-4.8.0-1]: unless stated otherwise, a protocol violation means that the network connection
is closed. There is no DISCONNECT from a server and no reason in this version. Mosquitto 2.0 lets
some of these defects pass: flags of acknowledgements and PINGREQ, bytes behind them, DUP with
QoS 0, and answers that only a server sends.
"""

from __future__ import annotations

import pytest

from tests.wire.clients import Clients
from tests.wire.packets import V3, Kind, Will, packet, text, u16

SHORT = {
    "PUBLISH-0": V3.publish("topic", b"payload"),
    "PUBLISH-1": V3.publish("topic", b"", qos=1),
    "PUBLISH-2": V3.publish("topic", b"", qos=2),
    "PUBACK": V3.puback(1),
    "PUBREC": V3.pubrec(1),
    "PUBREL": V3.pubrel(1),
    "PUBCOMP": V3.pubcomp(1),
    "SUBSCRIBE": V3.subscribe(("topic", 1), ("other", 2)),
    "UNSUBSCRIBE": V3.unsubscribe("topic", "other"),
}
"""Packets without an optional part at their end, but for the payload of the first."""

SUBSCRIBE_BOUNDARY = len(V3.subscribe(("topic", 1))) - 2
UNSUBSCRIBE_BOUNDARY = len(V3.unsubscribe("topic")) - 2


def truncations() -> list[object]:
    """Each packet, ended by its remaining length at each place that is not a legal end."""
    found = []
    for label, raw in SHORT.items():
        legal = {
            "PUBLISH-0": range(2 + len("topic"), len(raw)),
            "SUBSCRIBE": [SUBSCRIBE_BOUNDARY],
            "UNSUBSCRIBE": [UNSUBSCRIBE_BOUNDARY],
        }.get(label, ())
        found += [
            pytest.param(packet(raw[0], raw[2 : 2 + length]), id=f"{label}-{length}")
            for length in range(len(raw) - 2)
            if length not in legal
        ]
    return found


@pytest.mark.spec("MQTT-4.8.0-1@3.1.1")
@pytest.mark.spec("MQTT-3.8.3-3@3.1.1")
@pytest.mark.spec("MQTT-3.10.3-2@3.1.1")
@pytest.mark.parametrize("raw", truncations())
def test_truncated(clients: Clients, name: str, raw: bytes) -> None:
    """Length 2 of SUBSCRIBE and UNSUBSCRIBE is the packet without any filter."""
    peer = clients.join(name)
    peer.send(raw)
    peer.expect_closed()


REQUIRED_FLAGS = {
    Kind.PUBACK: (0, u16(1)),
    Kind.PUBREC: (0, u16(1)),
    Kind.PUBREL: (2, u16(1)),
    Kind.PUBCOMP: (0, u16(1)),
    Kind.SUBSCRIBE: (2, u16(1) + text("t") + b"\x00"),
    Kind.UNSUBSCRIBE: (2, u16(1) + text("t")),
    Kind.PINGREQ: (0, b""),
    Kind.DISCONNECT: (0, b""),
}


@pytest.mark.spec("MQTT-2.2.2-1@3.1.1")
@pytest.mark.spec("MQTT-2.2.2-2@3.1.1")
@pytest.mark.spec("MQTT-3.6.1-1@3.1.1")
@pytest.mark.spec("MQTT-3.8.1-1@3.1.1")
@pytest.mark.spec("MQTT-3.10.1-1@3.1.1")
@pytest.mark.spec("MQTT-3.14.1-1@3.1.1")
@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        pytest.param(kind, flags, id=f"{kind.name}-{flags:04b}")
        for kind, (required, _) in REQUIRED_FLAGS.items()
        for flags in range(16)
        if flags != required
    ],
)
def test_reserved_flags(clients: Clients, name: str, kind: Kind, flags: int) -> None:
    """The reserved bits of every packet type but PUBLISH; the will tells that none got through."""
    watcher = clients.join(f"{name}-watcher")
    watcher.subscribe(f"{name}/will")
    peer = clients.join(name, will=Will(topic=f"{name}/will", payload=b"gone"))
    peer.send(packet(kind << 4 | flags, REQUIRED_FLAGS[kind][1]))
    peer.expect_closed()
    watcher.receive_publish(f"{name}/will", b"gone")


@pytest.mark.parametrize("raw", ["e001", "e002", "e004", "e008", "e00f"])
def test_disconnect_with_reserved_flags_and_rest(clients: Clients, name: str, raw: str) -> None:
    """A DISCONNECT whose second byte announces bytes that never come ends by the next packet."""
    peer = clients.join(name)
    peer.send(bytes.fromhex(raw), V3.pingreq() * 8)
    peer.expect_closed()


@pytest.mark.spec("MQTT-3.3.1-4@3.1.1")
@pytest.mark.spec("MQTT-3.3.1-2@3.1.1")
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(0x36, id="qos-3"),
        pytest.param(0x37, id="qos-3-retain"),
        pytest.param(0x3E, id="qos-3-dup"),
        pytest.param(0x3F, id="qos-3-dup-retain"),
        pytest.param(0x38, id="qos-0-dup"),
        pytest.param(0x39, id="qos-0-dup-retain"),
    ],
)
def test_publish_flags(clients: Clients, name: str, first: int) -> None:
    watcher = clients.join(f"{name}-watcher")
    watcher.subscribe(name)
    peer = clients.join(name)
    peer.send(packet(first, text(name) + u16(1) + b"x"))
    peer.expect_closed()
    watcher.expect_nothing()


@pytest.mark.spec("MQTT-2.3.1-1@3.1.1")
@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(V3.publish("t", b"x", qos=1, packet_id=0), id="PUBLISH-1"),
        pytest.param(V3.publish("t", b"x", qos=2, packet_id=0), id="PUBLISH-2"),
        pytest.param(V3.subscribe(("t", 0), packet_id=0), id="SUBSCRIBE"),
        pytest.param(V3.unsubscribe("t", packet_id=0), id="UNSUBSCRIBE"),
        pytest.param(V3.puback(0), id="PUBACK"),
        pytest.param(V3.pubrec(0), id="PUBREC"),
        pytest.param(V3.pubrel(0), id="PUBREL"),
        pytest.param(V3.pubcomp(0), id="PUBCOMP"),
    ],
)
def test_packet_identifier_zero(clients: Clients, name: str, raw: bytes) -> None:
    peer = clients.join(name)
    peer.send(raw)
    peer.expect_closed()


@pytest.mark.spec("MQTT-4.8.0-1@3.1.1")
@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\x20\x02\x00\x00", id="CONNACK"),
        pytest.param(b"\x90\x03\x00\x01\x00", id="SUBACK"),
        pytest.param(b"\xb0\x02\x00\x01", id="UNSUBACK"),
        pytest.param(b"\xd0\x00", id="PINGRESP"),
        pytest.param(b"\x00\x00", id="type-0"),
        pytest.param(b"\xf0\x00", id="type-15"),
        pytest.param(b"\xf0\x02\x00\x00", id="AUTH-of-5.0"),
    ],
)
def test_packet_that_no_client_sends(clients: Clients, name: str, raw: bytes) -> None:
    peer = clients.join(name)
    peer.send(raw)
    peer.expect_closed()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(packet(0x40, u16(1) + b"\x00"), id="PUBACK-reason"),
        pytest.param(packet(0x50, u16(1) + b"\x00"), id="PUBREC-reason"),
        pytest.param(packet(0x62, u16(1) + b"\x00"), id="PUBREL-reason"),
        pytest.param(packet(0x70, u16(1) + b"\x00"), id="PUBCOMP-reason"),
        pytest.param(packet(0x40, u16(1) + b"\x00\x00"), id="PUBACK-properties"),
        pytest.param(packet(0x50, u16(1) + b"\x00\x00"), id="PUBREC-properties"),
        pytest.param(packet(0x62, u16(1) + b"\x00\x00"), id="PUBREL-properties"),
        pytest.param(packet(0x70, u16(1) + b"\x00\x00"), id="PUBCOMP-properties"),
        pytest.param(b"\xc0\x01\x00", id="PINGREQ"),
        pytest.param(b"\xe0\x01\x00", id="DISCONNECT"),
        pytest.param(b"\xe0\x02\x00\x00", id="DISCONNECT-of-5.0"),
    ],
)
def test_longer_than_its_type(clients: Clients, name: str, raw: bytes) -> None:
    """3.4.1, 3.5.1, 3.6.1, 3.7.1: remaining length 2; 3.12.1, 3.14.1: remaining length 0."""
    watcher = clients.join(f"{name}-watcher")
    watcher.subscribe(f"{name}/will")
    peer = clients.join(name, will=Will(topic=f"{name}/will", payload=b"gone"))
    peer.send(raw)
    peer.expect_closed()
    watcher.receive_publish(f"{name}/will", b"gone")


@pytest.mark.spec("MQTT-3.8.3-4@3.1.1")
@pytest.mark.parametrize("options", [0x03, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFC, 0xFF])
@pytest.mark.parametrize("place", ["only", "last"])
def test_requested_qos(clients: Clients, name: str, options: int, place: str) -> None:
    """QoS 3 or a reserved bit, which for 5.0 are options, makes the packet malformed."""
    good = [] if place == "only" else [("good", 0), ("better", 1)]
    peer = clients.join(name)
    peer.send(V3.subscribe(*good, (name, options)))
    peer.expect_closed()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\xff\xff\xff\xff\x7f", id="maximum"),
        pytest.param(b"\x80\x80\x80\x80\x00", id="zero"),
        pytest.param(b"\x80\x80\x80\x80\x01", id="small"),
        pytest.param(b"\xff\xff\xff\xff\xff", id="endless"),
    ],
)
@pytest.mark.parametrize("first", [0x30, 0x40, 0x82, 0xC0])
def test_remaining_length_of_five_bytes(
    clients: Clients, name: str, first: int, raw: bytes
) -> None:
    """2.2.3: at most four bytes."""
    peer = clients.join(name)
    peer.send(bytes([first]) + raw)
    peer.expect_closed()


@pytest.mark.parametrize("width", [2, 3, 4])
def test_padded_remaining_length(clients: Clients, name: str, width: int) -> None:
    """2.2.3 does not forbid a longer form than needed (5.0 does), so it is read."""
    raw = V3.publish(name, b"x", qos=1, packet_id=9)
    padding = bytes([raw[1] | 0x80]) + b"\x80" * (width - 2) + b"\x00"
    peer = clients.join(name)
    peer.subscribe(name)
    peer.send(raw[:1] + padding + raw[2:])
    peer.take(Kind.PUBACK, 9)
    peer.receive_publish(name, b"x", qos=1)


@pytest.mark.parametrize("chunked", [False, True])
def test_what_came_before_the_defect_counts(clients: Clients, name: str, chunked: bool) -> None:
    """Packets in front of a malformed one in the same segment are processed, none behind it."""
    watcher = clients.durable(f"{name}-watcher", f"{name}/#")
    peer = clients.join(name)
    good = V3.publish(f"{name}/before", b"1", qos=1, packet_id=1)
    bad = V3.publish(f"{name}/bad", b"2", qos=1, packet_id=0)
    behind = V3.publish(f"{name}/behind", b"3", qos=1, packet_id=3)
    if chunked:
        peer.send_slowly(good + bad + behind)
    else:
        peer.send(good + bad + behind)
    found = peer.receive()
    if found is not None:  # the close may overtake the commit, and with it the PUBACK
        assert found.raw == V3.puback(1)
        peer.expect_closed()
    watcher.receive_publish(f"{name}/before", b"1", qos=1)
    watcher.expect_nothing()


def test_defect_leaves_the_session(clients: Clients, name: str) -> None:
    """4.8: the connection ends, a session that is not clean stays."""
    peer = clients.durable(name, f"{name}/t")
    peer.send(b"\xf0\x00")
    peer.expect_closed()
    again = clients.resume(name)
    again.publish(f"{name}/t", b"x", qos=1)
    again.receive_publish(f"{name}/t", b"x", qos=1)


def test_defect_does_not_disturb_others(clients: Clients, name: str) -> None:
    """Every other connection goes on, even one in the middle of a packet."""
    other = clients.join(f"{name}-other")
    half = V3.publish(f"{name}/t", b"whole", qos=1, packet_id=7)
    other.send(half[:5])
    for raw in (b"\xff" * 6, b"\x30\x01\x00", b"\x82\x02\x00\x01", b"\x00\x00"):
        peer = clients.join(name)
        peer.send(raw, V3.pingreq() * 4)
        peer.expect_closed()
    other.send(half[5:])
    other.take(Kind.PUBACK, 7)
