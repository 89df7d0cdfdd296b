"""Unit tests of the records of learned topic structure; the bytes are golden."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.topic.records import (
    DOLLAR_OVERFLOW_ROOT_ID,
    OVERFLOW_ROOT_ID,
    NodeRecord,
    decode_record,
)

GOLDEN = [
    (
        NodeRecord(node_id=2, parent_id=0, token="devices", is_stream=False),
        "0100" + "0000000000000002" + "0000000000000000" + "0007" + "64657669636573",
    ),
    (
        NodeRecord(node_id=3, parent_id=1, token="+", is_stream=True),
        "0101" + "0000000000000003" + "0000000000000001" + "0001" + "2b",
    ),
    (
        NodeRecord(node_id=2**40, parent_id=2**33, token="", is_stream=True),
        "0101" + "0000010000000000" + "0000000200000000" + "0000",
    ),
    (
        NodeRecord(node_id=9, parent_id=8, token="ü", is_stream=False),
        "0100" + "0000000000000009" + "0000000000000008" + "0002" + "c3bc",
    ),
    (  # earlier releases do not know these roots, and say so by the version
        NodeRecord(node_id=7, parent_id=OVERFLOW_ROOT_ID, token="+", is_stream=True),
        "0201" + "0000000000000007" + "ffffffffffffffff" + "0001" + "2b",
    ),
    (
        NodeRecord(node_id=7, parent_id=DOLLAR_OVERFLOW_ROOT_ID, token="+", is_stream=False),
        "0200" + "0000000000000007" + "fffffffffffffffe" + "0001" + "2b",
    ),
]


@pytest.mark.parametrize(("record", "golden"), GOLDEN)
def test_golden_bytes(record: NodeRecord, golden: str) -> None:
    assert record.encode().hex() == golden
    assert decode_record(bytes.fromhex(golden)) == record


@given(
    st.integers(2, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.text(st.characters(codec="utf-8"), max_size=100),
    st.booleans(),
)
def test_round_trip(node_id: int, parent_id: int, token: str, is_stream: bool) -> None:
    record = NodeRecord(node_id=node_id, parent_id=parent_id, token=token, is_stream=is_stream)
    again = decode_record(record.encode())
    assert again == record
    assert hash(again) == hash(record)
    assert repr(again) == repr(record)


def test_what_a_later_release_adds_is_ignored() -> None:
    record, golden = GOLDEN[0]
    with_more = bytes.fromhex(golden + "ffff")
    assert decode_record(with_more) == record
    with_flags = with_more[:1] + b"\xfe" + with_more[2:]
    assert decode_record(with_flags) == record


def test_a_later_version_is_refused() -> None:
    data = bytes.fromhex(GOLDEN[0][1])
    with pytest.raises(FormatTooNew):
        decode_record(b"\x03" + data[1:])


def test_bytes_that_are_no_record_are_corrupt() -> None:
    data = bytes.fromhex(GOLDEN[0][1])
    for broken in [data[:length] for length in range(len(data))]:
        with pytest.raises(StorageCorrupt):
            decode_record(broken)
    with pytest.raises(StorageCorrupt):
        decode_record(b"\x00" + data[1:])
    with pytest.raises(StorageCorrupt, match="UTF-8"):
        decode_record(data[:-1] + b"\xff")


def test_records_differ_in_each_field() -> None:
    record = GOLDEN[0][0]
    others = [
        NodeRecord(node_id=3, parent_id=0, token="devices", is_stream=False),
        NodeRecord(node_id=2, parent_id=1, token="devices", is_stream=False),
        NodeRecord(node_id=2, parent_id=0, token="device", is_stream=False),
        NodeRecord(node_id=2, parent_id=0, token="devices", is_stream=True),
    ]
    assert all(record != other for other in others)
    assert record != "devices"
