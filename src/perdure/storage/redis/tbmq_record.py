"""An entry as TBMQ 2.x writes it: JSON, drawn.

::

    {"packetId": 7, "clientId": ID, "topicName": TOPIC, "time": MILLISECONDS, "qos": 1,
     "packetType": "PUBLISH" | "PUBREL", "payload": BASE64, "retained": false,
     "userProperties": {"props": [{"k": K, "v": V}, ...]}, "msgExpiryInterval": SECONDS,
     "payloadFormatIndicator": 1, "contentType": TEXT, "responseTopic": TEXT,
     "correlationData": BASE64, "subscriptionIds": [1, ...]}

``clientId`` is whose queue it is. What is null is absent. 2.0.0 wrote ``topic`` for ``topicName``;
both are read, the latter is written. A message that expires does so ``msgExpiryInterval`` after
``time``. The packet identifier is first, because the server gives it: ``tail`` is the rest.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from perdure.errors import MqttError, PerdureError, StorageCorrupt
from perdure.model import Message
from perdure.mqtt.packets import PUBLISH, Properties
from perdure.mqtt.primitives import varint
from perdure.mqtt.properties import read_properties, write_properties
from perdure.storage.device_queue import EntryState, NewEntry, QueuedEntry

_MS_US: Final = 1000
_SECOND_US: Final = 1_000_000
_NO_EXPIRY: Final = -1


class _Pair(msgspec.Struct):
    k: str
    v: str


class _Pairs(msgspec.Struct):
    props: list[_Pair] | None = None


class _Written(msgspec.Struct, rename="camel", omit_defaults=True):
    client_id: str
    topic_name: str
    time: int
    qos: int
    packet_type: str
    payload: bytes
    retained: bool
    user_properties: _Pairs | None = None
    msg_expiry_interval: int | None = None
    payload_format_indicator: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_ids: list[int] | None = None


class _Read(msgspec.Struct, rename="camel"):
    topic_name: str | None = None
    topic: str | None = None
    time: int = 0
    qos: int = 1
    packet_id: int | None = None
    packet_type: str = "PUBLISH"
    payload: bytes | None = None
    retained: bool | None = None
    user_properties: _Pairs | None = None
    msg_expiry_interval: int | None = None
    payload_format_indicator: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_ids: list[int] | None = None


_encode: Final = msgspec.json.Encoder().encode
_decoder: Final = msgspec.json.Decoder(_Read)


def tail(new: NewEntry) -> bytes:
    """The JSON of an entry after its packet identifier, from the comma on."""
    message = new.message
    is_pubrel = new.state is EntryState.PUBREL
    written = _Written(
        client_id=new.client_id,
        topic_name=message.topic,
        time=message.published_at_us // _MS_US,
        qos=new.qos,
        packet_type="PUBREL" if is_pubrel else "PUBLISH",
        payload=b"" if is_pubrel else message.payload,
        retained=new.retain,
    )
    if message.expires_at_us and not is_pubrel:
        left_us = message.expires_at_us - message.published_at_us
        written.msg_expiry_interval = max(0, -(-left_us // _SECOND_US))
    if message.properties:
        _add_properties(written, message.properties)
    if new.identifiers:
        written.subscription_ids = list(new.identifiers)
    return b"," + _encode(written)[1:]


def bare_pubrel_tail(client_id: str) -> bytes:
    """As ``tail``, of a PUBREL whose message is gone."""
    return b"," + _encode(_Written(client_id, "", 0, 2, "PUBREL", b"", False))[1:]


def deadline_ms(new: NewEntry) -> int:
    """When the server may forget the entry by itself; 0 = never."""
    expires_at_us = 0 if new.state is EntryState.PUBREL else new.message.expires_at_us
    deadlines = [at for at in (expires_at_us, new.forget_at_us) if at]
    return to_ms(min(deadlines)) if deadlines else 0


def to_ms(at_us: int) -> int:
    """Not before that moment."""
    return -(-at_us // _MS_US)


def decode(
    json: bytes, *, serial: int, packet_id: int, expiry_ms: int, extra: bytes = b""
) -> QueuedEntry:
    """The entry in JSON.

    Args:
        json: the value of its key.
        serial: its score.
        packet_id: out of the name of its key; 0 = ask the JSON.
        expiry_ms: when the server forgets it; -1 = never.
        extra: the owner's bytes.

    Raises:
        StorageCorrupt: it is no such JSON.
    """
    try:
        read = _decoder.decode(json)
    except ValueError as error:
        raise StorageCorrupt(f"entry {packet_id} is no message of TBMQ: {error}") from error
    is_pubrel = read.packet_type == "PUBREL"
    published_at_us = read.time * _MS_US
    expires_at_us = 0
    # The interval of a PUBREL is over with its PUBREC; only its key's expiry ends it.
    if read.msg_expiry_interval is not None and not is_pubrel:
        expires_at_us = published_at_us + read.msg_expiry_interval * _SECOND_US
    forget_at_us = 0 if expiry_ms == _NO_EXPIRY else expiry_ms * _MS_US
    if expires_at_us and forget_at_us >= expires_at_us:
        # The key's expiry is that of the message.
        forget_at_us = 0
    retained = bool(read.retained)
    qos = read.qos if read.qos in (1, 2) else 1
    return QueuedEntry(
        serial=serial,
        packet_id=packet_id or read.packet_id or 0,
        state=EntryState.PUBREL if is_pubrel else EntryState.PUBLISH,
        message=Message(
            read.topic_name if read.topic_name is not None else read.topic or "",
            b"" if is_pubrel else read.payload or b"",
            qos,
            retained,
            properties=_properties(read),
            expires_at_us=expires_at_us,
            published_at_us=published_at_us,
        ),
        qos=qos,
        retain=retained,
        identifiers=tuple(read.subscription_ids or ()),
        forget_at_us=forget_at_us,
        extra=extra,
    )


def _add_properties(written: _Written, wire: bytes) -> None:
    data = varint(len(wire)) + wire
    try:
        properties, _ = read_properties(data, 0, len(data), PUBLISH)
    except MqttError as error:
        raise StorageCorrupt(f"a message has wrong properties: {error}") from error
    if properties.user_properties:
        written.user_properties = _Pairs([_Pair(k, v) for k, v in properties.user_properties])
    written.payload_format_indicator = properties.payload_format_indicator
    written.content_type = properties.content_type
    written.response_topic = properties.response_topic
    written.correlation_data = properties.correlation_data


def _properties(read: _Read) -> bytes:
    pairs = read.user_properties.props if read.user_properties else None
    if not (
        pairs
        or read.payload_format_indicator is not None
        or read.content_type is not None
        or read.response_topic is not None
        or read.correlation_data is not None
    ):
        return b""
    properties = Properties(
        payload_format_indicator=read.payload_format_indicator,
        content_type=read.content_type,
        response_topic=read.response_topic,
        correlation_data=read.correlation_data,
        user_properties=tuple((pair.k, pair.v) for pair in pairs or ()),
    )
    try:
        return write_properties(properties, PUBLISH)
    except (PerdureError, ValueError, OverflowError, struct.error) as error:
        raise StorageCorrupt(f"a message has properties that MQTT cannot carry: {error}") from error
