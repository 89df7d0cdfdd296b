"""Columns out of payloads: the same values whichever way the payloads are cut into files."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
import pyarrow as pa

from perdure.payloads import schemaless
from perdure.payloads.values import Undecodable
from perdure.pipeline import fields
from perdure.pipeline.fields import FIELDS_MAX

RESERVED = frozenset({"topic", "offset"})


def look(payloads: list[bytes]) -> fields.Columns:
    """The fields of JSON payloads; what is none has none."""

    def value(payload: bytes) -> object:
        with contextlib.suppress(Undecodable):
            return schemaless.json(payload)
        return None

    return fields.look_at([value(payload) for payload in payloads], RESERVED)


def made(payloads: list[bytes], known: dict[str, str] | None = None) -> dict[str, list[Any]]:
    """The columns of payloads, in a table that grows with them."""
    columns = look(payloads)
    grown = fields.grown(known or {}, fields.count(columns))
    found = fields.arrays(columns, grown, len(payloads))
    assert [each.type for each in found] == [each.type for each in fields.schema_fields(grown)]
    return {name: each.to_pylist() for name, each in zip(grown, found, strict=True)}


def test_fields_of_objects_are_columns() -> None:
    assert made([b'{"temperature": 21.5, "on": true}', b'{"unit": "C", "n": 3}', b"{}"]) == {
        "n": [None, 3, None],
        "on": [True, None, None],
        "temperature": [21.5, None, None],
        "unit": [None, "C", None],
    }


def test_nested_objects_are_joined_and_deep_ones_are_text() -> None:
    assert made([b'{"a": {"b": {"c": {"d": {"e": 1}}}, "f": null}, "g": [1, {"h": 2}]}']) == {
        "a_b_c_d": ['{"e":1}'],
        "g": ['[1,{"h":2}]'],
    }


def test_a_payload_that_is_no_object_is_a_value() -> None:
    assert made([b"21.5", b" 3\n", b"null", b"true"]) == {"value": [21.5, 3.0, None, None]}
    assert made([b'"on"', b"[1]"]) == {"value": ["on", "[1]"]}


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"on",
        b"\xff\x00",
        b'{"a":',
        b'{"a": 1} x',
        b'{"a": "\\ud800"}',
        b"1e999",
        b"[" * 99_999,
    ],
)
def test_what_does_not_parse_has_no_fields(payload: bytes) -> None:
    assert made([payload]) == {}


def test_names_need_no_quotes() -> None:
    payload = {"Topic": 1, "Temp °C": 2, "1st": 3, "": 4, "x" * 99: 5}
    assert made([json.dumps(payload).encode()]) == {
        "_": [4],
        "_1st": [3],
        "payload_topic": [1],
        "temp_c": [2],
        "x" * 63: [5],
    }


def test_two_fields_with_one_column_keep_the_first() -> None:
    assert made([b'{"A": 1, "a": 2}', b'{"a": 3}']) == {"a": [1, 3]}


def test_whole_numbers_become_double_when_one_is_not() -> None:
    assert made([b"1", b"2"]) == {"value": [1, 2]}
    assert made([b"1.5"], {"value": "long"}) == {"value": [1.5]}
    assert made([b"1"], {"value": "double"}) == {"value": [1.0]}
    assert made([b"9223372036854775807"]) == {"value": [2**63 - 1]}
    assert made([b"9223372036854775808"]) == {"value": [float(2**63)]}
    assert made([b"1" + b"0" * 400], {"value": "double"}) == {"value": [None]}


def test_a_number_beyond_64_bits_takes_nothing_from_the_others() -> None:
    others = [b"9007199254740993", b"7"]
    assert made([*others, b"1" + b"0" * 20]) == {"value": [2**53 + 1, 7, None]}
    columns = look([b"1" + b"0" * 20])
    seen = fields.count(columns)
    assert fields.grown({"value": "long"}, seen) == {"value": "long"}
    assert fields.misfits(seen, {"value": "long"}) == 1
    assert fields.misfits(seen, {"value": "double"}) == 0


def test_a_number_beyond_a_double_is_in_no_column_and_counted() -> None:
    columns = look([b"1" + b"0" * 400, b"1" + b"0" * 20, b"1"])
    seen = fields.count(columns)
    for known in ("double", "long", "string"):
        [array] = fields.arrays(columns, {"value": known}, 3)
        assert fields.misfits(seen, {"value": known}) == array.null_count
    assert fields.grown({}, fields.count(look([b"-1" + b"0" * 400]))) == {}


def test_a_column_has_the_type_of_most_of_its_first_values() -> None:
    assert made([b'"n/a"', b"1", b"2"]) == {"value": [None, 1, 2]}
    assert made([b'"n/a"', b"1", b"true"]) == {"value": [None, 1, None]}
    assert made([b'"n/a"', b"true"]) == {"value": ["n/a", None]}
    assert made([b"true", b"true", b"1"]) == {"value": [True, True, None]}
    # And keeps it, whatever comes.
    assert made([b'"a"', b'"b"'], {"value": "long"}) == {"value": [None, None]}


def test_what_a_schema_declares_is_changed_by_a_later_schema_alone() -> None:
    fractions = {"v": {"double": 3}}
    assert fields.grown({}, {}, {"v": "long"}) == {"v": "long"}
    assert fields.grown({"v": "long"}, fractions, {"v": "long"}) == {"v": "long"}
    assert fields.grown({"v": "long"}, {}, {"v": "double"}) == {"v": "double"}
    for known, declared in (("double", "long"), ("long", "string"), ("string", "double")):
        assert fields.grown({"v": known}, fractions, {"v": declared}) == {"v": known}


def test_values_without_a_column_are_counted() -> None:
    columns = look([b'{"a": "x", "b": 1, "c": 1}'])
    seen = fields.count(columns)
    assert fields.misfits(seen, {"a": "long", "b": "double"}) == 2
    assert fields.total([seen, seen, {}])["a"] == {"string": 2}


def test_columns_have_a_bound_and_the_fullest_are_kept() -> None:
    rare = json.dumps({f"f{n:03}": n for n in range(FIELDS_MAX + 20)}).encode()
    found = made([rare, *[b'{"zz": 1}'] * 3], {"known": "string"})
    assert len(found) == FIELDS_MAX
    assert next(iter(found)) == "known"
    assert list(found)[-1] == "zz"
    full = {f"f{n}": "long" for n in range(FIELDS_MAX)}
    assert made([b'{"more": 1}'], full).keys() == full.keys()


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abA"), inner),
    max_leaves=5,
)


# The first Arrow array of a process takes seconds.
@given(
    st.lists(_values.map(lambda value: json.dumps(value).encode()), max_size=8), st.integers(0, 8)
)
def test_where_payloads_are_cut_does_not_matter(payloads: list[bytes], cut: int) -> None:
    whole = look(payloads)
    parts = [look(part) for part in (payloads[:cut], payloads[cut:])]
    seen = fields.total(map(fields.count, parts))
    assert seen == fields.count(whole)
    grown = fields.grown({}, seen)
    both = [
        fields.arrays(part, grown, rows)
        for part, rows in zip(parts, (len(payloads[:cut]), len(payloads[cut:])), strict=True)
    ]
    joined = [pa.concat_arrays(pair) for pair in zip(*both, strict=True)]
    assert joined == fields.arrays(whole, grown, len(payloads))
    stored = sum(len(each) - each.null_count for each in joined)
    total = sum(number for kinds in seen.values() for number in kinds.values())
    # Numbers beyond what a double holds have no place; nothing else is lost uncounted.
    assert stored <= total - fields.misfits(seen, grown)


def test_names_that_are_data_take_no_memory_for_rows_without_them() -> None:
    """A list for each of them, with a place for each row, would be 128 MiB."""
    payloads = [json.dumps({f"k{row}": row, "t": row}).encode() for row in range(4096)]
    tracemalloc.start()
    try:
        columns = look(payloads)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20
    seen = fields.count(columns)
    assert len(seen) == 4097
    # A field that is looked for has its values, whatever came before it.
    known = {"t": "long", "k0": "long", "k4095": "long"}
    t, first, last = fields.arrays(columns, known, 4096)
    assert t.to_pylist() == list(range(4096))
    assert (first[0].as_py(), last[4095].as_py()) == (0, 4095)
    assert (first.null_count, last.null_count) == (4095, 4095)


def test_rare_names_are_counted_together() -> None:
    seen: fields.Seen = {f"k{n}": {"long": 1} for n in range(fields.SEEN_MAX)}
    seen |= {"often": {"double": 9}, "there": {"string": 1}, fields.UNDECODED: {"payload": 2}}
    total = sum(sum(kinds.values()) for kinds in seen.values())
    less = fields.bounded(seen, {"there"})
    assert len(less) <= fields.SEEN_MAX
    assert (less["often"], less["there"]) == ({"double": 9}, {"string": 1})
    assert sum(sum(kinds.values()) for kinds in less.values()) == total
    grown = fields.grown({"there": "string"}, less)
    assert len(grown) == FIELDS_MAX
    assert grown["often"] == "double"
    # All that has no column is counted.
    stored = 1 + 9 + (len(grown) - 2)
    assert fields.misfits(less, grown) == total - stored
    assert fields.bounded(less, {"there"}) is less
