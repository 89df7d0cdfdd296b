"""A record comes back as it was; its bytes are in ``tests/golden/log_record.jsonl``.

Each line of the golden file is a name and the bytes of one record, written by the release that
introduced the version: a release that cannot read them cannot be beside one that wrote them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.storage.ordered.record import (
    ANYHOW,
    NAME_BYTES_MAX,
    PREFIX_BYTES_MAX,
    Begin,
    Expel,
    Expire,
    Forget,
    Join,
    Leave,
    Record,
    decode_record,
    encode_record,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "log_record.jsonl"
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
NUMBERS = st.integers(0, 2**64 - 1)
ACTS = st.one_of(
    st.builds(Join, st.integers(0, 255), NAMES),
    st.builds(Leave),
    st.builds(Expel, NAMES, NUMBERS, NUMBERS),
    st.builds(Forget, NAMES),
    st.builds(Expire, NUMBERS, NAMES),
    st.builds(Begin, NUMBERS, NAMES),
)
RECORDS = st.builds(
    Record,
    NAMES,
    NUMBERS,
    NUMBERS,
    st.lists(ACTS, max_size=4).map(tuple),
    st.binary(),
    st.booleans(),
)
EXAMPLES = {
    "heartbeat": Record("n1", 7, 12),
    "join": Record("n1", 2**63, 1, (Join(1, "mqtt.example:1883"),)),
    "leave": Record("knoten-ä", 7, 13, (Leave(),)),
    "expel": Record("n1", 7, 14, (Expel("n2", 9, 40), Expel("n3", 10, ANYHOW))),
    "forget": Record("n1", 7, 15, (Forget("n2"),)),
    "expire": Record("n1", 7, 16, (Expire(1_700_000_000_000_000, "a/b"),)),
    "begin": Record("n1", 7, 1, (Join(1), Begin(1_700_000_000_000_000, "9f" * 16))),
    "batch": Record("n1", 7, 17, (), b"\1\0\0\0\0\0\0\0\0"),
    "part": Record("n1", 7, 18, (), b"some of it", more=True),
}


@given(RECORDS)
def test_what_is_encoded_is_decoded(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


def test_the_golden_records_are_read_and_written() -> None:
    lines = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    assert {name for name, _ in lines} == set(EXAMPLES)
    for name, value in lines:
        assert decode_record(bytes.fromhex(value)) == EXAMPLES[name], name
        assert encode_record(EXAMPLES[name]).hex() == value, name


def test_what_stands_before_a_batch_is_within_its_bound() -> None:
    name = "x" * NAME_BYTES_MAX
    assert len(encode_record(Record(name, 2**63, 2**63, (Join(1),)))) <= PREFIX_BYTES_MAX


def test_a_later_version_is_told_apart_from_damage() -> None:
    value = encode_record(EXAMPLES["heartbeat"])
    with pytest.raises(FormatTooNew) as refused:
        decode_record(b"\2" + value[1:])
    assert refused.value.hint == "upgrade this node"
    for damaged in (b"", b"\0" + value[1:], value[:4], value[:-1]):
        with pytest.raises(StorageCorrupt):
            decode_record(damaged)


@given(st.binary())
def test_any_bytes_are_a_record_or_refused(value: bytes) -> None:
    try:
        record = decode_record(value)
    except (StorageCorrupt, FormatTooNew):
        return
    assert decode_record(encode_record(record)) == record
