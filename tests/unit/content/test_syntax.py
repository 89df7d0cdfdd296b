"""What is no filter is told in one sentence, with the place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.content import parse_filter
from perdure.content.syntax import CONDITIONS_MAX, DEPTH_MAX, OPERATORS, TEXT_BYTES_MAX


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a content filter is a JSON object"),
        ("{", "a content filter is a JSON object"),
        ("[]", r"^expected a JSON object, got \[\]$"),
        ('"a"', 'expected a JSON object, got "a"'),
        ('{"a":{"$gt":true}}', r"^a\.\$gt: expected a number or a text, got true$"),
        ('{"a":{"$lt":null}}', r"^a\.\$lt: expected a number or a text, got null$"),
        ('{"a":{"$in":5}}', r"^a\.\$in: expected an array"),
        ('{"a":{"$exists":1}}', r"^a\.\$exists: expected true or false, got 1$"),
        ('{"a":{"$near":1}}', r"^a\.\$near: no such operator; there are \$eq, "),
        ('{"a":{"b":1}}', r"^a\.b: no such operator; for a field of a field write a\.b"),
        ('{"a":{}}', r"^a: no operator; there are"),
        ('{"a":{"$not":3}}', r"^a\.\$not: expected operators, got 3$"),
        ('{"$not":3}', r"^\$not: expected a JSON object, got 3$"),
        ('{"$and":[]}', r"^\$and: expected an array of filters$"),
        ('{"$or":{"a":1}}', r"^\$or: expected an array of filters$"),
        ('{"$or":[{"a":1},2]}', r"^\$or\[1\]: expected a JSON object, got 2$"),
        ('{"$nor":[]}', r"^\$nor: not a field; there are \$and"),
        ('{"a..b":1}', r"^a\.\.b: a field has a name on each side of a dot$"),
        ('{"":1}', "a field has a name"),
        ('{"$property.x":true}', r"a user property is a text or a number, never true$"),
        ('{"$property.x":{"$in":["a",[1]]}}', r"never \[1\]$"),
        ('{"a":"%s"}' % ("x" * TEXT_BYTES_MAX), "at most 65536 bytes"),
    ],
)
def test_what_is_no_filter(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        parse_filter(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_bounds() -> None:
    deep: Any = {"a": 1}
    for _ in range(DEPTH_MAX - 1):
        deep = {"$not": deep}
    assert parse_filter(json.dumps(deep)).holds(b'{"a":1}') is (DEPTH_MAX % 2 == 1)
    with pytest.raises(ValueError, match="nested more than"):
        parse_filter(json.dumps({"$not": deep}))
    operators: Any = {"$gt": 1}
    for _ in range(DEPTH_MAX):
        operators = {"$not": operators}
    with pytest.raises(ValueError, match="nested more than"):
        parse_filter(json.dumps({"a": operators}))
    many = {"$or": [{"a": number} for number in range(CONDITIONS_MAX)]}
    assert parse_filter(json.dumps(many)).holds(b'{"a":9}')
    many["$or"].append({"a": 0})
    with pytest.raises(ValueError, match=f"at most {CONDITIONS_MAX}"):
        parse_filter(json.dumps(many))


def test_each_text_is_parsed_once() -> None:
    one = parse_filter('{"a":1}')
    assert parse_filter('{"a":1}') is one
    assert repr(one) == """ContentFilter('{"a":1}')"""
    assert not one.uses_properties
    assert parse_filter('{"$or":[{"a":1},{"$property.b":"c"}]}').uses_properties


NAMES = st.sampled_from(["a", "a.b", "$and", "$or", "$not", "$payload", "$property.p", *OPERATORS])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text("ab.$", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=10,
)


@given(ANYTHING, ANYTHING)
def test_anything_is_a_filter_or_told(value: Any, payload: Any) -> None:
    try:
        found = parse_filter(json.dumps(value))
    except ValueError:
        return
    assert found.holds(json.dumps(payload).encode(), (("p", "1"),)) in {True, False}
