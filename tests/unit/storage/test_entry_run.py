"""Several entries in one value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import StorageCorrupt
from perdure.model import InboxEntry
from perdure.storage.codec import encode_entry
from perdure.storage.entry_run import (
    ENTRIES_MAX,
    can_be_run,
    decode_entries,
    encode_entries,
)
from tests.contract.values import message


def run(*payloads: bytes, first: int = 7) -> list[InboxEntry]:
    return [
        InboxEntry(
            first + number,
            message("a/ü", payload, offset=number + 1, properties=b"\x01\x01" * (number % 2)),
            qos=1,
            identifiers=(9,),
            group_key="g/a/#",
        )
        for number, payload in enumerate(payloads)
    ]


def test_these_bytes_are_on_disks() -> None:
    entries = run(b"x", b"")
    value = encode_entries(entries)
    assert value.hex() == (
        "020100010005000200000009672f612f23"
        "00000000000000010004" + "00000010"
        "00000000000000020004" + "0000001d"
        "612fc3bc" + "0101" + value[51:59].hex() + "0003" + "707562" + "78"
        "612fc3bc" + "0109" + value[51:59].hex() + "0003" + "0000000000000000" + "00000002"
        "707562" + "0101"
    )
    assert decode_entries(8, value) == entries


def test_what_one_publisher_sent_to_a_topic_is_one_piece_on_disks() -> None:
    entries = [
        InboxEntry(7 + number, message("a", b"x" * number, offset=5 + number), qos=1, group_key="g")
        for number in range(3)
    ]
    value = encode_entries(entries)
    time = value[26:34].hex()
    assert value.hex() == (
        "0201000000010001" + "67"
        "00000000000000070001" + "00000020"
        "61" + "0201" + time + "0003" + "707562" + "0003"
        "000000000000000100000002" + "787878"
    )
    assert decode_entries(9, value) == entries


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "a/ü"]),
            st.binary(max_size=3),
            st.sampled_from(["pub", "", "other"]),
            st.sampled_from([b"", b"\x01\x01"]),
            st.sampled_from([1, 1, 1, 9]),
        ),
        min_size=1,
        max_size=ENTRIES_MAX,
    )
)
def test_what_is_encoded_is_decoded(
    sent: list[tuple[str, bytes, str, bytes, int]],
) -> None:
    entries: list[InboxEntry] = []
    offset = 0
    for topic, payload, publisher, properties, distance in sent:
        offset += distance
        each = message(topic, payload, publisher=publisher, properties=properties, offset=offset)
        entries.append(InboxEntry(100 + len(entries), each, qos=1, group_key="g/a"))
    assert decode_entries(entries[-1].offset, encode_entries(entries)) == entries


def test_one_entry_is_read_as_a_run_of_one() -> None:
    (entry,) = run(b"x")
    assert decode_entries(7, encode_entry(entry)) == [entry]
    assert not can_be_run([entry])


def test_what_does_not_follow_each_other_is_no_run() -> None:
    assert can_be_run(run(b"", b""))
    assert not can_be_run([*run(b""), *run(b"", first=9)])
    assert can_be_run(run(*[b""] * ENTRIES_MAX))
    assert not can_be_run(run(*[b""] * (ENTRIES_MAX + 1)))


def test_damage_is_noticed() -> None:
    value = encode_entries(run(b"x", b"yz"))
    for size in range(len(value)):
        with pytest.raises(StorageCorrupt):
            decode_entries(8, value[:size])
    with pytest.raises(StorageCorrupt, match="another length"):
        decode_entries(8, value + b"\0")
    with pytest.raises(StorageCorrupt):
        decode_entries(8, value[:6] + b"\xff\xff" + value[8:])
