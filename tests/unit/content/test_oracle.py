"""Our evaluator and an independent one say the same of any filter and any message."""

from __future__ import annotations

import base64
import contextlib
import json
import math
from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.content import canonical, parse_filter
from perdure.model import Message
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Properties
from tests.support.binary_payloads import cbor_of, sparkplug_of
from tests.support.content_oracle import document_of, fulfils

NAMES = ["a", "b", "0", "1", "é"]
MOMENT = datetime(2026, 11, 23, 12, tzinfo=UTC)
DATA = "spBv1.0/g/DDATA/n/d"
EDGES = [
    *(2**53, 2**53 + 1, float(2**53), -(2**53) - 1, 2**63 - 1, 2**63, -(2**63) - 1),
    *(2**64 - 1, 2**64, float(2**64), 10**30, 1e30, 5e-324, 1.7976931348623157e308, 0.1 + 0.2),
]
"""Where floats are not integers any more, and where machine integers end."""
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([0.5, 1.0, 2.5, -0.0, 1e300, 2**70]),
    st.sampled_from(EDGES),
    st.sampled_from(["", "a", "b", "1", "2.5", "é", "\U0001f600", "z" * 5]),
    st.sampled_from(["e\u0301", "\ufffd", "\uffff", "\x00", "\u2028", "A", "ß", "ı"]),
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
ORDERED = st.one_of(
    st.integers(-2, 3),
    st.sampled_from(EDGES),
    st.sampled_from([0.5, 1.0, "", "a", "b", "1", "é", "\uffff", "\U0001f600"]),
)
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


WIDE = st.one_of(
    SCALARS,
    st.sampled_from([2**63, 2**64 - 1, -(2**63), math.nan, math.inf, b"", b"\x00\xff", MOMENT]),
)
WIDE_VALUES = st.recursive(
    WIDE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=6,
)


def as_said(value: Any) -> Any:
    """What the guide says that JSON would have in the place of a value."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return "2026-11-23T12:00:00+00:00"
        case list():
            return [as_said(each) for each in value]
        case dict():
            return {name: as_said(each) for name, each in value.items()}
    return value


def with_epochs(value: Any) -> bytes:
    """CBOR in which a moment is tag 1."""
    match value:
        case datetime():
            return b"\xc1" + cbor_of(int(value.timestamp()))
        case list():
            return bytes([0x80 | len(value)]) + b"".join(map(with_epochs, value))
        case dict():
            pairs = (cbor_of(name) + with_epochs(each) for name, each in value.items())
            return bytes([0xA0 | len(value)]) + b"".join(pairs)
    return cbor_of(value)


def told(payload: bytes, topic: str, content_type: str = "") -> Message:
    said = forward_properties(Properties(content_type=content_type or None))
    return Message(topic, payload, properties=said)


@settings(max_examples=300)
@given(FILTERS, VALUES | WIDE_VALUES)
def test_the_same_document_in_each_format(wanted: dict[str, Any], document: Any) -> None:
    expected = fulfils(wanted, as_said(document))
    parsed = parse_filter(json.dumps(wanted))
    for kind in ("application/cbor", "Application/Senml+CBOR; v=1"):
        assert parsed.fulfilled_by(told(with_epochs(document), "t", kind)) is expected
    with contextlib.suppress(OverflowError):  # MessagePack has no larger numbers
        packed = msgspec.msgpack.encode(document)
        assert parsed.fulfilled_by(told(packed, "t", "application/msgpack")) is expected
        # The content type is asked before the topic.
        assert parsed.fulfilled_by(told(packed, DATA, "application/msgpack")) is expected


@settings(max_examples=200)
@given(
    FILTERS,
    st.dictionaries(
        st.sampled_from(NAMES),
        # Sparkplug has no moments, and integers of 64 bits.
        WIDE.filter(
            lambda value: (
                not isinstance(value, datetime)
                and not (isinstance(value, int) and not -(2**63) <= value < 2**63)
            )
        ),
    ),
)
def test_sparkplug_by_its_topic(wanted: dict[str, Any], metrics: dict[str, Any]) -> None:
    payload = sparkplug_of(metrics, 17)
    expected = fulfils(wanted, as_said({"timestamp": 17, **metrics}))
    parsed = parse_filter(json.dumps(wanted))
    assert parsed.fulfilled_by(told(payload, DATA)) is expected
    assert parsed.fulfilled_by(told(payload, DATA, "text/plain")) is expected
    for elsewhere in ("spBv1.0/STATE/h", "spBv1.0/g/STATE/n", "spBv1.0/g/DDATA", "a/" + DATA):
        plainly = told(json.dumps({"a": 1}).encode(), elsewhere)
        assert parsed.fulfilled_by(plainly) is fulfils(wanted, {"a": 1})


@given(FILTERS)
def test_one_text_for_all_spellings(wanted: dict[str, Any]) -> None:
    turned = json.dumps(dict(reversed(wanted.items())), indent=2, ensure_ascii=False)
    assert canonical(turned) == canonical(json.dumps(wanted))
    assert canonical(canonical(turned)) == canonical(turned)
