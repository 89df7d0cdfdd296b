"""Packets and their bytes, written out by hand from the specification, for both directions."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from perdure.model import Will
from perdure.mqtt import packets as p
from perdure.mqtt.packets import Packet, Properties, SubscribeFilter

CLIENT = True
SERVER = False


class Vector(NamedTuple):
    """A packet, who sends it, in which version, and how it looks on the wire."""

    name: str
    statement: pytest.MarkDecorator
    version: int
    from_client: bool
    packet: Packet
    raw: bytes


def _hex(text: str) -> bytes:
    return bytes.fromhex(text)


_USER = Properties(user_properties=(("k", "v"), ("k", "w")))
_USER_HEX = "26 0001 6b 0001 76 26 0001 6b 0001 77"  # 14 bytes

_CONNACK_HEX = (
    "20 38 01 00 35"
    "11 00000005 12 0001 69 13 001e 15 0001 4d 16 0001 64 1a 0001 72 1c 0001 73"
    "1f 0001 74 21 0001 22 0002 24 01 25 00 27 00000064 28 01 29 01 2a 00"
)
_HOP_AND_FORWARDED = (
    "32 24 0001 61 0009 1d 02 0000003c 23 0003"
    "01 01 08 0001 72 09 0001 ff 26 0001 6b 0001 76 03 0001 74 78"
)

_V311 = (
    (
        "connect",
        pytest.mark.spec("MQTT-3.1.0-1@3.1.1"),
        CLIENT,
        p.Connect(4, True, 60, "c"),
        "10 0d 0004 4d515454 04 02 003c 0001 63",
    ),
    (
        "connect with everything",
        pytest.mark.spec("MQTT-3.1.3-1@3.1.1"),
        CLIENT,
        p.Connect(4, False, 10, "c", "u", b"p\x00", Will("w/t", b"bye", 1, True)),
        "10 1e 0004 4d515454 04 ec 000a 0001 63 0003 772f74 0003 627965 0001 75 0002 7000",
    ),
    (
        "connect without client id",
        pytest.mark.spec("MQTT-3.1.3-6@3.1.1"),
        CLIENT,
        p.Connect(4, True, 0, ""),
        "10 0c 0004 4d515454 04 02 0000 0000",
    ),
    ("connack", pytest.mark.spec("MQTT-3.2.2-1@3.1.1"), SERVER, p.Connack(True, 0), "20 02 01 00"),
    (
        "connack refused",
        pytest.mark.spec("MQTT-3.2.2-4@3.1.1"),
        SERVER,
        p.Connack(False, 5),
        "20 02 00 05",
    ),
    (
        "publish",
        pytest.mark.spec("MQTT-3.3.2-1@3.1.1"),
        CLIENT,
        p.Publish("a/b", b"hi"),
        "30 07 0003 612f62 6869",
    ),
    (
        "publish retained and empty",
        pytest.mark.spec("MQTT-3.3.1-10@3.1.1"),
        CLIENT,
        p.Publish("a", b"", 0, True),
        "31 03 0001 61",
    ),
    (
        "publish qos 1 dup",
        pytest.mark.spec("MQTT-3.3.1-1@3.1.1"),
        SERVER,
        p.Publish("a", b"x", 1, False, True, 0x1234),
        "3a 06 0001 61 1234 78",
    ),
    (
        "publish qos 2 retained",
        pytest.mark.spec("MQTT-2.3.1-1@3.1.1"),
        CLIENT,
        p.Publish("a", b"x", 2, True, False, 65535),
        "35 06 0001 61 ffff 78",
    ),
    ("puback", pytest.mark.spec("MQTT-4.3.2-2@3.1.1"), CLIENT, p.Ack(p.PUBACK, 1), "40 02 0001"),
    ("pubrec", pytest.mark.spec("MQTT-4.3.3-2@3.1.1"), SERVER, p.Ack(p.PUBREC, 2), "50 02 0002"),
    ("pubrel", pytest.mark.spec("MQTT-3.6.1-1@3.1.1"), CLIENT, p.Ack(p.PUBREL, 3), "62 02 0003"),
    ("pubcomp", pytest.mark.spec("MQTT-4.3.3-2@3.1.1"), SERVER, p.Ack(p.PUBCOMP, 4), "70 02 0004"),
    (
        "subscribe",
        pytest.mark.spec("MQTT-3.8.3-3@3.1.1"),
        CLIENT,
        p.Subscribe(10, [SubscribeFilter("a/#", 1), SubscribeFilter("+", 2)]),
        "82 0c 000a 0003 612f23 01 0001 2b 02",
    ),
    (
        "suback",
        pytest.mark.spec("MQTT-3.9.3-2@3.1.1"),
        SERVER,
        p.Suback(10, [1, 2, 0, 128]),
        "90 06 000a 01020080",
    ),
    (
        "unsubscribe",
        pytest.mark.spec("MQTT-3.10.3-2@3.1.1"),
        CLIENT,
        p.Unsubscribe(11, ["a", "b"]),
        "a2 08 000b 0001 61 0001 62",
    ),
    ("unsuback", pytest.mark.spec("MQTT-3.10.4-4@3.1.1"), SERVER, p.Unsuback(11, []), "b0 02 000b"),
    ("pingreq", pytest.mark.spec("MQTT-3.12.4-1@3.1.1"), CLIENT, p.Pingreq(), "c0 00"),
    ("pingresp", pytest.mark.spec("MQTT-3.12.4-1@3.1.1"), SERVER, p.Pingresp(), "d0 00"),
    ("disconnect", pytest.mark.spec("MQTT-3.14.4-1@3.1.1"), CLIENT, p.Disconnect(), "e0 00"),
)

_V5 = (
    (
        "connect",
        pytest.mark.spec("MQTT-3.1.2-1"),
        CLIENT,
        p.Connect(5, True, 60, "c"),
        "10 0e 0004 4d515454 05 02 003c 00 0001 63",
    ),
    (
        "connect password without user name",
        pytest.mark.spec("MQTT-3.1.2-19"),
        CLIENT,
        p.Connect(5, False, 0, "", None, b"t"),
        "10 10 0004 4d515454 05 40 0000 00 0000 0001 74",
    ),
    (
        "connect with everything",
        pytest.mark.spec("MQTT-3.1.3-1"),
        CLIENT,
        p.Connect(
            5,
            True,
            1,
            "c",
            "u",
            b"p",
            Will("w", b"x", 2, False, _hex("0101 03 0001 74"), 7, 9),
            Properties(
                session_expiry_interval=0xFFFFFFFF,
                authentication_method="M",
                authentication_data=b"\x00",
                request_problem_information=0,
                request_response_information=1,
                receive_maximum=20,
                topic_alias_maximum=10,
                maximum_packet_size=0x01020304,
                user_properties=(("k", "v"), ("k", "w")),
            ),
        ),
        "10 55"
        "0004 4d515454 05 d6 0001"
        "2a 11 ffffffff 15 0001 4d 16 0001 00 17 00 19 01 21 0014 22 000a"
        + _USER_HEX
        + "27 01020304"
        "0001 63"
        "10 02 00000009 18 00000007 01 01 03 0001 74"
        "0001 77 0001 78 0001 75 0001 70",
    ),
    ("connack", pytest.mark.spec("MQTT-3.2.2-6"), SERVER, p.Connack(False, 0), "20 03 00 00 00"),
    (
        "connack with everything",
        pytest.mark.spec("MQTT-3.2.2-8"),
        SERVER,
        p.Connack(
            True,
            0,
            Properties(
                session_expiry_interval=5,
                assigned_client_identifier="i",
                server_keep_alive=30,
                authentication_method="M",
                authentication_data=b"d",
                response_information="r",
                server_reference="s",
                reason_string="t",
                receive_maximum=1,
                topic_alias_maximum=2,
                maximum_qos=1,
                retain_available=0,
                maximum_packet_size=100,
                wildcard_subscription_available=1,
                subscription_identifier_available=1,
                shared_subscription_available=0,
            ),
        ),
        _CONNACK_HEX,
    ),
    (
        "connack refused",
        pytest.mark.spec("MQTT-3.2.2-6"),
        SERVER,
        p.Connack(False, 0x87, Properties(reason_string="no")),
        "20 08 00 87 05 1f 0002 6e6f",
    ),
    (
        "publish",
        pytest.mark.spec("MQTT-3.3.2-1"),
        CLIENT,
        p.Publish("a", b"x"),
        "30 05 0001 61 00 78",
    ),
    (
        "publish with properties",
        pytest.mark.spec("MQTT-3.3.2-17"),
        CLIENT,
        p.Publish(
            "a",
            b"x",
            1,
            False,
            False,
            9,
            3,
            60,
            _hex("01 01 08 0001 72 09 0001 ff 26 0001 6b 0001 76 03 0001 74"),
        ),
        _HOP_AND_FORWARDED,
    ),
    (
        "publish with an alias alone",
        pytest.mark.spec("MQTT-3.3.2-12"),
        CLIENT,
        p.Publish("", b"x", 0, topic_alias=65535),
        "30 07 0000 03 23 ffff 78",
    ),
    (
        "publish with identifiers",
        pytest.mark.spec("MQTT-3.3.4-4"),
        SERVER,
        p.Publish("a", b"", 0, identifiers=(1, 268435455)),
        "30 0b 0001 61 07 0b 01 0b ffffff7f",
    ),
    ("puback", pytest.mark.spec("MQTT-3.4.2-1"), CLIENT, p.Ack(p.PUBACK, 1), "40 02 0001"),
    (
        "puback with reason",
        pytest.mark.spec("MQTT-3.4.2-1"),
        SERVER,
        p.Ack(p.PUBACK, 1, 0x10),
        "40 03 0001 10",
    ),
    (
        "pubrec with properties",
        pytest.mark.spec("MQTT-3.5.2-1"),
        CLIENT,
        p.Ack(p.PUBREC, 1, 0x80, Properties(reason_string="s")),
        "50 08 0001 80 04 1f 0001 73",
    ),
    (
        "pubrel with properties",
        pytest.mark.spec("MQTT-3.6.2-1"),
        CLIENT,
        p.Ack(p.PUBREL, 1, 0, _USER),
        "62 12 0001 00 0e" + _USER_HEX,
    ),
    (
        "pubcomp not found",
        pytest.mark.spec("MQTT-3.7.2-1"),
        SERVER,
        p.Ack(p.PUBCOMP, 1, 0x92),
        "70 03 0001 92",
    ),
    (
        "subscribe",
        pytest.mark.spec("MQTT-3.8.3-1"),
        CLIENT,
        p.Subscribe(
            10,
            [
                SubscribeFilter("a", 2, True, True, 2),
                SubscribeFilter("$share/g/b", 1, False, False, 1),
            ],
            Properties(subscription_identifiers=(128,)),
        ),
        "82 17 000a 03 0b 8001 0001 61 2e 000a 24736861 72652f672f62 11",
    ),
    (
        "suback",
        pytest.mark.spec("MQTT-3.9.3-2"),
        SERVER,
        p.Suback(10, [0, 1, 2, 0x8F], Properties(reason_string="s")),
        "90 0b 000a 04 1f 0001 73 00 01 02 8f",
    ),
    (
        "unsubscribe",
        pytest.mark.spec("MQTT-3.10.3-1"),
        CLIENT,
        p.Unsubscribe(11, ["a"], _USER),
        "a2 14 000b 0e" + _USER_HEX + "0001 61",
    ),
    (
        "unsuback",
        pytest.mark.spec("MQTT-3.11.3-2"),
        SERVER,
        p.Unsuback(11, [0, 0x11]),
        "b0 05 000b 00 00 11",
    ),
    ("pingreq", pytest.mark.spec("MQTT-3.12.4-1"), CLIENT, p.Pingreq(), "c0 00"),
    ("pingresp", pytest.mark.spec("MQTT-3.12.4-1"), SERVER, p.Pingresp(), "d0 00"),
    ("disconnect", pytest.mark.spec("MQTT-3.14.2-1"), CLIENT, p.Disconnect(), "e0 00"),
    (
        "disconnect with will",
        pytest.mark.spec("MQTT-3.14.2-1"),
        CLIENT,
        p.Disconnect(4),
        "e0 01 04",
    ),
    (
        "disconnect with expiry",
        pytest.mark.spec("MQTT-3.14.2-1"),
        CLIENT,
        p.Disconnect(0, Properties(session_expiry_interval=1)),
        "e0 07 00 05 11 00000001",
    ),
    (
        "disconnect from the server",
        pytest.mark.spec("MQTT-3.14.2-1"),
        SERVER,
        p.Disconnect(0x9C, Properties(server_reference="s", reason_string="r")),
        "e0 0a 9c 08 1c 0001 73 1f 0001 72",
    ),
    ("auth success", pytest.mark.spec("MQTT-3.15.2-1"), SERVER, p.Auth(), "f0 00"),
    (
        "auth continue",
        pytest.mark.spec("MQTT-3.15.2-1"),
        CLIENT,
        p.Auth(0x18, Properties(authentication_method="M", authentication_data=b"d")),
        "f0 0a 18 08 15 0001 4d 16 0001 64",
    ),
)

VECTORS: list[Vector] = [
    Vector(f"v{version} {name}", statement, version, from_client, packet, _hex(raw))
    for version, rows in ((4, _V311), (5, _V5))
    for name, statement, from_client, packet, raw in rows
]
