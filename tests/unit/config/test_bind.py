"""Binding: types, bounds, unknown keys and the places of problems."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.config.bind import Binder, Problem, coerce, suggestion
from perdure.config.document import Leaf, Origin, parse_yaml
from perdure.config.fields import FieldType, field_types
from perdure.config.schema import Config, MqttConfig, RocksdbConfig, SessionConfig, StorageConfig

FILE = Origin("file", "f:1")


def bind(text: str) -> tuple[dict[str, Any], Binder]:
    document = parse_yaml(text, "f", {})
    binder = Binder(document.places)
    return binder.section(Config, document.root), binder


def problems(text: str) -> list[str]:
    return [str(problem) for problem in bind(text)[1].problems]


def test_values_and_origins() -> None:
    values, binder = bind("mqtt:\n  packet_size_max: 1MiB\nstorage: {rocksdb: {layout: bitmask}}")
    assert values == {
        "mqtt": {"packet_size_max": 2**20},
        "storage": {"rocksdb": {"layout": "bitmask"}},
    }
    assert binder.origins["mqtt.packet_size_max"] == Origin("file", "f:2")
    assert binder.problems == []


def test_one_listener_or_a_list() -> None:
    one, binder = bind("listeners: {tcp: {backlog: 5}}")
    assert one == {"listeners": {"tcp": [{"backlog": 5}]}}
    assert list(binder.origins) == ["listeners.tcp.0.backlog"]
    many, _ = bind("listeners: {tcp: [{backlog: 5}, {backlog: 6}]}")
    assert many == {"listeners": {"tcp": [{"backlog": 5}, {"backlog": 6}]}}


def test_a_section_whose_settings_are_all_commented_out_is_empty() -> None:
    values, binder = bind("mqtt:\n  # packet_size_max: 1MiB\n")
    assert values == {"mqtt": {}}
    assert binder.problems == []


def test_all_problems_are_told_with_place_and_path() -> None:
    found = bind(
        "mqtt:\n"
        "  recieve_maximum: 5\n"
        "  maximum_qos: 3\n"
        "mqqt: {}\n"
        "storage: 5\n"
        "session: [1]\n"
        "listeners:\n"
        "  tcp:\n"
        "    bnid: x\n"
    )[1].problems
    assert found == [
        Problem("mqtt.recieve_maximum", "unknown setting", "f:2", "did you mean receive_maximum?"),
        Problem("mqtt.maximum_qos", "must be at most 2, is 3", "f:3"),
        Problem("mqqt", "unknown setting", "f:4", "did you mean mqtt?"),
        Problem("storage", "expected a section with settings below it", "f:5"),
        Problem("session", "expected one section, not a list", "f:6"),
        Problem("listeners.tcp.0.bnid", "unknown setting", "f:9", "did you mean bind?"),
    ]
    assert str(found[1]) == "f:3: mqtt.maximum_qos: must be at most 2, is 3"


def test_a_setting_of_another_section_is_suggested() -> None:
    assert suggestion("inflight_max", field_types(MqttConfig)) == (
        "did you mean session.inflight_max?"
    )
    assert suggestion("zzzzzz", field_types(MqttConfig)) == ""
    # One of the same section is nearer, also if only a word of it is named.
    assert suggestion("key", ["certificate", "private_key"]) == "did you mean private_key?"


INT = field_types(MqttConfig)["receive_maximum"]
SIZE = field_types(MqttConfig)["packet_size_max"]
TIME = field_types(SessionConfig)["pending_age_max_s"]
OUTBOUND = field_types(SessionConfig)["outbound_buffer_bytes"]
BOOL = field_types(MqttConfig)["retain_available"]
TEXT = field_types(StorageConfig)["path"]
CHOICE = field_types(StorageConfig)["durability"]
TEXTS = field_types(StorageConfig)["record"]
INTS = field_types(RocksdbConfig)["learn_thresholds"]


@pytest.mark.parametrize(
    ("value", "shape", "result"),
    [
        (5, INT, 5),
        ("5", INT, 5),
        ("2KiB", SIZE, 2048),
        (2048, SIZE, 2048),
        ("2h", TIME, 7200),
        (True, BOOL, True),
        ("off", BOOL, False),
        ("YES", BOOL, True),
        ("/data", TEXT, "/data"),
        ("os", CHOICE, "os"),
        ("a/#", TEXTS, ["a/#"]),
    ],
)
def test_values(value: object, shape: FieldType, result: object) -> None:
    assert coerce(Leaf(value, FILE), shape) == result


@pytest.mark.parametrize(
    ("value", "shape", "message"),
    [
        (True, INT, "expected a whole number"),
        (1.5, INT, "expected a whole number"),
        ("5s", INT, "expected a whole number"),
        (0, INT, "must be at least 1, is 0"),
        (70_000, INT, "must be at most 65535"),
        (10**30, TIME, "must be at most 4294967295"),
        ("9999999999d", TIME, "must be at most 4294967295"),
        (10**30, OUTBOUND, "must be at most 1125899906842624"),
        ("big", SIZE, "expected a size"),
        ("soon", TIME, "expected a duration"),
        (1, BOOL, "expected true or false"),
        ("maybe", BOOL, "expected true or false"),
        (5, TEXT, "put it in quotes"),
        ("a\0b", TEXT, r"U\+0000"),
        ("fsnyc", CHOICE, "one of memory, os, fsync.*did you mean fsync"),
        (None, TEXT, "has no value"),
        (None, INT, "has no value"),
    ],
)
def test_bad_values(value: object, shape: FieldType, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        coerce(Leaf(value, FILE), shape)


def test_lists() -> None:
    leaves: list[Any] = [Leaf("a/#", FILE), Leaf("b", FILE)]
    assert coerce(leaves, TEXTS) == ["a/#", "b"]
    assert coerce(Leaf('["#", a]', FILE, raw=True), TEXTS) == ["#", "a"]
    assert coerce(Leaf("#", FILE, raw=True), TEXTS) == ["#"]
    assert coerce(Leaf("[100, 20]", FILE, raw=True), INTS) == [100, 20]
    for bad in (Leaf("[a", FILE, raw=True), [{"a": Leaf(1, FILE)}], {"a": Leaf(1, FILE)}):
        with pytest.raises(ValueError, match="expected a list"):
            coerce(bad, TEXTS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="whole number"):
        coerce(Leaf("[x]", FILE, raw=True), INTS)


def test_one_value_is_not_a_list() -> None:
    assert problems("storage: {path: [a]}") == ["f:1: storage.path: expected one value"]


def test_addresses_are_checked_where_they_are_written() -> None:
    assert problems("listeners:\n  tcp:\n    bind: 'x:y'\n") == [
        "f:3: listeners.tcp.0.bind: expected a port from 0 to 65535, got 'y'"
    ]
