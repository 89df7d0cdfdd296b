"""Entries as rows of TBMQ's ``device_publish_msg``, and what its columns cannot say.

``time`` is the time of publishing in milliseconds, ``msg_expiry_interval`` counts from it, user
properties are the JSON text ``{"props": [{"k": .., "v": ..}]}``. What is left (identifiers, extra,
properties that are too long, publisher, published QoS and offset) goes into a record of our own,
which is written only for an entry that needs it: a MessagePack array, version first.

This module is pure. A row that is read is a mapping from column names to values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.model import Message
from perdure.mqtt.encode import forward_properties, properties_from_forward
from perdure.mqtt.packets import Properties
from perdure.storage.device_queue import EntryState, NewEntry, QueuedEntry

VARCHAR_MAX: Final = 255
"""Characters of ``varchar(255)``."""

RECORD_VERSION: Final = 1

_HASH_DIGITS: Final = 64
_UINT32: Final = 1 << 32
_INT32_MAX: Final = (1 << 31) - 1
_MS: Final = 1000
_SECOND_US: Final = 1_000_000


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What the columns of an entry cannot say.

    Attributes:
        version: of this layout.
        identifiers, extra: as in ``NewEntry``.
        properties: all of them in wire form, if one is too long for its column; else empty.
        publisher, qos, offset: of the message.
    """

    version: int
    identifiers: tuple[int, ...]
    extra: bytes
    properties: bytes
    publisher: str
    qos: int
    offset: int


class Pair(msgspec.Struct, frozen=True):
    """A user property as TBMQ writes it."""

    k: str
    v: str


class Pairs(msgspec.Struct, frozen=True):
    """All user properties of a message as TBMQ writes them."""

    props: tuple[Pair, ...] | None = None


class Row(msgspec.Struct, frozen=True):
    """An entry as values of columns; serial number and packet identifier are not known yet."""

    topic: str
    time: int
    packet_type: str
    qos: int
    payload: bytes
    retain: bool
    user_properties: str | None = None
    msg_expiry_interval: int | None = None
    payload_format_indicator: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    forget_at_us: int | None = None
    record: bytes | None = None


_NO_PROPERTIES: Final = Properties()
_PAIRS: Final = msgspec.json.Decoder(Pairs | None)
_RECORD: Final = msgspec.msgpack.Decoder(Record)


def key_of(client_id: str) -> str:
    """A client id as the tables hold it: one too long for the column is cut and gets its hash."""
    if len(client_id) <= VARCHAR_MAX:
        return client_id
    digest = hashlib.sha256(client_id.encode()).hexdigest()
    return f"{client_id[: VARCHAR_MAX - _HASH_DIGITS - 1]}~{digest}"


def row_of(entry: NewEntry, *, now_us: int) -> Row:
    """An entry as a row.

    Args:
        now_us: taken for a message whose time of publishing is not known.
    """
    message = entry.message
    published_at_us = message.published_at_us or now_us
    is_publish = entry.state is EntryState.PUBLISH
    interval = None
    forget_at_us = entry.forget_at_us or None
    if is_publish and message.expires_at_us:
        interval = _interval(message.expires_at_us - published_at_us)
        if forget_at_us and forget_at_us >= message.expires_at_us:
            forget_at_us = None
    properties = _NO_PROPERTIES
    too_long = False
    if message.properties:
        properties = properties_from_forward(message.properties)
        texts = (properties.content_type, properties.response_topic)
        too_long = any(text is not None and len(text) > VARCHAR_MAX for text in texts)
    record = None
    if entry.identifiers or entry.extra or too_long:
        record = msgspec.msgpack.encode(
            Record(
                RECORD_VERSION,
                entry.identifiers,
                entry.extra,
                message.properties if too_long else b"",
                message.publisher,
                message.qos,
                message.offset,
            )
        )
    return Row(
        topic=message.topic,
        time=published_at_us // _MS,
        packet_type=entry.state.name,
        qos=entry.qos,
        payload=message.payload if is_publish else b"",
        retain=entry.retain,
        user_properties=_pairs_text(properties),
        msg_expiry_interval=interval,
        payload_format_indicator=properties.payload_format_indicator,
        content_type=_fitting(properties.content_type),
        response_topic=_fitting(properties.response_topic),
        correlation_data=properties.correlation_data,
        forget_at_us=forget_at_us,
        record=record,
    )


def entry_of(row: Mapping[str, Any]) -> QueuedEntry:
    """A row that was read, as an entry.

    Raises:
        StorageCorrupt: a column holds what nobody writes there.
        FormatTooNew: the record is a later release's.
    """
    state = EntryState.PUBREL if row["packet_type"] == "PUBREL" else EntryState.PUBLISH
    time_ms: int = row["time"]
    interval: int | None = row["msg_expiry_interval"]
    expires_at_us = 0
    if interval is not None and state is EntryState.PUBLISH:
        # Java has no unsigned numbers: the upper half of the range is stored as negative ones.
        expires_at_us = time_ms * _MS + interval % _UINT32 * _SECOND_US
    record = _record_of(row)
    properties = record.properties if record else b""
    qos: int = row["qos"]
    retain = bool(row["retain"])
    return QueuedEntry(
        serial=row["serial_number"],
        packet_id=row["packet_id"] or 0,
        state=state,
        message=Message(
            row["topic"],
            row["payload"],
            record.qos if record else qos,
            retain,
            record.publisher if record else "",
            properties or _properties_of(row),
            expires_at_us,
            time_ms * _MS,
            record.offset if record else 0,
        ),
        qos=qos,
        retain=retain,
        identifiers=record.identifiers if record else (),
        forget_at_us=row["forget_at_us"] or 0,
        extra=record.extra if record else b"",
    )


def _interval(lifetime_us: int) -> int:
    """Whole seconds, never less than was asked for, as Java holds an unsigned number."""
    seconds = min(max(0, -(-lifetime_us // _SECOND_US)), _UINT32 - 1)
    return seconds - _UINT32 if seconds > _INT32_MAX else seconds


def _fitting(text: str | None) -> str | None:
    return text if text is None or len(text) <= VARCHAR_MAX else None


def _pairs_text(properties: Properties) -> str | None:
    if not properties.user_properties:
        return None
    pairs = Pairs(tuple(Pair(key, value) for key, value in properties.user_properties))
    return msgspec.json.encode(pairs).decode()


def _properties_of(row: Mapping[str, Any]) -> bytes:
    indicator, content_type = row["payload_format_indicator"], row["content_type"]
    response_topic, correlation = row["response_topic"], row["correlation_data"]
    pairs = _pairs_of(row) if row["user_properties"] is not None else ()
    if not pairs and indicator is content_type is response_topic is correlation is None:
        return b""
    properties = Properties(
        # The specification knows no third value; a receiver would have to disconnect.
        payload_format_indicator=indicator if indicator in (0, 1) else None,
        content_type=content_type,
        response_topic=response_topic or None,
        correlation_data=correlation,
        user_properties=pairs,
    )
    return forward_properties(properties)


def _pairs_of(row: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    try:
        pairs = _PAIRS.decode(row["user_properties"])
    except ValueError as error:
        where = f"message {row['serial_number']} of {row['client_id']!r}"
        raise StorageCorrupt(f"the user properties of {where}: {error}") from error
    return tuple((pair.k, pair.v) for pair in (pairs.props if pairs else None) or ())


def _record_of(row: Mapping[str, Any]) -> Record | None:
    data: bytes | None = row["record"]
    if data is None:
        return None
    try:
        record = _RECORD.decode(data)
    except ValueError as error:
        # A later layout may have other types; its version comes first in any case.
        if data[1:2] > bytes((RECORD_VERSION,)):
            raise FormatTooNew("an entry was written by a later release") from error
        where = f"message {row['serial_number']} of {row['client_id']!r}"
        raise StorageCorrupt(f"the record of {where}: {error}") from error
    if record.version > RECORD_VERSION:
        raise FormatTooNew("an entry was written by a later release")
    return record
