"""The property table of MQTT 5.0 (section 2.2.2.2), and the reader and writer that it drives.

One row for each property says its identifier, its type and the packets that may carry it. A
property that is not in the table, stands in the wrong packet or has ill-typed bytes is malformed
(section 2.2.2.2); one that comes twice or has a forbidden value is a protocol error. PUBLISH and
the will, whose properties travel on to other clients, have a reader of their own that keeps the
forwarded ones as bytes.
"""

from __future__ import annotations

from typing import Final, final

from perdure.errors import MqttError, UsageError
from perdure.mqtt import packets as p
from perdure.mqtt.errors import MalformedPacket, ProtocolViolation
from perdure.mqtt.packets import EMPTY, Properties
from perdure.mqtt.primitives import (
    binary,
    read_binary,
    read_text,
    read_uint16,
    read_uint32,
    read_varint,
    text,
    uint16,
    uint32,
    varint,
)
from perdure.mqtt.reason_codes import QUOTA_EXCEEDED, TOPIC_ALIAS_INVALID

WILL: Final = 0
"""Stands for the will properties inside CONNECT, which have their own column in the table."""

# Types of section 2.2.2.2; a flag is a byte that may be 0 or 1 only.
FLAG: Final = 0
UINT16: Final = 1
UINT32: Final = 2
VARINT: Final = 3
BINARY: Final = 4
TEXT: Final = 5
TEXT_PAIR: Final = 6

PAYLOAD_FORMAT_INDICATOR: Final = 0x01
MESSAGE_EXPIRY_INTERVAL: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
SUBSCRIPTION_IDENTIFIER: Final = 0x0B
WILL_DELAY_INTERVAL: Final = 0x18
TOPIC_ALIAS: Final = 0x23
USER_PROPERTY: Final = 0x26

PROPERTIES_UNBOUNDED: Final = 1 << 40
"""More properties than a packet can have."""


@final
class PropertySpec:
    """One row of the table.

    Attributes:
        id: identifier on the wire.
        name: attribute of ``Properties``.
        type: one of FLAG to TEXT_PAIR.
        kinds: packets that may carry it; WILL for the will.
        repeatable: packets in which it may come more than once.
        nonzero: zero is a protocol error.
    """

    __slots__ = ("id", "kinds", "name", "nonzero", "repeatable", "type")

    def __init__(
        self,
        id: int,  # noqa: A002 - the specification's word
        name: str,
        type: int,  # noqa: A002 - the specification's word
        kinds: tuple[int, ...],
        *,
        repeatable: tuple[int, ...] = (),
        nonzero: bool = False,
    ) -> None:
        self.id: int = id
        self.name: str = name
        self.type: int = type
        self.kinds: frozenset[int] = frozenset(kinds)
        self.repeatable: frozenset[int] = frozenset(repeatable)
        self.nonzero: bool = nonzero


_MESSAGE: Final = (p.PUBLISH, WILL)
_REASONED: Final = (
    p.CONNACK,
    p.PUBACK,
    p.PUBREC,
    p.PUBREL,
    p.PUBCOMP,
    p.SUBACK,
    p.UNSUBACK,
    p.DISCONNECT,
    p.AUTH,
)
_ALL: Final = (p.CONNECT, p.PUBLISH, WILL, p.SUBSCRIBE, p.UNSUBSCRIBE, *_REASONED)
_AUTHENTICATED: Final = (p.CONNECT, p.CONNACK, p.AUTH)
_LIMITED: Final = (p.CONNECT, p.CONNACK)

TABLE: Final[tuple[PropertySpec, ...]] = (
    PropertySpec(0x01, "payload_format_indicator", FLAG, _MESSAGE),
    PropertySpec(0x02, "message_expiry_interval", UINT32, _MESSAGE),
    PropertySpec(0x03, "content_type", TEXT, _MESSAGE),
    PropertySpec(0x08, "response_topic", TEXT, _MESSAGE),
    PropertySpec(0x09, "correlation_data", BINARY, _MESSAGE),
    PropertySpec(
        0x0B,
        "subscription_identifiers",
        VARINT,
        (p.PUBLISH, p.SUBSCRIBE),
        repeatable=(p.PUBLISH,),  # not in SUBSCRIBE: 3.8.2.1.2
        nonzero=True,
    ),
    PropertySpec(0x11, "session_expiry_interval", UINT32, (p.CONNECT, p.CONNACK, p.DISCONNECT)),
    PropertySpec(0x12, "assigned_client_identifier", TEXT, (p.CONNACK,)),
    PropertySpec(0x13, "server_keep_alive", UINT16, (p.CONNACK,)),
    PropertySpec(0x15, "authentication_method", TEXT, _AUTHENTICATED),
    PropertySpec(0x16, "authentication_data", BINARY, _AUTHENTICATED),
    PropertySpec(0x17, "request_problem_information", FLAG, (p.CONNECT,)),
    PropertySpec(0x18, "will_delay_interval", UINT32, (WILL,)),
    PropertySpec(0x19, "request_response_information", FLAG, (p.CONNECT,)),
    PropertySpec(0x1A, "response_information", TEXT, (p.CONNACK,)),
    PropertySpec(0x1C, "server_reference", TEXT, (p.CONNACK, p.DISCONNECT)),
    PropertySpec(0x1F, "reason_string", TEXT, _REASONED),
    PropertySpec(0x21, "receive_maximum", UINT16, _LIMITED, nonzero=True),
    PropertySpec(0x22, "topic_alias_maximum", UINT16, _LIMITED),
    PropertySpec(0x23, "topic_alias", UINT16, (p.PUBLISH,), nonzero=True),
    PropertySpec(0x24, "maximum_qos", FLAG, (p.CONNACK,)),
    PropertySpec(0x25, "retain_available", FLAG, (p.CONNACK,)),
    PropertySpec(0x26, "user_properties", TEXT_PAIR, _ALL, repeatable=_ALL),
    PropertySpec(0x27, "maximum_packet_size", UINT32, _LIMITED, nonzero=True),
    PropertySpec(0x28, "wildcard_subscription_available", FLAG, (p.CONNACK,)),
    PropertySpec(0x29, "subscription_identifier_available", FLAG, (p.CONNACK,)),
    PropertySpec(0x2A, "shared_subscription_available", FLAG, (p.CONNACK,)),
)

BY_ID: Final = {spec.id: spec for spec in TABLE}
_HAVE_PAIRS: Final = BY_ID[USER_PROPERTY].kinds


def _read_value(data: bytes, at: int, end: int, type_: int) -> tuple[int | str | bytes, int]:
    if type_ == FLAG:
        if at >= end:
            raise MalformedPacket("the packet ends inside a property")
        return data[at], at + 1
    if type_ == UINT16:
        return read_uint16(data, at, end)
    if type_ == UINT32:
        return read_uint32(data, at, end)
    if type_ == VARINT:
        return read_varint(data, at, end)
    if type_ == BINARY:
        return read_binary(data, at, end)
    return read_text(data, at, end)


def read_length(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The Property Length: where the properties begin and where they end."""
    length, at = read_varint(data, at, end)
    if at + length > end:
        raise MalformedPacket("the properties are longer than the packet")
    return at, at + length


def read_properties(
    data: bytes, at: int, end: int, kind: int, properties_max: int = PROPERTIES_UNBOUNDED
) -> tuple[Properties, int]:
    """The properties of one packet, Property Length first.

    Args:
        data: the buffer.
        at: where the Property Length stands.
        end: where the packet ends.
        kind: the packet that carries them, or WILL.
        properties_max: how many there may be; more are refused with 0x97.

    Returns:
        The properties, ``EMPTY`` if there are none, and the position after them.
    """
    at, stop = read_length(data, at, end)
    if at == stop:
        return EMPTY, at
    return _read_all(data, at, stop, kind, properties_max), stop


def _too_many(properties_max: int) -> MqttError:
    """A limit of ours: what is beyond it is not read."""
    return MqttError(QUOTA_EXCEEDED, f"the packet has more than {properties_max} properties")


def _read_all(data: bytes, at: int, stop: int, kind: int, properties_max: int) -> Properties:
    properties = Properties()
    identifiers: list[int] = []
    pairs: list[tuple[str, str]] = []
    seen = 0
    left = properties_max
    while at < stop:
        left -= 1
        if left < 0:
            raise _too_many(properties_max)
        if data[at] == USER_PROPERTY and kind in _HAVE_PAIRS:
            # In one step: a CONNECT may have a thousand before anyone is authenticated.
            at = _read_pair(data, at + 1, stop, pairs)
            continue
        identifier, at = read_varint(data, at, stop)
        spec = BY_ID.get(identifier)
        if spec is None:
            raise MalformedPacket(f"there is no property 0x{identifier:02X}")
        if kind not in spec.kinds:
            raise MalformedPacket(f"the property {spec.name} is not allowed in this packet")
        if seen >> identifier & 1 and kind not in spec.repeatable:
            raise ProtocolViolation(f"the property {spec.name} comes twice")
        seen |= 1 << identifier
        single, at = _read_value(data, at, stop, spec.type)
        _check_value(spec, single)
        if isinstance(single, int) and identifier == SUBSCRIPTION_IDENTIFIER:
            identifiers.append(single)
        else:
            setattr(properties, spec.name, single)
    properties.subscription_identifiers = tuple(identifiers)
    properties.user_properties = tuple(pairs)
    return properties


def _read_pair(data: bytes, at: int, stop: int, pairs: list[tuple[str, str]]) -> int:
    """Append the user property that begins at ``at``; return where it ends."""
    middle = at + 2
    if middle <= stop:
        middle += data[at] << 8 | data[at + 1]
        end = middle + 2
        if end <= stop:
            end += data[middle] << 8 | data[middle + 1]
            if end <= stop:
                key = data[at + 2 : middle]
                value = data[middle + 2 : end]
                if key.isascii() and value.isascii() and 0 not in key and 0 not in value:
                    pairs.append((key.decode(), value.decode()))
                    return end
    # What is wrong with it is told by whoever reads one field after the other.
    name, at = read_text(data, at, stop)
    text_value, at = read_text(data, at, stop)
    pairs.append((name, text_value))
    return at


def _check_value(spec: PropertySpec, value: int | str | bytes) -> None:
    if spec.type == FLAG and value not in (0, 1):
        raise ProtocolViolation(f"the property {spec.name} must be 0 or 1")
    if spec.nonzero and value == 0:
        if spec.id == TOPIC_ALIAS:
            raise MqttError(TOPIC_ALIAS_INVALID, "a topic alias must not be 0")
        raise ProtocolViolation(f"the property {spec.name} must not be 0")
    if spec.id == RESPONSE_TOPIC and isinstance(value, str):
        _check_response_topic(value)


def check_topic_name(topic: str, what: str) -> None:
    """A topic name has at least one character ([MQTT-4.7.3-1]) and no wildcard.

    Raises:
        ProtocolViolation: it is empty, as in a PUBLISH without a topic alias (3.3.2.1).
        MalformedPacket: it has a wildcard ([MQTT-3.3.2-2]).
    """
    if not topic:
        raise ProtocolViolation(f"the {what} is empty")
    if "+" in topic or "#" in topic:
        raise MalformedPacket(f"the {what} holds a wildcard")


def _check_response_topic(topic: str) -> None:
    """The packet can be parsed whatever stands there, so what is not allowed there is a protocol
    error (1.2), as with the values of other properties."""
    if not topic:
        raise ProtocolViolation("the response topic is empty")  # [MQTT-4.7.3-1]
    if "+" in topic or "#" in topic:
        raise ProtocolViolation("the response topic holds a wildcard")  # [MQTT-3.3.2-14]


@final
class MessageProperties:
    """The properties of a PUBLISH or a will, apart from ``Properties``: they are forwarded.

    Attributes:
        forward: those that a server forwards unaltered, in wire form, in the order received.
        expiry_s: Message Expiry Interval, -1 = none.
        topic_alias: 0 = none.
        delay_s: Will Delay Interval, 0 = none.
        identifiers: subscription identifiers.
        correlated: has correlation data, which differ from message to message.
    """

    __slots__ = ("correlated", "delay_s", "expiry_s", "forward", "identifiers", "topic_alias")

    def __init__(self) -> None:
        self.correlated: bool = False
        self.forward: bytes = b""
        self.expiry_s: int = -1
        self.topic_alias: int = 0
        self.delay_s: int = 0
        self.identifiers: tuple[int, ...] = ()


def read_message_properties(
    data: bytes, at: int, stop: int, kind: int, properties_max: int = PROPERTIES_UNBOUNDED
) -> MessageProperties:
    """The properties between ``at`` and ``stop`` of a PUBLISH or (``WILL``) of a will; more than
    ``properties_max`` are refused with 0x97."""
    result = MessageProperties()
    forward: list[bytes] = []
    identifiers: list[int] = []
    forward_from = at  # start of the run of forwarded properties that ends at ``at``
    seen = 0
    left = properties_max
    while at < stop:
        left -= 1
        if left < 0:
            raise _too_many(properties_max)
        start = at
        identifier = data[at]
        spec = BY_ID.get(identifier)
        if spec is None or kind not in spec.kinds:
            raise MalformedPacket(f"the property 0x{identifier:02X} is not allowed here")
        if seen >> identifier & 1 and kind not in spec.repeatable:
            raise ProtocolViolation(f"the property {spec.name} comes twice")
        seen |= 1 << identifier
        at += 1
        if identifier == USER_PROPERTY:
            _, at = read_text(data, at, stop)
            _, at = read_text(data, at, stop)
            continue
        value, at = _read_value(data, at, stop, spec.type)
        _check_value(spec, value)
        if not isinstance(value, int) or identifier == PAYLOAD_FORMAT_INDICATOR:
            continue
        # What is left is an integer that is the hop's own business: cut it out.
        if forward_from < start:
            forward.append(data[forward_from:start])
        forward_from = at
        if identifier == MESSAGE_EXPIRY_INTERVAL:
            result.expiry_s = value
        elif identifier == TOPIC_ALIAS:
            result.topic_alias = value
        elif identifier == WILL_DELAY_INTERVAL:
            result.delay_s = value
        else:
            identifiers.append(value)
    tail = data[forward_from:stop]
    result.forward = b"".join((*forward, tail)) if forward else tail
    result.identifiers = tuple(identifiers)
    result.correlated = bool(seen >> CORRELATION_DATA & 1)
    return result


def write_properties(properties: Properties, kind: int) -> bytes:
    """The properties of one packet in wire form, without the Property Length.

    Raises:
        UsageError: a property is set that this packet cannot carry.
    """
    if properties is EMPTY:
        return b""
    out: list[bytes] = []
    for spec in TABLE:
        value = getattr(properties, spec.name)
        if value is None or value == ():
            continue
        if kind not in spec.kinds:
            raise UsageError(f"the property {spec.name} is not allowed in {p.KIND_NAMES[kind]}")
        head = bytes((spec.id,))
        if spec.type == TEXT_PAIR:
            for key, text_value in properties.user_properties:
                out += (head, text(key), text(text_value))
        elif spec.id == SUBSCRIPTION_IDENTIFIER:
            for identifier in properties.subscription_identifiers:
                out += (head, varint(identifier))
        else:
            out += (head, _write_value(spec, value))
    return b"".join(out)


def _write_value(spec: PropertySpec, value: object) -> bytes:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bytes):
        return binary(value)
    if not isinstance(value, int):
        raise UsageError(f"the property {spec.name} has a value of the wrong type")
    if spec.type == FLAG:
        if value not in (0, 1):
            raise UsageError(f"the property {spec.name} must be 0 or 1")
        return b"\x01" if value else b"\x00"
    return uint16(value) if spec.type == UINT16 else uint32(value)
