"""Records of the layout compact: round trips, golden bytes, damage."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import StorageCorrupt, UsageError
from perdure.model import Message
from perdure.storage.device_queue import EntryState, NewEntry, QueuedEntry
from perdure.storage.redis import record

times = st.just(0) | st.integers(1, 2**53 - 1)
messages = st.builds(
    Message,
    topic=st.text(max_size=20),
    payload=st.binary(max_size=50),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    publisher=st.text(max_size=10),
    properties=st.binary(max_size=20),
    expires_at_us=times,
    published_at_us=times,
    offset=st.sampled_from([0, 7, 2**62]),
)
entries = st.builds(
    NewEntry,
    client_id=st.just("c"),
    message=messages,
    qos=st.sampled_from([1, 2]),
    retain=st.booleans(),
    identifiers=st.lists(st.integers(1, 268_435_455), max_size=5).map(tuple),
    serial=st.sampled_from([0, 7, 2**53 - 1]),
    state=st.sampled_from(EntryState),
    forget_at_us=times,
    extra=st.binary(max_size=10),
)


def stored(new: NewEntry, serial: int) -> bytes:
    """The record as the server makes it."""
    flags, body = record.encode(new)
    return (flags << 56 | serial).to_bytes(8, "big") + body


def expected(new: NewEntry, serial: int, packet_id: int) -> QueuedEntry:
    full, is_pubrel = new.message, new.state is EntryState.PUBREL
    message = Message(
        full.topic,
        b"" if is_pubrel else full.payload,
        full.qos,
        full.retain,
        full.publisher,
        full.properties,
        0 if is_pubrel else full.expires_at_us,
        full.published_at_us,
        full.offset,
    )
    return QueuedEntry(
        serial=serial,
        packet_id=packet_id,
        state=new.state,
        message=message,
        qos=new.qos,
        retain=new.retain,
        identifiers=new.identifiers,
        forget_at_us=new.forget_at_us,
        extra=new.extra,
    )


@given(entries)
def test_what_is_encoded_is_decoded(new: NewEntry) -> None:
    serial = new.serial or 99
    value = stored(new, serial)
    assert record.decode(5, value) == expected(new, serial, 5)


def test_a_long_head_has_a_long_length() -> None:
    message = Message("t" * 60_000, b"p", 1, properties=b"\x01\x01" * 10_000)
    new = NewEntry("c", message, 1)
    assert record.decode(1, stored(new, 3)) == expected(new, 3, 1)


FULL = NewEntry(
    "c",
    Message("a/b", b"xy", 2, True, "pub", b"\x01\x01", 0x3000, 0x0102, 0x44),
    2,
    identifiers=(7,),
    forget_at_us=0x2000,
    extra=b"ee",
)
GOLDEN = [
    (
        NewEntry("c", Message("a/b", b"xy", 1, published_at_us=0x0102), 2, retain=True),
        "26 0000000000000a 000b 00 00000000000102 612f62 7879",
    ),
    (
        FULL,
        (
            "ca 0000000000000a 00000000002000 0030 7f 00000000000102 0003707562 000000020101"
            " 00000000003000 0100000007 0000000000000044 000000026565 612f62 7879"
        ),
    ),
    (
        msgspec.structs.replace(FULL, state=EntryState.PUBREL),
        (
            "cb 0000000000000a 00000000002000 0029 77 00000000000102 0003707562 000000020101"
            " 0100000007 0000000000000044 000000026565 612f62"
        ),
    ),
]


@pytest.mark.parametrize(("new", "golden"), GOLDEN)
def test_the_bytes_are_as_drawn(new: NewEntry, golden: str) -> None:
    value = bytes.fromhex(golden)
    assert stored(new, 10) == value
    assert record.decode(1, value) == expected(new, 10, 1)


@pytest.mark.parametrize(("new", "golden"), GOLDEN)
def test_a_record_that_is_cut_short_is_corrupt(new: NewEntry, golden: str) -> None:
    value = bytes.fromhex(golden)
    whole = len(value) - (0 if new.state is EntryState.PUBREL else 2)
    for length in range(whole):
        with pytest.raises(StorageCorrupt):
            record.decode(1, value[:length])


def test_a_topic_that_is_no_text_is_corrupt() -> None:
    value = bytearray.fromhex(GOLDEN[0][1])
    value[-3] = 0xFF
    with pytest.raises(StorageCorrupt):
        record.decode(1, bytes(value))


def test_more_identifiers_than_a_byte_counts_are_refused() -> None:
    with pytest.raises(UsageError):
        record.encode(NewEntry("c", Message("t", b""), 1, identifiers=tuple(range(1, 257))))
