"""Payloads of every format, made by the libraries that others make them with."""

from __future__ import annotations

import csv
import io
import json
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.limits import CONTENT_DEPTH_MAX
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
    # Python reads these as numbers, nobody else does.
    assert schemaless.csv_decoder((), ",")(b"1_000,2_0.5") == {
        "field_1": "1_000",
        "field_2": "2_0.5",
    }
    for payload in (b"1;2", b"1;2;3\n4;5;6", b"\xff;1;2", b""):
        with pytest.raises(Undecodable):
            line(payload)


@pytest.mark.parametrize("inside", ["x\ny", "x\r\ny", "a\u2028b", "a\x85b", "a\x0bb", "a\x1cb", ""])
def test_a_line_of_csv_ends_where_its_library_says(inside: str) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerow([1, inside, "end"])
    found = schemaless.csv_decoder(("n", "text", "last"), ",")(text.getvalue().encode())
    assert found == {"n": 1, "text": inside or None, "last": "end"}
    if not set(inside) & set("\r\n"):
        # Only CR and LF end a line that has no quotes.
        assert schemaless.csv_decoder((), ",")(f"{inside}z,1".encode()) == {
            "field_1": f"{inside}z",
            "field_2": 1,
        }


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
    expected = {
        "device": "d1",
        "count": 1 << 40,
        "on": False,
        "point": {"lat": 1.5},
        "tags": ["a", "b"],
    }
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


def proto(syntax: str, *fields: tuple[str, dict[str, Any]]) -> Any:
    """A decoder of a message type with these fields, numbered from 1, and their columns."""
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, timestamp_pb2

    moments = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(moments)
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="p", syntax=syntax)
    file.dependency.append(moments.name)
    kind = file.message_type.add(name="R")
    for number, (name, wanted) in enumerate(fields, 1):
        if wanted.pop("optional", False):
            wanted["oneof_index"] = len(kind.oneof_decl)
            wanted["proto3_optional"] = True
            kind.oneof_decl.add(name=f"_{name}")
        kind.field.add(name=name, number=number, label=wanted.pop("label", 1), **wanted)
    described = descriptor_pb2.FileDescriptorSet(file=[moments, file]).SerializeToString()
    return schemas.proto_decoder(described, "p.R", has_header=False), described


def test_a_proto3_value_that_is_not_sent_is_a_zero_unless_it_is_optional() -> None:
    decoder, _ = proto(
        "proto3",
        ("celsius", {"type": 1}),
        ("name", {"type": 9}),
        ("maybe", {"type": 5, "optional": True}),
        ("at", {"type": 11, "type_name": ".google.protobuf.Timestamp"}),
        ("many", {"type": 5, "label": 3}),
        ("next", {"type": 11, "type_name": ".p.R"}),
    )
    assert decoder(b"") == {"celsius": 0.0, "name": ""}
    assert decoder(field(3, 0) + field(4, field(1, 1)) + field(6, b"")) == {
        "celsius": 0.0,
        "name": "",
        "maybe": 0,
        "at": "1970-01-01T00:00:01Z",
        "next": {"celsius": 0.0, "name": ""},
    }
    old, _ = proto("proto2", ("celsius", {"type": 1}), ("name", {"type": 9}))
    assert old(b"") == {}
    assert old(field(2, b"x")) == {"name": "x"}


def test_a_proto_message_that_cannot_be_told_is_a_misfit_and_no_crash() -> None:
    moment, _ = proto("proto3", ("at", {"type": 11, "type_name": ".google.protobuf.Timestamp"}))
    with pytest.raises(Undecodable):
        moment(field(1, field(1, (1 << 64) - 1 - (1 << 60))))


def test_declared_columns_are_no_deeper_than_columns_are() -> None:
    _, described = proto("proto3", ("n", {"type": 5}), ("r", {"type": 11, "type_name": ".p.R"}))
    assert schemas.proto_columns(described, "p.R") == {
        "n": "long",
        "r_n": "long",
        "r_r_n": "long",
        "r_r_r_n": "long",
        "r_r_r_r": "string",
    }
    deep: dict[str, Any] = {"type": "record", "name": "A", "fields": []}
    deep["fields"] = [{"name": "n", "type": "int"}, {"name": "a", "type": ["null", "A"]}]
    assert schemas.avro_columns(json.dumps(deep)) == {
        "n": "long",
        "a_n": "long",
        "a_a_n": "long",
        "a_a_a_n": "long",
        "a_a_a_a": "string",
    }


def test_avro_columns_are_of_the_types_that_values_have() -> None:
    fastavro = pytest.importorskip("fastavro")
    point = {"type": "record", "name": "P", "fields": [{"name": "lat", "type": "float"}]}
    schema: dict[str, Any] = {"type": "record", "name": "R", "namespace": "x", "fields": []}
    schema["fields"] = [
        {"name": "raw", "type": {"type": "int", "logicalType": "celsius-times-ten"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "from", "type": point},
        {"name": "to", "type": "P"},
    ]
    text = json.dumps(schema)
    stream = io.BytesIO()
    value = {"raw": 215, "day": 1, "from": {"lat": 0.5}, "to": {"lat": 1.5}}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    assert schemas.avro_decoder(text)(stream.getvalue()) == {**value, "day": "1970-01-02"}
    assert schemas.avro_columns(text) == {
        "raw": "long",
        "day": "string",
        "from_lat": "double",
        "to_lat": "double",
    }


def test_a_schema_that_the_registry_does_not_have_is_asked_for_once() -> None:
    pytest.importorskip("fastavro")
    asked: list[int] = []

    def fetch(number: int) -> str:
        asked.append(number)
        raise KeyError("no such schema")

    decoder = schemas.registry_decoder(fetch)
    for number in (7, 7, 8, 7):
        with pytest.raises(Undecodable):
            decoder(b"\x00" + number.to_bytes(4) + b"x")
    assert asked == [7, 8]


NODE = {"type": "record", "name": "a.N", "fields": [{"name": "n", "type": ["null", "N"]}]}
TREE = {
    "type": "record",
    "name": "T",
    "fields": [{"name": "k", "type": {"type": "array", "items": "T"}}],
}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}


@pytest.mark.parametrize("schema", [NODE, TREE])
def test_how_deep_avro_goes_into_a_type_that_holds_itself(schema: object) -> None:
    """The library went on until the stack was full, which ended the process."""
    pytest.importorskip("fastavro")
    decoder = schemas.avro_decoder(json.dumps(schema))
    with pytest.raises(Undecodable):
        decoder(b"\x02" * 1_000_000)
    if schema is NODE:
        assert decoder(b"\x02\x02\x00") == {"n": {"n": {"n": None}}}
    else:
        assert decoder(b"\x02\x00\x00") == {"k": [{"k": []}]}


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "null"},
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "record", "name": "R", "fields": []},
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "null"}]},
    ],
)
def test_an_avro_array_of_nothing_is_no_schema_here(items: object) -> None:
    """Ten bytes could say that there are 2**60 of them."""
    pytest.importorskip("fastavro")
    schema = {"type": "map", "values": {"type": "array", "items": items}}
    with pytest.raises(ValueError, match="take no bytes"):
        schemas.avro_decoder(json.dumps(schema))


@pytest.mark.parametrize("items", ["int", ["null"], {"type": "array", "items": "int"}])
def test_an_avro_array_of_something_is(items: object) -> None:
    pytest.importorskip("fastavro")
    decoder = schemas.avro_decoder(json.dumps({"type": "array", "items": items}))
    assert decoder(b"\x00") == []
    with pytest.raises(Undecodable):
        decoder(b"\xfe" * 8 + b"\x7f\x00")


def test_a_decimal_of_avro_is_a_number_of_bounded_length() -> None:
    """Digits take the square of their number: 4 MB took minutes."""
    fastavro = pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "R", "fields": [{"name": "d", "type": DECIMAL}]}
    decoder = schemas.avro_decoder(json.dumps(schema))
    for value in ("12.34", "-0.01", "0", "123456789012345678.90"):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), {"d": Decimal(value)})
        assert decoder(stream.getvalue()) == {"d": float(value)}
    for size in (b"\xd0\x0f", b"\xd2\x0f"):  # 1,000 and 1,001 bytes
        with pytest.raises(Undecodable):
            decoder(size + b"\x7f" * (1000 + (size != b"\xd0\x0f")))


def test_json_is_read_as_deep_by_all_who_call() -> None:
    """What was read near Python's own bound could not be written again, a few calls deeper."""
    for begin, end in ((b"[", b"]"), (b'{"a":', b"}")):
        for depth, read in (
            (CONTENT_DEPTH_MAX, True),
            (CONTENT_DEPTH_MAX + 1, False),
            (990, False),
        ):
            payload = begin * (depth - 1) + begin[:1] + end[:1] + end * (depth - 1)
            if read:
                schemaless.json(payload)
                continue
            with pytest.raises(Undecodable):
                schemaless.json(payload)
    assert schemaless.json(b"[" + b"[]," * 200 + b"1]")


@settings(max_examples=150)
@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_are_not(payload: bytes) -> None:
    pytest.importorskip("fastavro")
    described, _ = reading()
    moment, _ = proto(
        "proto2",
        ("at", {"type": 11, "type_name": ".google.protobuf.Timestamp"}),
        ("name", {"type": 9}),
    )
    for decoder in (
        schemaless.json,
        schemaless.msgpack,
        cbor,
        schemaless.csv_decoder((), ","),
        sparkplug,
        schemas.avro_decoder(AVRO),
        schemas.proto_decoder(described, "p.Reading", has_header=True),
        moment,
    ):
        try:
            msgspec.json.encode(decoder(payload))
        except Undecodable:
            continue
