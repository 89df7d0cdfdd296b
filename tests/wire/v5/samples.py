"""Tables that the MQTT 5.0 cases share: which packet has which property, and bad values."""

from __future__ import annotations

from typing import Final

from tests.wire.packets import Kind, Prop, Reason, Value, packet, prop, text, u16, varint

SAMPLE: Final[dict[Prop, Value]] = {
    Prop.PAYLOAD_FORMAT: 1,
    Prop.MESSAGE_EXPIRY: 60,
    Prop.CONTENT_TYPE: "text/plain",
    Prop.RESPONSE_TOPIC: "answers",
    Prop.CORRELATION_DATA: b"\x01\x02",
    Prop.SUBSCRIPTION_ID: 5,
    Prop.SESSION_EXPIRY: 0,
    Prop.ASSIGNED_CLIENT_ID: "assigned",
    Prop.SERVER_KEEP_ALIVE: 30,
    Prop.AUTH_METHOD: "METHOD",
    Prop.AUTH_DATA: b"data",
    Prop.REQUEST_PROBLEM_INFO: 1,
    Prop.WILL_DELAY: 1,
    Prop.REQUEST_RESPONSE_INFO: 0,
    Prop.RESPONSE_INFO: "information",
    Prop.SERVER_REFERENCE: "elsewhere",
    Prop.REASON_STRING: "because",
    Prop.RECEIVE_MAX: 10,
    Prop.TOPIC_ALIAS_MAX: 10,
    Prop.TOPIC_ALIAS: 1,
    Prop.MAX_QOS: 1,
    Prop.RETAIN_AVAILABLE: 1,
    Prop.USER: ("key", "value"),
    Prop.MAX_PACKET_SIZE: 100_000,
    Prop.WILDCARD_AVAILABLE: 1,
    Prop.SUBSCRIPTION_ID_AVAILABLE: 1,
    Prop.SHARED_AVAILABLE: 1,
}
"""One legal value for each property."""

ACKS: Final = {Kind.PUBACK: 0, Kind.PUBREC: 0, Kind.PUBREL: 2, Kind.PUBCOMP: 0}
"""The acknowledgements and their fixed header flags."""

_OF_ACK: Final = frozenset({Prop.REASON_STRING, Prop.USER})

ALLOWED: Final[dict[Kind, frozenset[Prop]]] = {
    Kind.PUBLISH: frozenset(
        {
            Prop.PAYLOAD_FORMAT,
            Prop.MESSAGE_EXPIRY,
            Prop.CONTENT_TYPE,
            Prop.RESPONSE_TOPIC,
            Prop.CORRELATION_DATA,
            Prop.TOPIC_ALIAS,
            Prop.USER,
        }
    ),
    **dict.fromkeys(ACKS, _OF_ACK),
    Kind.SUBSCRIBE: frozenset({Prop.SUBSCRIPTION_ID, Prop.USER}),
    Kind.UNSUBSCRIBE: frozenset({Prop.USER}),
    Kind.DISCONNECT: frozenset({Prop.SESSION_EXPIRY, Prop.REASON_STRING, Prop.USER}),
}
"""Table 2-4 for what a client sends; a Subscription Identifier is not for its PUBLISH."""

BAD_TEXT: Final = {
    "surrogate": b"\xed\xa0\x80",
    "surrogate-pair": b"\xed\xa0\x80\xed\xb0\x80",
    "nul": b"a\x00b",
    "nul-over-long": b"\xc0\x80",
    "over-long": b"\xc1\xbf",
    "lone-continuation": b"\x80",
    "cut": b"\xe2\x82",
    "above-U+10FFFF": b"\xf4\x90\x80\x80",
    "five-bytes": b"\xf8\x88\x80\x80\x80",
    "ff": b"\xff",
}
"""What is no UTF-8 string of section 1.5.4."""


def field(body: bytes) -> bytes:
    """A property field with this content."""
    return varint(len(body)) + body


def properties_field(*properties: tuple[Prop, Value]) -> bytes:
    """A property field with these properties."""
    return field(b"".join(prop(identifier, value) for identifier, value in properties))


def with_field(kind: Kind, raw: bytes, *, rest: bytes | None = None) -> bytes:
    """A packet of this type that is legal but for its property field.

    Args:
        kind: the packet type.
        raw: the whole property field, its length included.
        rest: what follows the field; None for what the packet needs there.
    """
    if kind is Kind.PUBLISH:
        return packet(0x30, text("t") + raw + (b"payload" if rest is None else rest))
    if kind in ACKS:
        return packet(kind << 4 | ACKS[kind], u16(1) + b"\x00" + raw + (rest or b""))
    if kind is Kind.SUBSCRIBE:
        return packet(0x82, u16(1) + raw + (text("t") + b"\x00" if rest is None else rest))
    if kind is Kind.UNSUBSCRIBE:
        return packet(0xA2, u16(1) + raw + (text("t") if rest is None else rest))
    return packet(0xE0, b"\x00" + raw + (rest or b""))


def malformed(*more: int) -> tuple[int, ...]:
    """The codes of a defect of which the text does not say which kind it is."""
    return (Reason.MALFORMED, Reason.PROTOCOL_ERROR, *more)


def label(value: Kind | Prop | int) -> str:
    """Test ids of packet types, properties and flags."""
    return value.name if isinstance(value, Kind | Prop) else f"{value:#x}"
