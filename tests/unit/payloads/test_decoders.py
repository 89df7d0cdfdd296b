"""Payloads of every format, made by the libraries that others make them with."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.payloads import schemaless, schemas
from perdure.payloads.cbor import cbor
from perdure.payloads.sparkplug import sparkplug
from perdure.payloads.values import Undecodable
from tests.support.binary_payloads import cbor_of, field

VALUE = {
    "t": 21.5,
    "n": -3,
    "on": True,
    "unit": "°C",
    "at": {"lat": 47.1},
    "l": [1, "x"],
    "z": None,
}
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Reading",
        "fields": [
            {"name": "device", "type": "string"},
            {"name": "value", "type": ["null", "double"], "default": None},
            {"name": "count", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "raw", "type": "bytes"},
            {
                "name": "position",
                "type": {
                    "type": "record",
                    "name": "P",
                    "fields": [{"name": "lat", "type": "float"}],
                },
            },
        ],
    }
)


def test_formats_that_say_themselves() -> None:
    assert schemaless.json(json.dumps(VALUE).encode()) == VALUE
    assert schemaless.msgpack(msgspec.msgpack.encode(VALUE)) == VALUE
    assert cbor(cbor_of(VALUE)) == VALUE
    for decoder, payload in (
        (cbor, cbor_of(VALUE) + b"\x00"),
        (cbor, cbor_of(VALUE)[:-1]),
        (schemaless.msgpack, msgspec.msgpack.encode(VALUE) + b"\x00"),
        (schemaless.json, b"{"),
    ):
        with pytest.raises(Undecodable):
            decoder(payload)


def test_lines_of_csv() -> None:
    line = schemaless.csv_decoder(("at", "t", "on"), ";")
    assert line(b"17; 21.5 ;true\r\n") == {"at": 17, "t": 21.5, "on": True}
    assert line(b'"x;y";;-2') == {"at": "x;y", "t": None, "on": -2}
    assert schemaless.csv_decoder((), ",")(b"1,a") == {"field_1": 1, "field_2": "a"}
    for payload in (b"1;2", b"1;2;3\n4;5;6", b"\xff;1;2", b""):
        with pytest.raises(Undecodable):
            line(payload)


def test_sparkplug() -> None:
    metrics = [
        field(1, b"Motor/Speed") + field(4, 10) + field(13, struct.pack("<d", 12.5), 1),
        field(1, b"Level") + field(4, 3) + field(10, (1 << 32) - 7),
        field(2, 9) + field(4, 11) + field(14, 1),
        field(1, b"Name") + field(4, 12) + field(15, "Pümpe".encode()),
        field(1, b"Small") + field(4, 9) + field(12, struct.pack("<f", 0.5), 5),
        field(1, b"Nothing") + field(4, 3) + field(7, 1),
    ]
    payload = field(1, 1_700_000_000_000) + b"".join(field(2, each) for each in metrics)
    assert sparkplug(payload + field(3, 4)) == {
        "timestamp": 1_700_000_000_000,
        "Motor/Speed": 12.5,
        "Level": -7,
        "alias_9": True,
        "Name": "Pümpe",
        "Small": 0.5,
        "Nothing": None,
        "seq": 4,
    }
    for wrong in (b"", b"{}", payload[:-1], field(9, 1)):
        with pytest.raises(Undecodable):
            sparkplug(wrong)


def test_avro_from_a_file_and_from_a_registry() -> None:
    fastavro = pytest.importorskip("fastavro")
    value = {
        "device": "d1",
        "value": None,
        "count": 7,
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "raw": b"\x01",
        "position": {"lat": 0.5},
    }
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(AVRO)), value)
    plain = {**value, "at": "2026-01-02T00:00:00+00:00", "raw": "AQ=="}
    assert schemas.avro_decoder(AVRO)(stream.getvalue()) == plain
    asked: list[int] = []

    def fetch(number: int) -> str:
        asked.append(number)
        if number != 258:
            raise KeyError("no such schema")
        return AVRO

    decoder = schemas.registry_decoder(fetch)
    for _ in range(2):
        assert decoder(b"\x00\x00\x00\x01\x02" + stream.getvalue()) == plain
    assert asked == [258]
    for wrong in (b"\x00\x00\x00\x00\x07" + stream.getvalue(), b"\x01\x00\x00\x01\x02", b"", b"{}"):
        with pytest.raises(Undecodable):
            decoder(wrong)
    assert schemas.avro_columns(AVRO) == {
        "device": "string",
        "value": "double",
        "count": "long",
        "at": "string",
        "raw": "string",
        "position_lat": "double",
    }
    with pytest.raises(ValueError, match="no Avro schema"):
        schemas.avro_decoder('{"type": "nothing"}')


def reading() -> tuple[bytes, Any]:
    """A message type, as protoc describes it."""
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="p", syntax="proto3")
    inner = file.message_type.add(name="Point")
    inner.field.add(name="lat", number=1, type=1, label=1)
    kind = file.message_type.add(name="Reading")
    kind.field.add(name="device", number=1, type=9, label=1)
    kind.field.add(name="count", number=2, type=3, label=1)
    kind.field.add(name="on", number=3, type=8, label=1)
    kind.field.add(name="point", number=4, type=11, label=1, type_name=".p.Point")
    kind.field.add(name="tags", number=5, type=9, label=3)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), file


def test_protobuf() -> None:
    described, _ = reading()
    payload = field(1, b"d1") + field(2, 1 << 40) + field(4, field(1, struct.pack("<d", 1.5), 1))
    payload += field(5, b"a") + field(5, b"b")
    expected = {"device": "d1", "count": 1 << 40, "point": {"lat": 1.5}, "tags": ["a", "b"]}
    assert schemas.proto_decoder(described, "p.Reading", has_header=False)(payload) == expected
    headed = schemas.proto_decoder(described, "p.Reading", has_header=True)
    # The path of the first message is a single zero; of others, their count and indices.
    assert headed(b"\x00\x00\x00\x00\x01\x00" + payload) == expected
    assert headed(b"\x00\x00\x00\x00\x01\x02\x02" + payload) == expected
    assert schemas.proto_columns(described, "p.Reading") == {
        "device": "string",
        "count": "long",
        "on": "boolean",
        "point_lat": "double",
        "tags": "string",
    }
    with pytest.raises(Undecodable):
        headed(payload)
    with pytest.raises(ValueError, match=r"p\.Other"):
        schemas.proto_decoder(described, "p.Other", has_header=False)


@settings(max_examples=150)
@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_are_not(payload: bytes) -> None:
    pytest.importorskip("fastavro")
    described, _ = reading()
    for decoder in (
        schemaless.json,
        schemaless.msgpack,
        cbor,
        schemaless.csv_decoder((), ","),
        sparkplug,
        schemas.avro_decoder(AVRO),
        schemas.proto_decoder(described, "p.Reading", has_header=True),
    ):
        try:
            msgspec.json.encode(decoder(payload))
        except Undecodable:
            continue
