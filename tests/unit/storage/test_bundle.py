"""A bundle gives back its messages, whole or in part, and is refused when it is damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.limits import OFFSET_MAX
from perdure.model import Message
from perdure.storage import bundle
from perdure.storage.codec import decode_message, encode_message

FIRST = 1_000
MESSAGES = st.builds(
    lambda publisher, properties, expires_at_us, payload, skip: (
        Message(
            "t",
            payload,
            1,
            publisher=publisher,
            properties=properties,
            expires_at_us=expires_at_us,
            published_at_us=5,
        ),
        skip,
    ),
    st.sampled_from(["", "ü", "p"]),
    st.sampled_from([b"", b"", b"\x01\x01"]),
    st.sampled_from([0, 0, 9]),
    st.binary(max_size=9),
    st.sampled_from([1, 1, 1, 2]),
)


def burst(count: int, **fields: object) -> list[Message]:
    """Messages that differ in nothing but their payloads and offsets."""
    values: dict[str, object] = {"qos": 1, "publisher": "p", "published_at_us": 7, **fields}
    return [
        Message("t", b"%d" % number, offset=FIRST + number, **values)  # type: ignore[arg-type]
        for number in range(count)
    ]


def rows_of(messages: list[Message]) -> list[tuple[int, bytes]]:
    rows, first = [], 0
    while first < len(messages):
        stop = bundle.run_end(messages, first)
        rows.append((messages[stop - 1].offset, bundle.encode_run(messages, first, stop)))
        first = stop
    return rows


@given(st.lists(MESSAGES, max_size=80), st.integers(-2, 90), st.integers(-2, 90))
def test_what_is_bundled_comes_back(drawn: list[tuple[Message, int]], low: int, high: int) -> None:
    offset, messages = FIRST, []
    for message, skip in drawn:
        message.offset = offset = offset + skip
        messages.append(message)
    rows = rows_of(messages)
    after, until = FIRST + low, FIRST + high
    expected = [message for message in messages if after < message.offset <= until]
    decoded, split, count = [], [], 0
    for at, value in rows:
        if after < at <= bundle.reach(until):
            decoded += bundle.decode_row("t", at, value, after, until)
            split += bundle.split_row(at, value, after, until)
            count += bundle.count_of(value, at, after, until)
    assert decoded == expected
    assert [decode_message("t", at, value) for at, value in split] == expected
    assert [value for _, value in split] == [encode_message(message) for message in expected]
    assert count == len(expected)


def test_a_burst_is_one_row_and_one_message_is_a_message() -> None:
    ((at, value),) = rows_of(burst(16))
    assert at == FIRST + 15
    assert bundle.is_bundle(value)
    assert len(value) < 16 * len(encode_message(burst(1)[0])) / 2
    (single,) = burst(1)
    assert rows_of([single]) == [(FIRST, encode_message(single))]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("topic", "u"),
        ("publisher", "q"),
        ("qos", 2),
        ("retain", True),
        ("properties", b"\x01\x00"),
        ("expires_at_us", 3),
        ("published_at_us", 8),
        ("offset", FIRST + 9),
    ],
)
def test_what_differs_ends_a_run(field: str, value: object) -> None:
    messages = burst(3)
    setattr(messages[2], field, value)
    assert bundle.run_end(messages, 0) == 2


def test_a_bundle_has_bounds() -> None:
    messages = burst(bundle.MESSAGES_MAX + 1)
    assert bundle.run_end(messages, 0) == bundle.MESSAGES_MAX
    large = burst(3)
    large[0].payload = bytes(bundle.PAYLOAD_BYTES_MAX - 1)
    assert bundle.run_end(large, 0) == 2
    large[0].payload = bytes(bundle.PAYLOAD_BYTES_MAX + 1)
    assert bundle.run_end(large, 0) == 1


def test_a_key_is_within_reach_of_its_first_message() -> None:
    messages = burst(bundle.MESSAGES_MAX)
    ((at, value),) = rows_of(messages)
    assert bundle.reach(FIRST) == at
    assert bundle.decode_row("t", at, value, 0, FIRST) == messages[:1]
    assert bundle.reach(OFFSET_MAX) == OFFSET_MAX


def test_a_damaged_bundle_is_corrupt() -> None:
    for fields in ({}, {"properties": b"\x01\x01"}):
        ((at, value),) = rows_of(burst(3, **fields))
        for damaged in [value[:size] for size in range(1, len(value))] + [value + b"x"]:
            with pytest.raises(StorageCorrupt):
                bundle.decode_row("t", at, damaged, 0, at)
            with pytest.raises(StorageCorrupt):
                bundle.split_row(at, damaged, 0, at)
    with pytest.raises(StorageCorrupt):
        bundle.decode_row("t", 5, b"", 0, 5)


def test_a_later_version_is_refused() -> None:
    value = b"\x03" + encode_message(burst(1)[0])[1:]
    with pytest.raises(FormatTooNew):
        bundle.decode_row("t", FIRST, value, 0, FIRST)
