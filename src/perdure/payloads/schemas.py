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

from perdure.payloads.schemaless import Decoder
from perdure.payloads.values import Undecodable, plain

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
MAGIC: Final = 0
HEADER_BYTES: Final = 5


def avro_decoder(schema: str) -> Decoder:
    """A decoder of values of one schema, as they are, without a header; needs fastavro.

    Raises:
        ValueError: it is no schema.
    """
    import fastavro

    parsed = _parsed(schema)

    def decode(payload: bytes) -> object:
        stream = io.BytesIO(payload)
        try:
            value = plain(fastavro.schemaless_reader(stream, parsed, None))
        except Exception as error:  # noqa: BLE001 - what bytes do to the library
            raise Undecodable(f"{type(error).__name__}: {error}") from None
        if stream.tell() != len(payload):
            raise Undecodable("bytes are left")
        return value

    return decode


def registry_decoder(fetch: Fetch) -> Decoder:
    """A decoder of Confluent's wire format with Avro; each schema is fetched once."""
    known: dict[int, Decoder] = {}

    def decode(payload: bytes) -> object:
        if len(payload) < HEADER_BYTES or payload[0] != MAGIC:
            raise Undecodable("no header of a schema registry")
        number = int.from_bytes(payload[1:HEADER_BYTES], "big")
        if number not in known:
            try:
                known[number] = avro_decoder(fetch(number))
            except (KeyError, ValueError) as error:
                raise Undecodable(f"schema {number}: {error}") from None
        return known[number](payload[HEADER_BYTES:])

    return decode


def avro_columns(schema: str) -> Mapping[str, str]:
    """The columns that a schema declares: names of fields, joined, with our types."""
    found: dict[str, str] = {}

    def walk(field: Any, path: str) -> None:
        kind = _without_null(field)
        word = kind.get("type") if isinstance(kind, dict) else kind
        if word == "record" and isinstance(kind, dict):
            for each in kind["fields"]:
                walk(each["type"], f"{path}_{each['name']}" if path else each["name"])
        elif path and isinstance(word, str) and word in _AVRO_TYPES:
            # A logical type is a moment or a decimal, which is text or a double.
            logical = kind.get("logicalType", "") if isinstance(kind, dict) else ""
            found[path] = (
                "double" if logical == "decimal" else ("string" if logical else _AVRO_TYPES[word])
            )

    walk(msgspec.json.decode(schema), "")
    return found


def _without_null(kind: Any) -> Any:
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        return others[0] if len(others) == 1 else "map"
    return kind


def _parsed(schema: str) -> Any:
    import fastavro

    try:
        return fastavro.parse_schema(msgspec.json.decode(schema))
    except Exception as error:  # noqa: BLE001 - whatever a text does to the library
        raise ValueError(f"no Avro schema: {error}") from None


def proto_decoder(descriptors: bytes, message: str, *, has_header: bool) -> Decoder:
    """A decoder of one message type; needs protobuf.

    Args:
        descriptors: a FileDescriptorSet, as ``protoc --include_imports -o`` writes it.
        message: full name.
        has_header: values have Confluent's header.

    Raises:
        ValueError: the set has no such message.
    """
    from google.protobuf import json_format
    from google.protobuf import message as messages

    kind = _message_class(descriptors, message)

    def decode(payload: bytes) -> object:
        data = _behind_header(payload) if has_header else payload
        try:
            value = kind.FromString(data)
        except messages.DecodeError as error:
            raise Undecodable(str(error)) from None
        # 64-bit numbers are text in its JSON form: they are taken as numbers from the message.
        return _plain_message(value, json_format)

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
                if field.message_type.full_name.startswith("google.protobuf.") or depth > 3:
                    found[name] = "string"
                else:
                    walk(field.message_type, name, depth + 1)
            else:
                found[name] = _proto_type(field)

    walk(_message_class(descriptors, message).DESCRIPTOR, "", 0)
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


def _plain_message(value: Any, json_format: Any) -> object:
    found: dict[str, object] = {}
    for field, each in value.ListFields():
        if field.is_repeated or field.message_type is not None:
            if (
                field.message_type is not None
                and not field.is_repeated
                and not (field.message_type.full_name.startswith("google.protobuf."))
            ):
                found[field.name] = _plain_message(each, json_format)
            else:
                whole = json_format.MessageToDict(value, preserving_proto_field_name=True)
                found[field.name] = whole.get(field.name)
        elif field.enum_type is not None:
            known = field.enum_type.values_by_number.get(each)
            found[field.name] = known.name if known else str(each)
        else:
            found[field.name] = plain(each)
    return found


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
