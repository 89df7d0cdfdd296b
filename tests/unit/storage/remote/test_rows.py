"""Blocks and keys: what is written comes back, what is broken is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.model import Message
from perdure.storage.remote import rows

MESSAGES = st.lists(
    st.builds(
        Message,
        st.text(max_size=20),
        st.binary(max_size=300_000 // 100),
        st.integers(1, 2),
        st.booleans(),
        st.text(max_size=5),
        st.binary(max_size=20),
        st.integers(0, 2**50),
        st.integers(0, 2**50),
    ),
    max_size=8,
)


@given(MESSAGES)
def test_blocks_come_back(messages: list[Message]) -> None:
    for offset, message in enumerate(messages, 1):
        message.offset = offset
    found: list[Message] = []
    for last, block in rows.encode_blocks(messages):
        decoded = rows.decode_block(block)
        assert decoded[-1].offset == last
        found += decoded
    assert found == messages


def test_a_block_ends_when_it_is_large() -> None:
    payload = bytes(rows.BLOCK_BYTES_MAX // 2)
    messages = [Message("t", payload, 1, offset=offset) for offset in range(1, 6)]
    assert [last for last, _ in rows.encode_blocks(messages)] == [2, 4, 5]
    assert list(rows.encode_blocks([])) == []


def test_broken_blocks_are_told() -> None:
    ((_, block),) = rows.encode_blocks([Message("t", b"payload", 1, offset=7)])
    for end in range(2, len(block)):
        with pytest.raises(StorageCorrupt):
            rows.decode_block(block[:end])
    with pytest.raises(StorageCorrupt):
        rows.decode_block(b"")
    with pytest.raises(FormatTooNew):
        rows.decode_block(b"\x02" + block[1:])


def test_bytes_of_a_block() -> None:
    message = Message("a", b"x", 1, publisher="p", published_at_us=5, offset=9)
    ((last, block),) = rows.encode_blocks([message])
    assert last == 9
    assert block.hex() == ("01000000000000000900010000000e610101000000000000000500017078")


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_numbers_order_as_bytes(one: int, other: int) -> None:
    assert (rows.number(one) < rows.number(other)) == (one < other)
    assert rows.parse_number(rows.number(one)) == one


def test_broken_numbers_are_told() -> None:
    with pytest.raises(StorageCorrupt):
        rows.parse_number(b"1")
    with pytest.raises(StorageCorrupt):
        rows.parse_counters(b"1")
