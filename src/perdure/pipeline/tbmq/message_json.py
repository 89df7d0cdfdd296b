"""A message as TBMQ 2.x writes it into Redis: a JSON object, fields with null left out.

2.0.0 named the topic ``topic``, later releases ``topicName``. ``time`` is when the queue took it,
milliseconds; ``msgExpiryInterval`` seconds from then; payload and correlation data are base64.
"""

from __future__ import annotations

import base64
from typing import Final

import msgspec

from perdure.errors import MqttError
from perdure.limits import PACKET_ID_MAX
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Properties
from perdure.pipeline.tbmq.pending import PendingEntry
from perdure.topic.names import validate_topic_name

LEVELS_MAX: Final = 65_535
"""TBMQ has taken the topic; how deep it may be is no question any more."""


class DamagedEntry(ValueError):
    """An entry that cannot be read; the text says why."""


class _Pair(msgspec.Struct):
    k: str
    v: str


class _Pairs(msgspec.Struct):
    props: list[_Pair] | None = None


class _Stored(msgspec.Struct):
    """The object; what is not named here says nothing that is delivered."""

    qos: int
    payload: str | None = None
    topicName: str | None = None
    topic: str | None = None
    time: int = 0
    packetId: int | None = None
    packetType: str | None = None
    retained: bool | None = None
    userProperties: _Pairs | None = None
    msgExpiryInterval: int | None = None
    payloadFormatIndicator: int | None = None
    contentType: str | None = None
    responseTopic: str | None = None
    correlationData: str | None = None
    subscriptionIds: list[int] | None = None


_decode = msgspec.json.Decoder(_Stored).decode
_decode_pairs = msgspec.json.Decoder(_Pairs | None).decode


def parse_message(value: bytes, *, place: int, packet_id: int, forget_at_us: int) -> PendingEntry:
    """The entry in the value of a message key.

    Args:
        value: the JSON object.
        place: ordinal in the queue.
        packet_id: from the key's name, by which acknowledgements find it.
        forget_at_us: when Redis drops the key; 0 = never.

    Raises:
        DamagedEntry: it is not such an object.
    """
    try:
        stored = _decode(value)
        payload = _binary(stored.payload) or b""
        correlation_data = _binary(stored.correlationData)
    except ValueError as error:
        raise DamagedEntry(f"its value does not decode: {error}") from error
    topic = stored.topicName if stored.topicName is not None else stored.topic
    pairs = stored.userProperties.props if stored.userProperties else None
    return build_entry(
        place=place,
        packet_id=packet_id,
        packet_type=stored.packetType,
        topic=topic,
        payload=payload,
        qos=stored.qos,
        retain=bool(stored.retained),
        time_ms=stored.time,
        expiry_s=stored.msgExpiryInterval,
        forget_at_us=forget_at_us,
        properties=Properties(
            payload_format_indicator=stored.payloadFormatIndicator,
            content_type=stored.contentType,
            response_topic=stored.responseTopic,
            correlation_data=correlation_data,
            user_properties=tuple((pair.k, pair.v) for pair in pairs or ()),
        ),
        identifiers=tuple(stored.subscriptionIds or ()),
    )


def parse_user_properties(text: str | None) -> tuple[tuple[str, str], ...]:
    """User properties as TBMQ writes them into a column: ``{"props": [{"k", "v"}]}``.

    Raises:
        DamagedEntry: the text is something else.
    """
    if not text:
        return ()
    try:
        pairs = _decode_pairs(text)
    except ValueError as error:
        raise DamagedEntry(f"its user properties do not decode: {error}") from error
    return tuple((pair.k, pair.v) for pair in (pairs.props if pairs else None) or ())


def build_entry(
    *,
    place: int,
    packet_id: int,
    packet_type: str | None,
    topic: str | None,
    payload: bytes,
    qos: int,
    retain: bool,
    time_ms: int,
    expiry_s: int | None,
    forget_at_us: int,
    properties: Properties,
    identifiers: tuple[int, ...] = (),
) -> PendingEntry:
    """An entry from the fields that both of TBMQ's formats have.

    Raises:
        DamagedEntry: a field has a value that MQTT does not know.
    """
    released = packet_type == "PUBREL"
    if packet_type not in ("PUBLISH", "PUBREL", None):
        raise DamagedEntry(f"its packet type is {packet_type!r}")
    if not 0 <= packet_id <= PACKET_ID_MAX:
        raise DamagedEntry(f"its packet identifier is {packet_id}")
    if qos not in (0, 1, 2) or (expiry_s is not None and expiry_s < 0):
        raise DamagedEntry(f"its QoS is {qos}, its expiry interval {expiry_s}")
    try:
        if not released or topic:
            validate_topic_name(topic or "", levels_max=LEVELS_MAX)
        wire = forward_properties(properties)
    except (MqttError, ValueError) as error:
        raise DamagedEntry(str(error) or type(error).__name__) from error
    expires_at_us = 0
    if expiry_s is not None and not released:
        # An interval of zero is over at once; 0 here would mean that it has none.
        expires_at_us = max(1, (time_ms + expiry_s * 1000) * 1000)
    return PendingEntry(
        place=place,
        packet_id=packet_id,
        released=released,
        topic=topic or "",
        payload=payload,
        # Only what is acknowledged is queued: an entry of QoS 0 could not leave the queue.
        qos=2 if released else max(1, qos),
        retain=retain,
        properties=wire,
        identifiers=identifiers,
        published_at_us=time_ms * 1000,
        expires_at_us=expires_at_us,
        forget_at_us=forget_at_us,
    )


def _binary(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
