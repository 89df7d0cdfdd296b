"""The bodies of all packets but PUBLISH and CONNECT: bytes to values, one function for each packet.

Called by ``decode`` with the bounds of one complete body. Invariant: each function consumes the
body to its last byte or raises ``MqttError`` with the reason code that the specification names.
"""

from __future__ import annotations

from typing import Final

from perdure.errors import MqttError
from perdure.mqtt import reason_codes
from perdure.mqtt.decode_header import check_end
from perdure.mqtt.errors import MalformedPacket, ProtocolViolation
from perdure.mqtt.packets import (
    AUTH,
    CONNACK,
    DISCONNECT,
    EMPTY,
    KIND_NAMES,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    Ack,
    Auth,
    Connack,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Suback,
    Subscribe,
    SubscribeFilter,
    Unsuback,
    Unsubscribe,
)
from perdure.mqtt.primitives import read_byte, read_name, read_uint16
from perdure.mqtt.properties import read_properties

_SUBACK_311: Final = frozenset((0x00, 0x01, 0x02, 0x80))


def read_body(
    kind: int,
    data: bytes,
    at: int,
    stop: int,
    *,
    version: int,
    from_client: bool,
    filters_max: int,
    properties_max: int,
) -> Packet:
    """A packet of any kind that its sender may send, but CONNECT and PUBLISH."""
    if PUBACK <= kind <= PUBCOMP:
        packet_id, at = _packet_id(data, at, stop, kind)
        if version != V5:
            check_end(at, stop, kind)
        reason, properties = _reason_and_properties(
            kind, data, at, stop, from_client=from_client, properties_max=properties_max
        )
        return Ack(kind, packet_id, reason, None if properties is EMPTY else properties)
    if kind == SUBSCRIBE:
        return _read_subscribe(data, at, stop, version, filters_max, properties_max)
    if kind == UNSUBSCRIBE:
        return _read_unsubscribe(data, at, stop, version, filters_max, properties_max)
    if kind == CONNACK:
        return _read_connack(data, at, stop, version)
    if kind in (SUBACK, UNSUBACK):
        return _read_suback(kind, data, at, stop, version)
    if kind == DISCONNECT:
        if version != V5 and not from_client:
            raise ProtocolViolation("a server of 3.1.1 does not send DISCONNECT")
        return _read_disconnect(
            data, at, stop, version, from_client=from_client, properties_max=properties_max
        )
    if kind == AUTH:
        return _read_auth(data, at, stop, from_client=from_client, properties_max=properties_max)
    check_end(at, stop, kind)
    return Pingreq() if kind == PINGREQ else Pingresp()


def _read_subscribe(
    data: bytes, at: int, stop: int, version: int, filters_max: int, properties_max: int
) -> Subscribe:
    packet_id, at = _packet_id(data, at, stop, SUBSCRIBE)
    properties = EMPTY
    if version == V5:
        properties, at = read_properties(data, at, stop, SUBSCRIBE, properties_max)
    if at == stop:
        raise ProtocolViolation("SUBSCRIBE without a topic filter")  # [MQTT-3.8.3-2]
    filters: list[SubscribeFilter] = []
    while at < stop:
        if len(filters) >= filters_max:
            raise _too_many_filters(SUBSCRIBE, filters_max)
        topic_filter, at = read_name(data, at, stop)
        options, at = read_byte(data, at, stop)
        _check_options(topic_filter, options, version)
        filters.append(
            SubscribeFilter(
                topic_filter,
                options & 3,
                bool(options & 0x04),
                bool(options & 0x08),
                options >> 4 & 3,
            )
        )
    return Subscribe(packet_id, filters, properties)


def _check_options(topic_filter: str, options: int, version: int) -> None:
    if not topic_filter:
        raise MalformedPacket("a topic filter is empty")  # [MQTT-4.7.3-1]
    if version != V5:
        if options > 2:
            # 3.1.1 [MQTT-3.8.3-4]: reserved bits, or a QoS that there is not.
            raise MalformedPacket("the requested QoS is not 0, 1 or 2")
        return
    if options & 0xC0:
        raise MalformedPacket("reserved subscription options are set")  # [MQTT-3.8.3-5]
    if options & 3 == 3:
        raise ProtocolViolation("the maximum QoS is 3")  # 3.8.3.1
    if options & 0x30 == 0x30:
        raise ProtocolViolation("the retain handling is 3")  # 3.8.3.1
    if options & 0x04 and topic_filter.startswith("$share/"):
        raise ProtocolViolation("no local on a shared subscription")  # [MQTT-3.8.3-4]


def _read_unsubscribe(
    data: bytes, at: int, stop: int, version: int, filters_max: int, properties_max: int
) -> Unsubscribe:
    packet_id, at = _packet_id(data, at, stop, UNSUBSCRIBE)
    properties = EMPTY
    if version == V5:
        properties, at = read_properties(data, at, stop, UNSUBSCRIBE, properties_max)
    if at == stop:
        raise ProtocolViolation("UNSUBSCRIBE without a topic filter")  # [MQTT-3.10.3-2]
    filters: list[str] = []
    while at < stop:
        if len(filters) >= filters_max:
            raise _too_many_filters(UNSUBSCRIBE, filters_max)
        topic_filter, at = read_name(data, at, stop)
        if not topic_filter:
            raise MalformedPacket("a topic filter is empty")  # [MQTT-4.7.3-1]
        filters.append(topic_filter)
    return Unsubscribe(packet_id, filters, properties)


def _too_many_filters(kind: int, filters_max: int) -> MqttError:
    """A limit of ours, which a larger packet may exceed by far: it is not read to its end."""
    return MqttError(
        reason_codes.QUOTA_EXCEEDED, f"{KIND_NAMES[kind]} has more than {filters_max} topic filters"
    )


def _read_suback(kind: int, data: bytes, at: int, stop: int, version: int) -> Suback | Unsuback:
    packet_id, at = _packet_id(data, at, stop, kind)
    if version != V5:
        if kind == UNSUBACK:
            check_end(at, stop, kind)
            return Unsuback(packet_id, [])
        reasons = list(data[at:stop])
        if not reasons or not _SUBACK_311.issuperset(reasons):
            raise MalformedPacket("SUBACK has a return code that there is not")  # [MQTT-3.9.3-2]
        return Suback(packet_id, reasons)
    properties, at = read_properties(data, at, stop, kind)
    reasons = list(data[at:stop])
    if not reasons:
        raise MalformedPacket(f"{KIND_NAMES[kind]} without a reason code")
    for reason in reasons:
        _check_reason(reason, kind, from_client=False)
    if kind == SUBACK:
        return Suback(packet_id, reasons, properties)
    return Unsuback(packet_id, reasons, properties)


def _read_connack(data: bytes, at: int, stop: int, version: int) -> Connack:
    if version == V5 and data[at:stop] == b"\x00\x01":
        # A server of 3.1.1 alone refuses in its own format, which has no properties.
        raise MqttError(
            reason_codes.UNSUPPORTED_PROTOCOL_VERSION, "the server does not speak MQTT 5.0"
        )
    flags, at = read_byte(data, at, stop)
    reason, at = read_byte(data, at, stop)
    if flags > 1:
        raise MalformedPacket("reserved flags of CONNACK are set")  # [MQTT-3.2.2-1]
    properties = EMPTY
    if version == V5:
        _check_reason(reason, CONNACK, from_client=False)
        properties, at = read_properties(data, at, stop, CONNACK)
    elif reason >= len(reason_codes.RETURN_CODES_311):
        raise MalformedPacket("CONNACK has a return code that there is not")
    check_end(at, stop, CONNACK)
    if flags and reason:
        # [MQTT-3.2.2-6], 3.1.1 [MQTT-3.2.2-4]
        raise ProtocolViolation("CONNACK refuses and has a session present")
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise ProtocolViolation("authentication data without a method")
    return Connack(flags == 1, reason, properties)


def _read_disconnect(
    data: bytes, at: int, stop: int, version: int, *, from_client: bool, properties_max: int
) -> Disconnect:
    if version != V5:
        check_end(at, stop, DISCONNECT)
    if at == stop:
        return Disconnect()
    reason, properties = _reason_and_properties(
        DISCONNECT, data, at, stop, from_client=from_client, properties_max=properties_max
    )
    if from_client and properties.server_reference is not None:
        raise ProtocolViolation("a client's DISCONNECT has a server reference")  # 3.14.2.2.5
    if not from_client and properties.session_expiry_interval is not None:
        # [MQTT-3.14.2-2]
        raise ProtocolViolation("a server's DISCONNECT has a session expiry interval")
    return Disconnect(reason, properties)


def _read_auth(data: bytes, at: int, stop: int, *, from_client: bool, properties_max: int) -> Auth:
    if at == stop:
        # 3.15.2.1: both may be left out if the reason is success, which only a server says.
        _check_reason(reason_codes.SUCCESS, AUTH, from_client=from_client)
        return Auth()
    reason, properties = _reason_and_properties(
        AUTH, data, at, stop, from_client=from_client, properties_max=properties_max
    )
    if properties.authentication_method is None:
        raise ProtocolViolation("AUTH without an authentication method")  # 3.15.2.2.2
    return Auth(reason, properties)


def _reason_and_properties(
    kind: int, data: bytes, at: int, stop: int, *, from_client: bool, properties_max: int
) -> tuple[int, Properties]:
    """A reason code and, if anything follows it, the properties."""
    reason, at = read_byte(data, at, stop)
    _check_reason(reason, kind, from_client=from_client)
    if at == stop:
        return reason, EMPTY
    properties, at = read_properties(data, at, stop, kind, properties_max)
    check_end(at, stop, kind)
    return reason, properties


def _check_reason(reason: int, kind: int, *, from_client: bool) -> None:
    allowed = reason_codes.FROM_CLIENT if from_client else reason_codes.FROM_SERVER
    if (reason, kind) not in allowed:
        raise ProtocolViolation(f"{KIND_NAMES[kind]} has the reason code 0x{reason:02X}")


def _packet_id(data: bytes, at: int, stop: int, kind: int) -> tuple[int, int]:
    packet_id, at = read_uint16(data, at, stop)
    if packet_id == 0:
        # [MQTT-2.2.1-3], 3.1.1 [MQTT-2.3.1-1]. No clause says which error it is; like other
        # brokers we take it for malformed in a request and for a violation in an answer.
        message = f"{KIND_NAMES[kind]} has the packet identifier 0"
        if kind in (SUBSCRIBE, UNSUBSCRIBE):
            raise MalformedPacket(message)
        raise ProtocolViolation(message)
    return packet_id, at
