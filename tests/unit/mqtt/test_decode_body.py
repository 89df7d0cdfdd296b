"""Bodies that break a rule, packet by packet, and the reason code that the clause names."""

from __future__ import annotations

import pytest

from perdure.mqtt import packets as p
from perdure.mqtt.packets import Packet
from tests.unit.mqtt.feeding import decoded, refused, refused_connect
from tests.unit.mqtt.test_reason_codes import FROM_CLIENT, FROM_SERVER
from tests.unit.mqtt.vectors import VECTORS, Vector


def _framed(first: int, body: str) -> bytes:
    raw = bytes.fromhex(body)
    assert len(raw) < 128
    return bytes((first, len(raw))) + raw


@pytest.mark.parametrize(
    "vector",
    [
        pytest.param(v, id=v.name)
        for v in VECTORS
        if v.packet.kind not in (p.PUBLISH, p.PINGREQ, p.PINGRESP) and len(v.raw) < 128
    ],
)
def test_a_body_cut_off_anywhere_or_with_a_byte_too_many(vector: Vector) -> None:
    """Whatever is left out, the body is either another good packet or refused."""
    body = vector.raw[2:]
    for size in range(len(body)):
        raw = bytes((vector.raw[0], size)) + body[:size]
        if vector.packet.kind == p.CONNECT:
            assert refused_connect(raw) == 0x81
        elif _may_end_at(vector, size):
            decoded(raw, vector.version, from_client=vector.from_client)
        else:
            reason = refused(raw, vector.version, from_client=vector.from_client)
            assert reason in (0x81, 0x82, 0x84)
    longer = bytes((vector.raw[0], len(body) + 1)) + body + b"\x00"
    if vector.packet.kind == p.CONNECT:
        assert refused_connect(longer) == 0x81
    elif vector.version == 4 and vector.packet.kind == p.SUBACK:
        decoded(longer, 4, from_client=False)  # one return code more
    elif vector.version == 5 and vector.packet.kind in (p.SUBACK, p.UNSUBACK):
        decoded(longer, 5, from_client=False)
    elif len(body) < 4 and vector.version == 5 and p.PUBACK <= vector.packet.kind <= p.PUBCOMP:
        decoded(longer, 5, from_client=vector.from_client)  # a reason, or no properties
    elif len(body) < 2 and vector.version == 5 and vector.packet.kind == p.DISCONNECT:
        decoded(longer, 5, from_client=vector.from_client)
    elif longer == b"\xf0\x01\x00":
        assert refused(longer, from_client=False) == 0x82  # AUTH without a method
    else:
        assert refused(longer, vector.version, from_client=vector.from_client) == 0x81


def _may_end_at(vector: Vector, size: int) -> bool:
    """The shorter forms of 3.4.2.1, 3.14.2.1, and lists that may have fewer members."""
    kind, packet = vector.packet.kind, vector.packet
    if vector.version == 5 and p.PUBACK <= kind <= p.PUBCOMP:
        return size in (2, 3)
    if vector.version == 5 and kind == p.DISCONNECT:
        return size in (0, 1)
    if vector.version == 5 and kind == p.AUTH:
        return False
    members: list[int] = []
    at = len(vector.raw) - 2
    if isinstance(packet, p.Suback | p.Unsuback):
        members = [1] * len(packet.reasons)
    elif isinstance(packet, p.Subscribe):
        members = [3 + len(wanted.filter.encode()) for wanted in packet.filters]
    elif isinstance(packet, p.Unsubscribe):
        members = [2 + len(topic_filter.encode()) for topic_filter in packet.filters]
    for member in reversed(members[1:]):
        at -= member
        if at == size:
            return True
    return False


@pytest.mark.parametrize(
    ("version", "first", "body", "reason"),
    [
        pytest.param(4, 0x82, "0001", 0x82, marks=pytest.mark.spec("MQTT-3.8.3-3@3.1.1")),
        pytest.param(5, 0x82, "0001 00", 0x82, marks=pytest.mark.spec("MQTT-3.8.3-2")),
        pytest.param(
            4, 0x82, "0000 0001 61 00", 0x81, marks=pytest.mark.spec("MQTT-2.3.1-1@3.1.1")
        ),
        pytest.param(5, 0x82, "0000 00 0001 61 00", 0x81, marks=pytest.mark.spec("MQTT-2.2.1-3")),
        pytest.param(
            4, 0x82, "0001 0001 61 03", 0x81, marks=pytest.mark.spec("MQTT-3.8.3-4@3.1.1")
        ),
        pytest.param(
            4, 0x82, "0001 0001 61 04", 0x81, marks=pytest.mark.spec("MQTT-3.8.3-4@3.1.1")
        ),
        pytest.param(
            4, 0x82, "0001 0001 61 81", 0x81, marks=pytest.mark.spec("MQTT-3.8.3-4@3.1.1")
        ),
        (5, 0x82, "0001 00 0001 61 03", 0x82),
        (5, 0x82, "0001 00 0001 61 30", 0x82),
        pytest.param(5, 0x82, "0001 00 0001 61 40", 0x81, marks=pytest.mark.spec("MQTT-3.8.3-5")),
        pytest.param(5, 0x82, "0001 00 0001 61 80", 0x81, marks=pytest.mark.spec("MQTT-3.8.3-5")),
        pytest.param(
            5,
            0x82,
            "0001 00 000a 2473686172652f672f61 05",
            0x82,
            marks=pytest.mark.spec("MQTT-3.8.3-4"),
        ),
        pytest.param(5, 0x82, "0001 00 0000 00", 0x81, marks=pytest.mark.spec("MQTT-4.7.3-1")),
        pytest.param(
            4, 0x82, "0001 0001 61 00 0000 00", 0x81, marks=pytest.mark.spec("MQTT-4.7.3-1@3.1.1")
        ),
        pytest.param(5, 0x82, "0001 00 0001 00 00", 0x81, marks=pytest.mark.spec("MQTT-1.5.4-2")),
        pytest.param(4, 0xA2, "0001", 0x82, marks=pytest.mark.spec("MQTT-3.10.3-2@3.1.1")),
        pytest.param(5, 0xA2, "0001 00", 0x82, marks=pytest.mark.spec("MQTT-3.10.3-2")),
        pytest.param(5, 0xA2, "0000 00 0001 61", 0x81, marks=pytest.mark.spec("MQTT-2.2.1-3")),
        pytest.param(5, 0xA2, "0001 00 0000", 0x81, marks=pytest.mark.spec("MQTT-4.7.3-1")),
        pytest.param(5, 0xA2, "0001 00 0001 ff", 0x81, marks=pytest.mark.spec("MQTT-3.10.3-1")),
        (4, 0x40, "0000", 0x82),
        (5, 0x50, "0000 00", 0x82),
        (4, 0x62, "0001 00", 0x81),
        (4, 0xC0, "00", 0x81),
        (5, 0xC0, "00", 0x81),
        (4, 0xE0, "00", 0x81),
        (5, 0xE0, "00 03 1c 0000", 0x82),  # a server reference from a client
        pytest.param(5, 0xF0, "", 0x82, marks=pytest.mark.spec("MQTT-3.15.2-1")),
        (5, 0xF0, "18", 0x82),  # no authentication method
        (5, 0xF0, "18 03 16 0000", 0x82),
    ],
)
def test_bad_packets_of_a_client(version: int, first: int, body: str, reason: int) -> None:
    assert refused(_framed(first, body), version) == reason


@pytest.mark.parametrize(
    ("version", "first", "body", "reason"),
    [
        (4, 0x20, "02 00", 0x81),
        pytest.param(5, 0x20, "80 00 00", 0x81, marks=pytest.mark.spec("MQTT-3.2.2-1")),
        pytest.param(4, 0x20, "01 01", 0x82, marks=pytest.mark.spec("MQTT-3.2.2-4@3.1.1")),
        pytest.param(5, 0x20, "01 87 00", 0x82, marks=pytest.mark.spec("MQTT-3.2.2-6")),
        (4, 0x20, "00 06", 0x81),
        (5, 0x20, "00 00 03 16 0000", 0x82),
        pytest.param(4, 0x90, "0001 03", 0x81, marks=pytest.mark.spec("MQTT-3.9.3-2@3.1.1")),
        (4, 0x90, "0001", 0x81),
        (5, 0x90, "0001 00", 0x81),
        (5, 0xB0, "0001 00", 0x81),
        (5, 0x90, "0000 00 00", 0x82),
        (4, 0xB0, "0001 00", 0x81),
        (4, 0xD0, "00", 0x81),
        (4, 0xE0, "", 0x82),
        pytest.param(5, 0xE0, "00 05 11 00000001", 0x82, marks=pytest.mark.spec("MQTT-3.14.2-2")),
        (5, 0xF0, "18", 0x82),
    ],
)
def test_bad_packets_of_a_server(version: int, first: int, body: str, reason: int) -> None:
    assert refused(_framed(first, body), version, from_client=False) == reason


def _with_reason(kind: int, code: int) -> bytes:
    """The packet with this reason code and nothing else that could be wrong."""
    first = kind << 4 | (2 if kind == p.PUBREL else 0)
    if kind == p.CONNACK:
        return _framed(first, f"00 {code:02x} 00")
    if kind in (p.SUBACK, p.UNSUBACK):
        return _framed(first, f"0001 00 {code:02x}")
    if kind == p.DISCONNECT:
        return _framed(first, f"{code:02x}")
    if kind == p.AUTH:
        return _framed(first, f"{code:02x} 04 15 0001 6d")
    return _framed(first, f"0001 {code:02x}")


def _reason_of(packet: Packet) -> int:
    if isinstance(packet, p.Suback | p.Unsuback):
        return packet.reasons[0]
    assert isinstance(packet, p.Connack | p.Ack | p.Disconnect | p.Auth)
    return packet.reason


@pytest.mark.parametrize("from_client", [True, False])
def test_each_reason_code_in_each_packet(from_client: bool) -> None:
    for kind, allowed in (FROM_CLIENT if from_client else FROM_SERVER).items():
        for code in range(256):
            raw = _with_reason(kind, code)
            if code in allowed:
                (packet,) = decoded(raw, 5, from_client=from_client)
                assert _reason_of(packet) == code
            else:
                assert refused(raw, from_client=from_client) == 0x82


def test_an_acknowledgement_has_no_properties_or_some() -> None:
    for body in ("0001", "0001 00", "0001 00 00"):
        assert decoded(_framed(0x40, body), 5, from_client=True) == [p.Ack(p.PUBACK, 1)]
