"""The index finds every filter that holds, whatever filters and documents there are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from perdure.content import parse_filter
from perdure.content.document import Content
from perdure.content.index import ContentIndex
from tests.support.content_oracle import fulfils
from tests.unit.content.test_oracle import FILTERS, PAIRS, VALUES

NUMBERS = st.integers(-3, 3) | st.sampled_from([0.5, 1.0, -0.0, 2.5, 2**53, 2**53 + 1, 1e300])
BOUNDED = st.one_of(
    st.builds(
        lambda low, high, name: {name: {"$gte": low, "$lt": high}},
        NUMBERS, NUMBERS, st.sampled_from(["a", "b.a", "$payload"]),
    ),
    st.builds(
        lambda low, high: {"$and": [{"$property.a": {"$gt": low}}, {"$property.a": {"$lt": high}}]},
        NUMBERS, NUMBERS,
    ),
    st.builds(
        lambda low, other, value: {"$or": [{"a": {"$gt": low}}, {"b": other}], "c": value},
        NUMBERS, NUMBERS, st.sampled_from([None, True, 1, "x"]),
    ),
)  # fmt: skip
DOCUMENTS = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {},
        optional={
            "a": NUMBERS,
            "b": NUMBERS | st.fixed_dictionaries({"a": NUMBERS}) | st.lists(NUMBERS, max_size=2),
            "c": st.sampled_from([None, True, 1, 1.0, "x", False, 0]),
        },
    ),
)


def index_of(filters: list[dict[str, Any]]) -> ContentIndex:
    index = ContentIndex()
    for each in filters:
        index.put(parse_filter(json.dumps(each)))
    return index


def holding(index: ContentIndex, payload: bytes, pairs: list[tuple[str, str]]) -> set[str]:
    content = Content(payload, pairs)
    found = index.candidates(content)
    assert len(found) == len(set(found))
    return {text for text in found if parse_filter(text).holds_for(content)}


@settings(max_examples=200)
@given(st.lists(FILTERS | BOUNDED, max_size=12), DOCUMENTS, PAIRS)
def test_equal_to_trying_each(
    filters: list[dict[str, Any]], document: Any, pairs: list[tuple[str, str]]
) -> None:
    """Against the evaluator that shares nothing with ours."""
    expected = {json.dumps(each) for each in filters if fulfils(each, document, pairs)}
    assert holding(index_of(filters), json.dumps(document).encode(), pairs) == expected


class ChangingFilters(RuleBasedStateMachine):
    """Filters come and go, many more than are built into the ranges at once."""

    def __init__(self) -> None:
        super().__init__()
        self.index = ContentIndex()
        self.held: dict[str, dict[str, Any]] = {}

    @rule(first=st.integers(-50, 50), count=st.integers(1, 120), width=st.integers(0, 9))
    def put_ranges(self, first: int, count: int, width: int) -> None:
        for low in range(first, first + count):
            self.put({"t": {"$gte": low, "$lte": low + width}} if low % 3 else {"t": {"$lt": low}})

    @rule(wanted=FILTERS | BOUNDED)
    def put(self, wanted: dict[str, Any]) -> None:
        text = json.dumps(wanted)
        self.index.put(parse_filter(text))
        self.held[text] = wanted

    @rule(every=st.integers(1, 4))
    def remove(self, every: int) -> None:
        for text in list(self.held)[::every]:
            self.index.remove(parse_filter(text))
            del self.held[text]

    @rule(document=DOCUMENTS | NUMBERS.map(lambda t: {"t": t}), pairs=PAIRS)
    def ask(self, document: Any, pairs: list[tuple[str, str]]) -> None:
        payload = json.dumps(document).encode()
        found = holding(self.index, payload, pairs) & self.held.keys()
        assert found == {text for text, each in self.held.items() if fulfils(each, document, pairs)}

    @invariant()
    def nothing_is_left_of_nothing(self) -> None:
        if not self.held:
            assert self.index.is_empty


TestChangingFilters = ChangingFilters.TestCase
TestChangingFilters.settings = settings(max_examples=40, stateful_step_count=10, deadline=None)


@pytest.mark.parametrize(
    ("filters", "document", "tried"),
    [
        ([{"line": n, "t": {"$gt": 30}} for n in range(1_000)], {"line": 5, "t": 31}, 1),
        ([{"line": {"$in": [n, n + 1]}} for n in range(1_000)], {"line": 5}, 2),
        ([{"t": {"$gte": n, "$lt": n + 3}} for n in range(1_000)], {"t": 500}, 4),
        ([{"t": {"$gt": n}} for n in range(1_000)], {"t": 5}, 6),
        ([{"a.b": {"$lt": "m"}, "n": n} for n in range(1_000)], {"a": {"b": "c"}}, 0),
        ([{"$property.site": f"s{n}"} for n in range(1_000)], {}, 1),
        ([{"$or": [{"x": n}, {"y": -n}]} for n in range(1, 1_000)], {"x": 7, "y": -9}, 2),
        ([{"x": {"$ne": n}} for n in range(50)], {"x": 7}, 50),
        ([{"x": n} for n in range(1_000)], {"x": float("nan")}, 0),
    ],
)
def test_few_are_tried(filters: list[dict[str, Any]], document: Any, tried: int) -> None:
    """What no anchor can tell is tried, and nothing else."""
    content = Content(json.dumps(document).encode(), [("site", "s7")])
    assert len(index_of(filters).candidates(content)) == tried
