"""Every property in every packet, against table 2-4 of the specification, written out again."""

from __future__ import annotations

import pytest

from perdure.errors import MqttError, UsageError
from perdure.mqtt import packets as p
from perdure.mqtt import properties as room
from perdure.mqtt.packets import EMPTY, Properties
from perdure.mqtt.primitives import varint
from perdure.mqtt.properties import WILL
from perdure.mqtt.property_values import PROPERTY_NAMES

_REASONED = {
    p.CONNACK,
    p.PUBACK,
    p.PUBREC,
    p.PUBREL,
    p.PUBCOMP,
    p.SUBACK,
    p.UNSUBACK,
    p.DISCONNECT,
    p.AUTH,
}
_KINDS = {WILL, p.CONNECT, p.PUBLISH, p.SUBSCRIBE, p.UNSUBSCRIBE, *_REASONED}

# Name, bytes, value, packets.
ROWS: list[tuple[str, str, object, set[int]]] = [
    ("payload_format_indicator", "01 01", 1, {p.PUBLISH, WILL}),
    ("message_expiry_interval", "02 00000102", 258, {p.PUBLISH, WILL}),
    ("content_type", "03 0002 6162", "ab", {p.PUBLISH, WILL}),
    ("response_topic", "08 0001 72", "r", {p.PUBLISH, WILL}),
    ("correlation_data", "09 0002 00ff", b"\x00\xff", {p.PUBLISH, WILL}),
    ("subscription_identifiers", "0b 8001", (128,), {p.PUBLISH, p.SUBSCRIBE}),
    ("session_expiry_interval", "11 ffffffff", 0xFFFFFFFF, {p.CONNECT, p.CONNACK, p.DISCONNECT}),
    ("assigned_client_identifier", "12 0001 69", "i", {p.CONNACK}),
    ("server_keep_alive", "13 0000", 0, {p.CONNACK}),
    ("authentication_method", "15 0001 6d", "m", {p.CONNECT, p.CONNACK, p.AUTH}),
    ("authentication_data", "16 0000", b"", {p.CONNECT, p.CONNACK, p.AUTH}),
    ("request_problem_information", "17 00", 0, {p.CONNECT}),
    ("will_delay_interval", "18 00000007", 7, {WILL}),
    ("request_response_information", "19 01", 1, {p.CONNECT}),
    ("response_information", "1a 0001 69", "i", {p.CONNACK}),
    ("server_reference", "1c 0001 73", "s", {p.CONNACK, p.DISCONNECT}),
    ("reason_string", "1f 0001 72", "r", _REASONED),
    ("receive_maximum", "21 0001", 1, {p.CONNECT, p.CONNACK}),
    ("topic_alias_maximum", "22 0000", 0, {p.CONNECT, p.CONNACK}),
    ("topic_alias", "23 ffff", 65535, {p.PUBLISH}),
    ("maximum_qos", "24 00", 0, {p.CONNACK}),
    ("retain_available", "25 01", 1, {p.CONNACK}),
    ("user_properties", "26 0001 6b 0000", (("k", ""),), _KINDS),
    ("maximum_packet_size", "27 00000001", 1, {p.CONNECT, p.CONNACK}),
    ("wildcard_subscription_available", "28 00", 0, {p.CONNACK}),
    ("subscription_identifier_available", "29 01", 1, {p.CONNACK}),
    ("shared_subscription_available", "2a 01", 1, {p.CONNACK}),
]
rows = pytest.mark.parametrize(
    ("name", "raw", "value", "kinds"),
    [(name, bytes.fromhex(raw), value, kinds) for name, raw, value, kinds in ROWS],
    ids=[row[0] for row in ROWS],
)


def _read(raw: bytes, kind: int) -> Properties:
    data = varint(len(raw)) + raw
    properties, at = room.read_properties(data, 0, len(data), kind)
    assert at == len(data)
    return properties


def _reason(raw: bytes, kind: int) -> int:
    """The reason code with which both readers refuse the properties."""
    with pytest.raises(MqttError) as caught:
        _read(raw, kind)
    if kind in (p.PUBLISH, WILL):
        with pytest.raises(MqttError) as other:
            room.read_message_properties(raw, 0, len(raw), kind)
        assert other.value.reason_code == caught.value.reason_code
    return caught.value.reason_code


def test_the_table_has_all_of_them() -> None:
    assert {row[0] for row in ROWS} == set(PROPERTY_NAMES)
    assert [spec.name for spec in room.TABLE] == [row[0] for row in ROWS]


@rows
def test_where_it_may_stand(name: str, raw: bytes, value: object, kinds: set[int]) -> None:
    for kind in sorted(_KINDS):
        if kind in kinds:
            properties = _read(raw, kind)
            assert properties.present() == {name: value}
            assert room.write_properties(properties, kind) == raw
        else:
            # 2.2.2.2: an identifier that is not valid for its packet type is malformed.
            assert _reason(raw, kind) == 0x81
            properties = Properties()
            setattr(properties, name, value)
            with pytest.raises(UsageError):
                room.write_properties(properties, kind)


@rows
def test_how_often_it_may_come(name: str, raw: bytes, value: object, kinds: set[int]) -> None:
    for kind in kinds:
        if name == "user_properties" or (name, kind) == ("subscription_identifiers", p.PUBLISH):
            both = _read(raw + raw, kind)
            assert both.present() == {name: (value * 2) if isinstance(value, tuple) else None}
            assert room.write_properties(both, kind) == raw + raw
        else:
            assert _reason(raw + raw, kind) == 0x82


@rows
def test_cut_off_anywhere(name: str, raw: bytes, value: object, kinds: set[int]) -> None:
    for kind in kinds:
        for size in range(1, len(raw)):
            assert _reason(raw[:size], kind) == 0x81


@pytest.mark.parametrize(
    ("raw", "kind", "reason"),
    [
        ("01 02", p.PUBLISH, 0x82),
        ("01 ff", WILL, 0x82),
        ("17 02", p.CONNECT, 0x82),
        ("19 02", p.CONNECT, 0x82),
        ("24 02", p.CONNACK, 0x82),
        ("25 02", p.CONNACK, 0x82),
        ("28 02", p.CONNACK, 0x82),
        ("29 02", p.CONNACK, 0x82),
        ("2a 02", p.CONNACK, 0x82),
        ("21 0000", p.CONNECT, 0x82),
        ("21 0000", p.CONNACK, 0x82),
        ("27 00000000", p.CONNECT, 0x82),
        ("0b 00", p.SUBSCRIBE, 0x82),
        ("0b 00", p.PUBLISH, 0x82),
        ("0b 8000", p.SUBSCRIBE, 0x81),
        ("0b ffffffff", p.SUBSCRIBE, 0x81),
        ("23 0000", p.PUBLISH, 0x94),
        ("08 0000", p.PUBLISH, 0x82),
        ("08 0003 612f23", WILL, 0x82),
        ("08 0001 2b", WILL, 0x82),
        ("03 0001 00", WILL, 0x81),
        ("1f 0003 eda080", p.PUBACK, 0x81),
        ("26 0001 00 0000", p.CONNECT, 0x81),
        ("26 0000 0001 ff", p.CONNECT, 0x81),
    ],
)
def test_forbidden_values(raw: str, kind: int, reason: int) -> None:
    assert _reason(bytes.fromhex(raw), kind) == reason


def test_identifiers_that_there_are_not() -> None:
    known = {spec.id for spec in room.TABLE}
    for identifier in set(range(300)) - known:
        assert _reason(varint(identifier) + b"\x00", p.CONNECT) == 0x81
    for raw in ("8100 00", "8000 00", "ffffff7f 00", "ffffffff 00"):  # padded, or too long
        assert _reason(bytes.fromhex(raw), p.PUBLISH) == 0x81


@pytest.mark.spec("MQTT-2.2.2-1")
def test_no_properties_are_one_instance() -> None:
    assert _read(b"", p.CONNECT) is EMPTY
    assert EMPTY.present() == {}
    assert room.write_properties(EMPTY, p.CONNECT) == b""


@pytest.mark.parametrize("raw", ["", "01", "80", "8000", "05 1100"])
def test_a_property_length_that_is_wrong(raw: str) -> None:
    data = bytes.fromhex(raw)
    with pytest.raises(MqttError) as caught:
        room.read_properties(data, 0, len(data), p.CONNECT)
    assert caught.value.reason_code == 0x81


def test_the_will_s_own_properties_are_cut_out() -> None:
    raw = bytes.fromhex("0101 18 00000007 26 0000 0000 02 00000009 03 0001 74")
    found = room.read_message_properties(raw, 0, len(raw), WILL)
    assert (found.delay_s, found.expiry_s) == (7, 9)
    assert found.forward == bytes.fromhex("0101 26 0000 0000 03 0001 74")


def _write_half_a_maximum() -> bytes:
    wrong = Properties()
    setattr(wrong, "receive_maximum", 1.5)  # noqa: B010 - what a type checker would refuse
    return room.write_properties(wrong, p.CONNECT)


def test_values_of_the_wrong_type_cannot_be_written() -> None:
    # Compiled, the attribute itself refuses; uncompiled, the writer does.
    with pytest.raises((TypeError, UsageError)):
        _write_half_a_maximum()
