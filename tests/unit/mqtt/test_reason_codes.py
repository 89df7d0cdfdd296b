"""The table of reason codes against the tables of the packets, written out again here."""

from __future__ import annotations

import pytest

from perdure.mqtt import packets as p
from perdure.mqtt import reason_codes as room

_DISCONNECT_BOTH = {0x00, 0x80, 0x81, 0x82, 0x83} | {0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99}
_DISCONNECT_SERVER = {0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F} | set(range(0x9A, 0xA3))
_PUB = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}

FROM_CLIENT = {
    p.PUBACK: _PUB,
    p.PUBREC: _PUB,
    p.PUBREL: {0x00, 0x92},
    p.PUBCOMP: {0x00, 0x92},
    p.DISCONNECT: _DISCONNECT_BOTH | {0x04},
    p.AUTH: {0x18, 0x19},
}
FROM_SERVER = {
    p.CONNACK: {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, *range(0x99, 0x9E), 0x9F},
    p.PUBACK: _PUB,
    p.PUBREC: _PUB,
    p.PUBREL: {0x00, 0x92},
    p.PUBCOMP: {0x00, 0x92},
    p.SUBACK: {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2},
    p.UNSUBACK: {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91},
    p.DISCONNECT: _DISCONNECT_BOTH | _DISCONNECT_SERVER,
    p.AUTH: {0x00, 0x18},
}


@pytest.mark.spec("MQTT-3.14.2-1")
@pytest.mark.spec("MQTT-3.15.2-1")
def test_which_packet_may_carry_which_code() -> None:
    for code in range(256):
        for kind in range(16):
            from_client = code in FROM_CLIENT.get(kind, ())
            from_server = code in FROM_SERVER.get(kind, ())
            assert ((code, kind) in room.FROM_CLIENT) == from_client, (hex(code), kind)
            assert ((code, kind) in room.FROM_SERVER) == from_server, (hex(code), kind)
            assert room.may_carry(code, kind) == (from_client or from_server)


def test_each_code_stands_once_and_has_a_constant() -> None:
    codes = [code for code, _, _ in room.TABLE]
    assert len(codes) == len(set(codes)) == 43
    constants = {
        value for name, value in vars(room).items() if name.isupper() and type(value) is int
    }
    assert constants == set(codes)


def test_names() -> None:
    assert room.name(0x8E) == "Session taken over"
    assert room.name(0) == "Success"
    assert room.name(0, p.DISCONNECT) == "Normal disconnection"
    assert room.name(0, p.SUBACK) == "Granted QoS 0"
    assert room.name(0xEE) == "Reason code 0xEE"
    assert room.RETURN_CODES_311[5] == "Not authorized"
