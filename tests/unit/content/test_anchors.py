"""Which condition a filter is posted under: the rarest, and one without which it cannot hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.content import parse_filter
from perdure.content.anchors import LEVELS_MAX, POSTINGS_MAX, postings_of


@pytest.mark.parametrize(
    "wanted",
    [
        {"x": {"$in": list(range(POSTINGS_MAX + 1))}},
        {"x": [1]},
        {"x": {"$in": [1, {}]}},
        {".".join("a" * (LEVELS_MAX + 1)): 1},
        {".".join("a" * (LEVELS_MAX + 1)): {"$gt": 1, "$lt": 2}},
        {"$or": [{"x": 1}, {"y": {"$exists": True}}]},
        {},
    ],
)
def test_what_is_too_much_for_it_is_always_tried(wanted: dict[str, Any]) -> None:
    assert postings_of(parse_filter(json.dumps(wanted)).node) is None


@pytest.mark.parametrize(
    ("wanted", "anchor"),
    [
        ({"t": {"$gt": 5}, "line": 3}, [("line", 3)]),
        ({"t": {"$gt": 5, "$lte": 9}, "u": {"$lt": "m"}}, [("t", (5, 9))]),
        ({"$and": [{"t": {"$gt": 5}}, {"t": {"$lt": 9}}]}, [("t", (5, 9))]),
        ({"t": {"$gt": 5, "$lt": "m"}}, [("t", (5, None))]),
        ({"$property.t": {"$gt": 5, "$lt": 9}}, [("$t", (5, None))]),
        ({"$or": [{"a": 1}, {"b": {"$in": [2, "x"]}}]}, [("a", 1), ("b", 2), ("b", "x")]),
        ({"a": {"$in": []}}, []),
        ({"$not": {"a": 1}, "b.c": None}, [("b.c", None)]),
        ({"$payload": True}, [("", True)]),
    ],
)
def test_the_rarest_condition(wanted: dict[str, Any], anchor: list[Any]) -> None:
    found = postings_of(parse_filter(json.dumps(wanted)).node)
    assert found is not None
    assert [
        (
            "$" + each.name if each.levels is None else ".".join(each.levels),
            (each.low, each.high) if each.is_range else each.value,
        )
        for each in found
    ] == anchor
