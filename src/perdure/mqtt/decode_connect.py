"""The body of CONNECT: bytes to a value.

Invariant: the body is consumed to its last byte, or ``MqttError`` is raised with the reason code
that the specification names.
"""

from __future__ import annotations

from typing import Final

from perdure.errors import MqttError
from perdure.model import Will
from perdure.mqtt import reason_codes
from perdure.mqtt.decode_header import check_end
from perdure.mqtt.errors import MalformedPacket, ProtocolViolation
from perdure.mqtt.packets import CONNECT, EMPTY, V5, V311, Connect
from perdure.mqtt.primitives import name_of, read_binary, read_byte, read_name, read_uint16, text_of
from perdure.mqtt.properties import (
    WILL,
    check_topic_name,
    read_length,
    read_message_properties,
    read_properties,
)

LEVEL_END: Final = 7
"""Bytes of a CONNECT's body up to its protocol level, its name being MQTT."""


def read_protocol(data: bytes, at: int, stop: int) -> tuple[bytes, int, int]:
    """Protocol name and level of CONNECT, and the position after them."""
    name, at = read_binary(data, at, stop)
    level, at = read_byte(data, at, stop)
    return name, level, at


def named_level(data: bytes, at: int) -> int:
    """The level that a CONNECT names whose body begins there.

    Returns:
        4 or 5, 0 for what is not spoken here, -1 if more bytes are needed.
    """
    if len(data) - at < LEVEL_END:
        return -1
    level = data[at + LEVEL_END - 1]
    return level if data[at : at + 6] == b"\x00\x04MQTT" and level in (V311, V5) else 0


def is_mqtt_31(name: bytes, level: int) -> bool:
    """Whether it is MQTT 3.1: its clients know return code 1 of 3.1.1, so it is no stranger."""
    # A bridge sets the upper bit.
    return name == b"MQIsdp" and level & 0x7F == 3


def check_protocol(name: bytes, level: int) -> None:
    """The protocol is one that is spoken here, by name and level."""
    if is_mqtt_31(name, level):
        raise MqttError(reason_codes.UNSUPPORTED_PROTOCOL_VERSION, "MQTT 3.1 is not spoken here")
    if name != b"MQTT":
        raise MqttError(reason_codes.UNSUPPORTED_PROTOCOL_VERSION, "the protocol name is not MQTT")
    if level not in (V311, V5):
        # [MQTT-3.1.2-2]
        raise MqttError(
            reason_codes.UNSUPPORTED_PROTOCOL_VERSION,
            f"the protocol level {level} is not supported",
        )


def read_connect(data: bytes, at: int, stop: int, *, protocol: int, properties_max: int) -> Connect:
    """CONNECT, from the connect flags on."""
    flags, at = read_byte(data, at, stop)
    _check_connect_flags(flags, protocol)
    keep_alive, at = read_uint16(data, at, stop)
    properties = EMPTY
    if protocol == V5:
        properties, at = read_properties(data, at, stop, CONNECT, properties_max)
        if properties.authentication_data is not None and properties.authentication_method is None:
            raise ProtocolViolation("authentication data without a method")  # 3.1.2.11.10
    client_id, at = _read_client_id(data, at, stop)
    will: Will | None = None
    if flags & 0x04:
        will, at = _read_will(data, at, stop, flags, protocol, properties_max)
    username: str | None = None
    if flags & 0x80:
        username, at = read_name(data, at, stop)
    password: bytes | None = None
    if flags & 0x40:
        password, at = read_binary(data, at, stop)
    check_end(at, stop, CONNECT)
    return Connect(
        protocol, bool(flags & 0x02), keep_alive, client_id, username, password, will, properties
    )


def _check_connect_flags(flags: int, protocol: int) -> None:
    if flags & 0x01:
        raise MalformedPacket("the reserved flag of CONNECT is set")  # [MQTT-3.1.2-3]
    if flags & 0x18 == 0x18:
        raise MalformedPacket("the will has QoS 3")  # [MQTT-3.1.2-12]
    if not flags & 0x04 and flags & 0x38:
        # [MQTT-3.1.2-11], [MQTT-3.1.2-13]
        raise MalformedPacket("CONNECT has will QoS or will retain without a will")
    if protocol != V5 and flags & 0xC0 == 0x40:
        raise MalformedPacket("a password without a user name")  # 3.1.1 [MQTT-3.1.2-22]


def _read_client_id(data: bytes, at: int, stop: int) -> tuple[str, int]:
    """The client identifier; one that is text and that we do not accept is 0x85 (3.1.3.1)."""
    raw, at = read_binary(data, at, stop)
    text_of(raw)
    try:
        return name_of(raw), at
    except MalformedPacket as error:
        raise MqttError(reason_codes.CLIENT_IDENTIFIER_NOT_VALID, error.message) from None


def _read_will(
    data: bytes, at: int, stop: int, flags: int, protocol: int, properties_max: int
) -> tuple[Will, int]:
    forward = b""
    delay_s = 0
    expiry_s: int | None = None
    if protocol == V5:
        at, end = read_length(data, at, stop)
        found = read_message_properties(data, at, end, WILL, properties_max)
        at = end
        forward = found.forward
        delay_s = found.delay_s
        expiry_s = found.expiry_s if found.expiry_s >= 0 else None
    topic, at = read_name(data, at, stop)
    check_topic_name(topic, "will topic")
    payload, at = read_binary(data, at, stop)
    qos = flags >> 3 & 3
    return Will(topic, payload, qos, bool(flags & 0x20), forward, delay_s, expiry_s), at
