"""Formats that need a schema: Avro and Protocol Buffers, from a file or a schema registry.

Confluent's wire format is a zero byte, the schema's number in four bytes, and the value; before a
Protocol Buffers value comes the path of its message in the schema, which is read over. Who fetches
a schema by its number is given: nothing here does I/O.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from perdure.payloads.avro_types import prepared
from perdure.payloads.schemaless import Decoder
from perdure.payloads.values import COLUMN_DEPTH_MAX, Undecodable, plain

Fetch = Callable[[int], str]
"""The text of the Avro schema of a number. Raises ``KeyError`` if there is none."""

_AVRO_TYPES: Final = {
    "boolean": "boolean",
    "int": "long",
    "long": "long",
    "float": "double",
    "double": "double",
    "string": "string",
    "bytes": "string",
    "enum": "string",
    "fixed": "string",
    "array": "string",
    "map": "string",
}
_AVRO_LOGICAL: Final = {
    ("bytes", "decimal"): "double",
    ("fixed", "decimal"): "double",
    ("int", "date"): "string",
    ("int", "time-millis"): "string",
    ("long", "time-micros"): "string",
    ("long", "timestamp-millis"): "string",
    ("long", "timestamp-micros"): "string",
    ("long", "local-timestamp-millis"): "string",
    ("long", "local-timestamp-micros"): "string",
}
"""Logical types that values come out as, moments as text; others are read over, as Avro says."""

MAGIC: Final = 0
HEADER_BYTES: Final = 5
UNKNOWN_MAX: Final = 65_536
"""Numbers without a schema that are kept in mind."""


def avro_decoder(schema: str) -> Decoder:
    """A decoder of values of one schema, as they are, without a header; needs fastavro.

    Raises:
        ValueError: it is no schema.
    """
    import fastavro
    from fastavro import _read_py

    parsed, holds_itself = prepared(schema)
    # The one in Python ends at Python's bound; the compiled one at the end of the stack.
    read = _read_py.schemaless_reader if holds_itself else fastavro.schemaless_reader

    def decode(payload: bytes) -> object:
        stream = io.BytesIO(payload)
        try:
            value = plain(read(stream, parsed, None))
        except Exception as error:  # noqa: BLE001 - what bytes do to the library
            raise Undecodable(f"{type(error).__name__}: {error}") from None
        if stream.tell() != len(payload):
            raise Undecodable("bytes are left")
        return value

    return decode


def registry_decoder(fetch: Fetch) -> Decoder:
    """A decoder of Confluent's wire format with Avro; each schema is fetched once.

    One that the registry does not have is not asked for again: numbers are given before they are
    used, and what is no such payload may have any number in it.
    """
    known: dict[int, Decoder] = {}
    unknown: dict[int, str] = {}

    def decode(payload: bytes) -> object:
        if len(payload) < HEADER_BYTES or payload[0] != MAGIC:
            raise Undecodable("no header of a schema registry")
        number = int.from_bytes(payload[1:HEADER_BYTES], "big")
        if number in unknown:
            raise Undecodable(unknown[number])
        if number not in known:
            try:
                known[number] = avro_decoder(fetch(number))
            except (KeyError, ValueError) as error:
                if len(unknown) < UNKNOWN_MAX:
                    unknown[number] = f"schema {number}: {error}"
                raise Undecodable(f"schema {number}: {error}") from None
        return known[number](payload[HEADER_BYTES:])

    return decode


def avro_columns(schema: str) -> Mapping[str, str]:
    """The columns that a schema declares: names of fields, joined, with our types."""
    found: dict[str, str] = {}
    named: dict[str, Any] = {}

    def walk(field: Any, path: str, depth: int) -> None:
        kind = _without_null(field)
        if isinstance(kind, str):
            # A type that was described before, by its full name or in the same namespace.
            kind = named.get(kind, kind)
        word = kind.get("type") if isinstance(kind, dict) else kind
        if isinstance(kind, dict) and "name" in kind:
            name, space = kind["name"], kind.get("namespace", "")
            named[name] = named[f"{space}.{name}" if space else name] = kind
        if word == "record" and isinstance(kind, dict):
            if depth == COLUMN_DEPTH_MAX:
                found[path] = "string"
                return
            for each in kind["fields"]:
                below = f"{path}_{each['name']}" if path else each["name"]
                walk(each["type"], below, depth + 1)
        elif path and isinstance(word, str) and word in _AVRO_TYPES:
            logical = kind.get("logicalType", "") if isinstance(kind, dict) else ""
            found[path] = _AVRO_LOGICAL.get((word, logical), _AVRO_TYPES[word])

    walk(msgspec.json.decode(schema), "", 0)
    return found


def _without_null(kind: Any) -> Any:
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        return others[0] if len(others) == 1 else "map"
    return kind


def proto_decoder(descriptors: bytes, message: str, *, has_header: bool) -> Decoder:
    """A decoder of one message type; needs protobuf.

    Args:
        descriptors: a FileDescriptorSet, as ``protoc --include_imports -o`` writes it.
        message: full name.
        has_header: values have Confluent's header.

    Raises:
        ValueError: the set has no such message.
    """
    kind = _message_class(descriptors, message)

    def decode(payload: bytes) -> object:
        data = _behind_header(payload) if has_header else payload
        try:
            return _plain_message(kind.FromString(data))
        except Exception as error:  # noqa: BLE001 - what bytes do to the library, a moment's too
            raise Undecodable(f"{type(error).__name__}: {error}") from None

    return decode


def proto_columns(descriptors: bytes, message: str) -> Mapping[str, str]:
    """The columns that a message declares."""
    found: dict[str, str] = {}

    def walk(descriptor: Any, path: str, depth: int) -> None:
        for field in descriptor.fields:
            name = f"{path}_{field.name}" if path else field.name
            if field.is_repeated:
                found[name] = "string"
            elif field.message_type is not None:
                if _is_well_known(field.message_type) or depth == COLUMN_DEPTH_MAX:
                    found[name] = "string"
                else:
                    walk(field.message_type, name, depth + 1)
            else:
                found[name] = _proto_type(field)

    walk(_message_class(descriptors, message).DESCRIPTOR, "", 1)
    return found


def _proto_type(field: Any) -> str:
    kinds = {
        field.CPPTYPE_BOOL: "boolean",
        field.CPPTYPE_DOUBLE: "double",
        field.CPPTYPE_FLOAT: "double",
        field.CPPTYPE_STRING: "string",
        field.CPPTYPE_ENUM: "string",
    }
    return kinds.get(field.cpp_type, "long")


def _message_class(descriptors: bytes, message: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    try:
        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except Exception as error:  # noqa: BLE001 - whatever bytes do to the library
        raise ValueError(f"message {message}: {error}") from None


def _plain_message(value: Any) -> dict[str, object]:
    """The fields of a message: those that are set, and those that are always, as proto3's plain
    ones. There 0, false and "" are values that are not sent."""
    found: dict[str, object] = {}
    whole: dict[str, object] | None = None
    for field in value.DESCRIPTOR.fields:
        if field.has_presence and not value.HasField(field.name):
            continue
        each = getattr(value, field.name)
        if not field.is_repeated and field.message_type is None:
            found[field.name] = _plain_scalar(field, each)
        elif field.is_repeated and not len(each):
            continue
        elif not field.is_repeated and not _is_well_known(field.message_type):
            found[field.name] = _plain_message(each)
        else:
            if whole is None:
                whole = _as_json(value)
            found[field.name] = whole.get(field.name)
    return found


def _plain_scalar(field: Any, value: Any) -> object:
    if field.enum_type is None:
        # 64-bit numbers, which are text in the library's JSON, stay numbers.
        return plain(value)
    known = field.enum_type.values_by_number.get(value)
    return known.name if known else str(value)


def _is_well_known(kind: Any) -> bool:
    """Whether a message type has a form of its own in JSON."""
    return bool(kind.full_name.startswith("google.protobuf."))


def _as_json(value: Any) -> dict[str, object]:
    from google.protobuf import json_format

    made: dict[str, object] = json_format.MessageToDict(
        value, preserving_proto_field_name=True, descriptor_pool=value.DESCRIPTOR.file.pool
    )
    return made


def _behind_header(payload: bytes) -> bytes:
    """A value behind Confluent's header and the path of its message."""
    if len(payload) <= HEADER_BYTES or payload[0] != MAGIC:
        raise Undecodable("no header of a schema registry")
    at = HEADER_BYTES
    count, at = _zigzag(payload, at)
    for _ in range(count):
        _, at = _zigzag(payload, at)
    return payload[at:]


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise Undecodable("a path that does not end")
