"""Every value round-trips; what is cut, foreign or from a later release is refused as such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.model import Cursor, GroupRecord, InboxEntry, Message, Subscription
from perdure.storage import codec
from tests.contract.values import record

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
OFFSETS = st.integers(0, 2**63 - 1)
MESSAGES = st.builds(
    Message,
    TEXTS,
    st.binary(max_size=50),
    st.integers(0, 2),
    st.booleans(),
    TEXTS,
    st.binary(max_size=20),
    OFFSETS | st.just(0),
    OFFSETS,
    OFFSETS,
)
ENTRIES = st.builds(
    lambda offset, message, **fields: InboxEntry(offset, message, **fields),
    OFFSETS,
    MESSAGES | st.none(),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    identifiers=st.lists(st.integers(1, 268_435_455), max_size=300).map(tuple),
    group_key=TEXTS,
    serial=st.just(0) | st.integers(0, 2**62),
    forget_at_us=st.just(0) | OFFSETS,
)


@given(MESSAGES)
def test_message(message: Message) -> None:
    value = codec.encode_message(message)
    assert codec.decode_message(message.topic, message.offset, value) == message
    retained = codec.encode_retained(message)
    assert codec.decode_retained(message.topic, retained) == message


@given(ENTRIES)
def test_entry(entry: InboxEntry) -> None:
    assert codec.decode_entry(entry.offset, codec.encode_entry(entry)) == entry


def test_entry_with_a_place_of_its_own() -> None:
    """What an entry never has costs it nothing; these bytes are on disks."""
    plain = codec.encode_entry(InboxEntry(1, None, qos=1))
    assert plain == bytes.fromhex("010100000000")
    placed = codec.encode_entry(InboxEntry(1, None, qos=1, serial=65_536, forget_at_us=2**40))
    assert placed == bytes.fromhex("011100000000" + "0000000000010000" + "0000010000000000")


@given(
    OFFSETS,
    st.integers(0, 2**62),
    st.sets(st.integers(1, 65_535), max_size=20),
    st.sets(st.integers(1, 65_535), max_size=20),
    OFFSETS,
)
def test_cursor(offset: int, serial: int, settled: set[int], released: set[int], sent: int) -> None:
    cursor = Cursor(
        offset,
        serial,
        tuple(sorted(serial + each for each in settled)),
        tuple(sorted(serial + each for each in released)),
        sent,
    )
    assert codec.decode_cursor(codec.encode_cursor(cursor)) == cursor


def test_usual_cursor_is_small() -> None:
    assert len(codec.encode_cursor(Cursor(2**60, 2**40, (), (), 2**40))) == 33


VALUES: list[tuple[bytes, Callable[[bytes], Any]]] = [
    (
        codec.encode_message(Message("t", b"", publisher="é")),
        lambda value: codec.decode_message("t", 1, value),
    ),
    (
        codec.encode_message(Message("t", b"", properties=b"pp", expires_at_us=9)),
        lambda value: codec.decode_message("t", 1, value),
    ),
    (
        codec.encode_entry(InboxEntry(1, None, qos=1, identifiers=(7,), group_key="g/é")),
        lambda value: codec.decode_entry(1, value),
    ),
    (
        codec.encode_entry(InboxEntry(1, None, qos=1, serial=70_000, forget_at_us=9)),
        lambda value: codec.decode_entry(1, value),
    ),
    (codec.encode_cursor(Cursor(5, 6, (8,), (9,), 10)), codec.decode_cursor),
    (codec.encode_record(record("c")), codec.decode_session),
    (codec.encode_record(Subscription("f")), codec.decode_subscription),
    (codec.encode_record(GroupRecord("g", "f", 1, 2)), codec.decode_group),
    (codec.encode_record(Subscription("f", where="{}", where_id="i")), codec.decode_subscription),
    (codec.encode_record(GroupRecord("g", "f", 1, 2, where="{}")), codec.decode_group),
]


@pytest.mark.parametrize(("value", "decode"), VALUES)
def test_cut_values_are_corrupt(value: bytes, decode: Callable[[bytes], Any]) -> None:
    decode(value)
    for length in range(len(value)):
        with pytest.raises(StorageCorrupt):
            decode(value[:length])


@pytest.mark.parametrize(("value", "decode"), VALUES)
def test_later_versions_are_too_new(value: bytes, decode: Callable[[bytes], Any]) -> None:
    with pytest.raises(FormatTooNew):
        decode(b"\x03" + value[1:])
    with pytest.raises(StorageCorrupt):
        decode(b"\x00" + value[1:])


@given(st.binary(max_size=60), st.sampled_from([decode for _, decode in VALUES]))
def test_any_bytes_decode_or_are_refused(value: bytes, decode: Callable[[bytes], Any]) -> None:
    try:
        decode(value)
    except (StorageCorrupt, FormatTooNew):
        return


def test_fields_of_a_later_minor_release_are_ignored() -> None:
    record = GroupRecord("g", "f", 1, 2, where="{}", where_id="i")
    value = codec.encode_record(record)
    assert value[1] == 0x9A
    longer = value[:1] + b"\x9b" + value[2:] + b"\xa3new"
    assert codec.decode_group(longer) == record


def test_publishers_are_told_apart() -> None:
    """A message has its own publisher, whoever sent the one that was decoded before."""
    names = ["a", "b", "", "ab", "ab", "a"]
    values = [codec.encode_message(Message("t", b"b", publisher=name)) for name in names]
    broken = values[0].replace(b"a", b"\xff")
    for name, value in zip(names, values, strict=True):
        assert codec.decode_message("t", 1, value).publisher == name
        with pytest.raises(StorageCorrupt):
            codec.decode_message("t", 1, broken)
        assert codec.decode_message("t", 1, value).publisher == name
