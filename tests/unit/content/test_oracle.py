"""Our evaluator and an independent one say the same of any filter and any message."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.content import canonical, parse_filter
from tests.support.content_oracle import document_of, fulfils

NAMES = ["a", "b", "0", "1"]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([0.5, 1.0, 2.5, -0.0, 1e300, 2**70]),
    st.sampled_from(["", "a", "b", "1", "2.5", "é", "\U0001f600", "z" * 5]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=6,
)
FIELDS = st.one_of(
    st.just("$payload"),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(".".join),
)
PROPERTIES = st.sampled_from(["$property.a", "$property.p.q"])
ORDERS = st.sampled_from(["$gt", "$gte", "$lt", "$lte"])
ORDERED = st.integers(-2, 3) | st.sampled_from([0.5, 1.0, "", "a", "b", "1", "é"])
TEXTS = st.sampled_from(["", "a", "1", "1.0", "01", "-0", "2.5", "1e2", " 1", "é"])


def conditions(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What may stand behind a name."""
    plain = st.one_of(
        st.tuples(st.sampled_from(["$eq", "$ne"]), values),
        st.tuples(ORDERS, ORDERED),
        st.tuples(st.sampled_from(["$in", "$nin"]), st.lists(values, max_size=3)),
        st.tuples(st.just("$exists"), st.booleans()),
    )
    several = st.lists(plain, min_size=1, max_size=3).map(dict)
    return several | several.map(lambda inner: {"$not": inner})


OF_FIELDS = st.dictionaries(
    FIELDS,
    conditions(VALUES) | VALUES.filter(lambda value: not isinstance(value, dict)),
    max_size=2,
)
OF_PROPERTIES = st.dictionaries(
    PROPERTIES, conditions(TEXTS | st.integers(-1, 3)) | TEXTS, min_size=1, max_size=1
)
FILTERS = st.recursive(
    OF_FIELDS | OF_PROPERTIES,
    lambda inner: st.one_of(
        st.builds(
            lambda name, parts: {name: parts},
            st.sampled_from(["$and", "$or"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(lambda part: {"$not": part}, inner),
    ),
    max_leaves=5,
)
PAIRS = st.lists(st.tuples(st.sampled_from(["a", "p.q"]), TEXTS), max_size=3)


@settings(max_examples=400)
@given(FILTERS, VALUES, PAIRS)
def test_any_filter_on_any_document(
    wanted: dict[str, Any], document: Any, pairs: list[tuple[str, str]]
) -> None:
    payload = json.dumps(document).encode()
    expected = fulfils(wanted, document, pairs)
    text = json.dumps(wanted)
    assert parse_filter(text).holds(payload, pairs) is expected
    assert parse_filter(canonical(text)).holds(payload, pairs) is expected


@given(FILTERS, st.binary(max_size=8) | st.sampled_from([b"NaN", b"{", b'"\xff"', b"1 2", b"00"]))
def test_any_filter_on_any_bytes(wanted: dict[str, Any], payload: bytes) -> None:
    expected = fulfils(wanted, document_of(payload), ())
    assert parse_filter(json.dumps(wanted)).holds(payload) is expected


@given(FILTERS)
def test_one_text_for_all_spellings(wanted: dict[str, Any]) -> None:
    turned = json.dumps(dict(reversed(wanted.items())), indent=2, ensure_ascii=False)
    assert canonical(turned) == canonical(json.dumps(wanted))
    assert canonical(canonical(turned)) == canonical(turned)
