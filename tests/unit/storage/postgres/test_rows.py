"""Entries as rows and back; what needs a record of ours; rows that TBMQ wrote."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import FormatTooNew, StorageCorrupt
from perdure.model import Message
from perdure.mqtt.packets import PUBLISH, Properties
from perdure.mqtt.properties import write_properties
from perdure.storage.device_queue import EntryState, NewEntry, QueuedEntry
from perdure.storage.postgres.rows import Row, entry_of, key_of, row_of

NOW_US = 1_700_000_000_123_456
SECOND_US = 1_000_000

texts = st.text(st.characters(blacklist_categories=["Cs"], min_codepoint=1), max_size=300)
properties = st.builds(
    Properties,
    payload_format_indicator=st.none() | st.integers(0, 1),
    content_type=st.none() | texts,
    response_topic=st.none() | texts.filter(lambda text: text and not {"+", "#"} & set(text)),
    correlation_data=st.none() | st.binary(max_size=10),
    user_properties=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
)


def back(row: Row, serial: int = 5, packet_id: int | None = 5) -> QueuedEntry:
    columns: dict[str, Any] = msgspec.structs.asdict(row)
    return entry_of({**columns, "client_id": "c", "serial_number": serial, "packet_id": packet_id})


def tbmq(**columns: object) -> QueuedEntry:
    """A row of which TBMQ wrote these columns and left the others NULL."""
    row = dict.fromkeys(
        ("user_properties", "retain", "msg_expiry_interval", "payload_format_indicator")
    ) | dict.fromkeys(("content_type", "response_topic", "correlation_data", "packet_id"))
    row |= dict.fromkeys(("packet_type", "forget_at_us", "record"))
    row |= {"client_id": "c", "serial_number": 0, "topic": "t", "time": 7, "qos": 1, "payload": b""}
    return entry_of({**row, **columns})


@given(
    properties=properties,
    payload=st.binary(max_size=20),
    expires=st.integers(0, 2**32 - 1),
    forget=st.just(0) | st.integers(1, 2**32),
    identifiers=st.lists(st.integers(1, 268_435_455), max_size=3).map(tuple),
    extra=st.binary(max_size=4),
)
def test_an_entry_comes_back_from_its_row(
    properties: Properties,
    payload: bytes,
    expires: int,
    forget: int,
    identifiers: tuple[int, ...],
    extra: bytes,
) -> None:
    published_at_us = NOW_US // 1000 * 1000
    wire = write_properties(properties, PUBLISH)
    expires_at_us = published_at_us + expires * SECOND_US if expires else 0
    new = NewEntry(
        "c",
        Message("a/b", payload, 1, True, "", wire, expires_at_us, published_at_us),
        1,
        retain=True,
        identifiers=identifiers,
        forget_at_us=forget and published_at_us + forget * SECOND_US,
        extra=extra,
    )
    read = back(row_of(new, now_us=NOW_US))
    assert read.message == new.message
    assert (read.identifiers, read.extra, read.retain) == (identifiers, extra, True)
    if not expires or forget < expires:
        assert read.forget_at_us == new.forget_at_us


def test_a_usual_message_needs_no_record() -> None:
    wire = write_properties(Properties(content_type="x", user_properties=(("a", "b"),)), PUBLISH)
    message = Message("t", b"p", 2, True, "publisher", wire, NOW_US + SECOND_US, NOW_US, 99)
    row = row_of(NewEntry("c", message, 1, forget_at_us=NOW_US + SECOND_US), now_us=NOW_US)
    assert (row.record, row.forget_at_us) == (None, None)
    assert (row.time, row.msg_expiry_interval) == (NOW_US // 1000, 1)
    assert row.user_properties == '{"props":[{"k":"a","v":"b"}]}'


def test_the_record_is_as_it_was() -> None:
    message = Message("t", b"p", 2, False, "pub", b"", 0, NOW_US, 99)
    row = row_of(NewEntry("c", message, 1, identifiers=(3,), extra=b"e"), now_us=NOW_US)
    assert row.record is not None
    assert row.record.hex() == "97019103c40165c400a370756202" + "63"


def test_a_pubrel_has_neither_payload_nor_expiry() -> None:
    message = Message("t", b"p", 2, False, "", b"", NOW_US + SECOND_US, NOW_US)
    entry = NewEntry("c", message, 2, state=EntryState.PUBREL, forget_at_us=NOW_US + 9 * SECOND_US)
    row = row_of(entry, now_us=NOW_US)
    assert (row.packet_type, row.payload, row.msg_expiry_interval) == ("PUBREL", b"", None)
    assert back(row).forget_at_us == NOW_US + 9 * SECOND_US


def test_a_message_of_unknown_time_is_taken_for_a_new_one() -> None:
    row = row_of(NewEntry("c", Message("t", b"", expires_at_us=NOW_US + 1), 1), now_us=NOW_US)
    assert (row.time, row.msg_expiry_interval) == (NOW_US // 1000, 1)


def test_what_tbmq_wrote() -> None:
    read = tbmq(
        packet_type="PUBLISH",
        user_properties='{"props":[{"k":"a","v":"b"},{"k":"a","v":"c"}]}',
        msg_expiry_interval=60,
        payload_format_indicator=1,
        packet_id=3,
    )
    assert (read.serial, read.packet_id, read.state) == (0, 3, EntryState.PUBLISH)
    assert (read.message.published_at_us, read.message.expires_at_us) == (7_000, 60_007_000)
    expected = Properties(payload_format_indicator=1, user_properties=(("a", "b"), ("a", "c")))
    assert read.message.properties == write_properties(expected, PUBLISH)


def test_nulls_of_tbmq() -> None:
    read = tbmq()
    assert (read.packet_id, read.state, read.retain) == (0, EntryState.PUBLISH, False)
    assert (read.message.properties, read.message.expires_at_us) == (b"", 0)
    assert tbmq(user_properties="null").message.properties == b""
    assert tbmq(user_properties='{"props":null}').message.properties == b""
    assert tbmq(payload_format_indicator=7, response_topic="").message.properties == b""


def test_an_expiry_of_java_without_a_sign() -> None:
    assert tbmq(msg_expiry_interval=-1).message.expires_at_us == 7_000 + (2**32 - 1) * SECOND_US
    assert tbmq(msg_expiry_interval=-1, packet_type="PUBREL").message.expires_at_us == 0


def test_what_nobody_writes_is_named() -> None:
    with pytest.raises(StorageCorrupt, match="message 0 of 'c'"):
        tbmq(user_properties="{")
    with pytest.raises(StorageCorrupt, match="message 0 of 'c'"):
        tbmq(record=b"\x97\x01")
    with pytest.raises(FormatTooNew):
        tbmq(record=bytes.fromhex("97029103c40165c400a37075620263"))
    with pytest.raises(FormatTooNew):
        tbmq(record=bytes.fromhex("9202c0"))


def test_a_client_id_that_is_too_long_has_a_key_that_fits() -> None:
    assert key_of("") == ""
    assert key_of("ä" * 255) == "ä" * 255
    first, second = key_of("ä" * 256), key_of("ä" * 257)
    assert len(first) == len(second) == 255
    assert first != second
    assert first.startswith("ä" * 190 + "~")
