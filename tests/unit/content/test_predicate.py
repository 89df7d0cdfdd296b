"""What holds of a message, compared with the plain meaning of each word."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.content import parse_filter
from perdure.content.predicate import number_of, same

PAYLOAD = {
    "t": 21.5,
    "n": 3,
    "s": "high",
    "b": True,
    "z": None,
    "deep": {"a": {"b": [10, {"c": "x"}]}},
    "list": [1, "two", [3]],
    "big": 2**70,
    "": "empty",
    "0": "zero",
}
PROPERTIES = (("site", "north"), ("level", "7"), ("site", "south"), ("odd", "007"), ("e", "1e2"))


def holds(condition: dict[str, Any], payload: Any = PAYLOAD) -> bool:
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return parse_filter(json.dumps(condition)).holds(raw, PROPERTIES)


@pytest.mark.parametrize(
    "condition",
    [
        {},
        {"s": "high"},
        {"s": {"$eq": "high"}},
        {"t": {"$eq": 21.5}},
        {"n": 3.0},
        {"b": True},
        {"z": None},
        {"big": {"$gt": 2**69}},
        {"list": [1, "two", [3]]},
        {"deep.a": {"$eq": {"b": [10, {"c": "x"}]}}},
        {"deep.a.b.0": 10},
        {"deep.a.b.1.c": {"$in": ["x", "y"]}},
        {"0": "zero"},
        {"t": {"$gt": 21, "$lt": 22}},
        {"n": {"$gte": 3, "$lte": 3}},
        {"s": {"$gt": "hi", "$lt": "i"}},
        {"s": {"$ne": "low"}},
        {"gone": {"$ne": "low"}},
        {"gone": {"$nin": [1]}},
        {"gone": {"$exists": False}},
        {"z": {"$exists": True}},
        {"t": {"$not": {"$gt": 30}}},
        {"gone": {"$not": {"$gt": 30}}},
        {"n": {"$in": [None, {"a": 1}, 3]}},
        {"z": {"$in": [None]}},
        {"$and": [{"n": 3}, {"s": "high"}]},
        {"$or": [{"n": 4}, {"s": "high"}]},
        {"$not": {"n": 4}},
        {"$or": [{"$and": [{"n": 3}, {"$not": {"s": "low"}}]}]},
        {"$property.site": "north"},
        {"$property.site": "south"},
        {"$property.site": {"$in": ["east", "south"]}},
        {"$property.level": 7},
        {"$property.level": "7"},
        {"$property.level": {"$gt": 6.5}},
        {"$property.e": 100},
        {"$property.odd": "007"},
        {"$property.gone": {"$exists": False}},
        {"$property.site": {"$ne": "east"}},
    ],
)
def test_what_holds(condition: dict[str, Any]) -> None:
    assert holds(condition)
    assert not holds({"$not": condition})


@pytest.mark.parametrize(
    "condition",
    [
        {"s": "low"},
        {"n": "3"},
        {"n": True},
        {"b": 1},
        {"b": {"$gt": 0}},
        {"z": {"$lte": 0}},
        {"z": False},
        {"s": {"$gt": 1}},
        {"t": {"$lt": "30"}},
        {"gone": None},
        {"gone": {"$lt": 1}},
        {"gone.deeper": 1},
        {"s.length": 4},
        {"list.3": 1},
        {"list.-1": [3]},
        {"list.01x": 1},
        {"list.two": 2},
        {"list": [True, "two", [3]]},
        {"deep.a": {"$eq": {"b": [10, {"c": "x"}], "d": 1}}},
        {"n": {"$in": []}},
        {"n": {"$in": [True, "3"]}},
        {"n": {"$nin": [3]}},
        {"n": {"$exists": False}},
        {"t": {"$gt": 21, "$lt": 21.2}},
        # One value that is the wrong one is enough.
        {"$property.site": {"$ne": "north"}},
        {"$property.odd": 7},
        {"$property.gone": "x"},
        {"$property.site": {"$gt": 0}},
    ],
)
def test_what_does_not_hold(condition: dict[str, Any]) -> None:
    assert not holds(condition)


@pytest.mark.parametrize(
    "payload", [b"", b"21", b"{", b"\xff\xfe", b"[" * 5_000, b'"text"', b"nan", b'{"n":3}x']
)
def test_no_payload_is_too_odd(payload: bytes) -> None:
    assert not holds({"n": 3}, payload)
    assert holds({"n": {"$ne": 3}}, payload)
    assert holds({"$property.site": "north"}, payload)


def test_the_payload_itself() -> None:
    assert holds({"$payload": {"$gt": 20}}, b"21.5")
    assert holds({"$payload": "on"}, b'"on"')
    assert holds({"1.a": 2}, b'[0,{"a":2}]')
    assert not holds({"$payload": {"$exists": True}}, b"plain text")


def test_numbers_in_texts() -> None:
    assert [number_of(each) for each in ("0", "-3", "1.50", "2E-1")] == [0, -3, 1.5, 0.2]
    for text in ("", " 1", "+1", "01", "1.", "1_0", "inf", "nan", "0x1", "१", "1" * 65):
        assert number_of(text) is None, text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=6,
)


@given(JSON, JSON)
def test_same_is_equality_of_json(one: Any, other: Any) -> None:
    def canonical(value: Any) -> str:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, list):
            return f"[{','.join(map(canonical, value))}]"
        if isinstance(value, dict):
            members = sorted((key, canonical(each)) for key, each in value.items())
            return f"{{{members}}}"
        return json.dumps(value)

    assert same(one, one)
    assert same(one, other) == (canonical(one) == canonical(other))


@given(JSON, JSON)
def test_a_filter_and_its_opposite_part_the_messages(payload: Any, value: Any) -> None:
    raw = json.dumps(payload).encode()
    for name in ("$eq", "$in"):
        given_value = [value] if name == "$in" else value
        opposite = {"$eq": "$ne", "$in": "$nin"}[name]
        one = parse_filter(json.dumps({"a": {name: given_value}})).holds(raw)
        other = parse_filter(json.dumps({"a": {opposite: given_value}})).holds(raw)
        assert one is not other
