"""Records of a session: deadlines, keys, and that they survive their encoding."""

from __future__ import annotations

import msgspec
import pytest

from perdure.model import GroupRecord, InboxEntry, Message, SessionRecord, Will


@pytest.mark.parametrize(
    ("will_at_us", "expires_at_us", "deadline_us"),
    [(0, 0, 0), (5, 0, 5), (0, 7, 7), (5, 7, 5), (7, 5, 5)],
)
def test_the_deadline_is_the_earlier_of_will_and_expiry(
    will_at_us: int, expires_at_us: int, deadline_us: int
) -> None:
    record = SessionRecord(
        "c", 1, 1, 0, False, 1, will_at_us=will_at_us, expires_at_us=expires_at_us
    )
    assert record.deadline_us == deadline_us


def test_the_key_of_a_group_is_its_name_and_filter() -> None:
    assert GroupRecord("g", "a/+", 1, 2).key == "g/a/+"


@pytest.mark.parametrize(
    "record",
    [
        SessionRecord("c", 1, 2, 3, True, 4, Will("t", b"p", 1, True, b"x", 5, None), 6, 7, "u", 5),
        GroupRecord("g", "f", 1, 2),
    ],
)
def test_a_record_survives_its_encoding(record: msgspec.Struct) -> None:
    data = msgspec.msgpack.encode(record)
    assert msgspec.msgpack.decode(data, type=type(record)) == record


def test_a_record_does_not_change() -> None:
    with pytest.raises(AttributeError):
        GroupRecord("g", "f", 1, 2).group = "h"  # type: ignore[misc]


def entry() -> InboxEntry:
    message = Message("t", b"p", 1)
    return InboxEntry(1, message, qos=1, retain=True, identifiers=(2,), group_key="g/t")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("offset", 2),
        ("message", None),
        ("qos", 2),
        ("retain", False),
        ("identifiers", ()),
        ("group_key", ""),
    ],
)
def test_an_inbox_entry_is_equal_in_every_field(name: str, value: object) -> None:
    other = entry()
    assert other == entry()
    setattr(other, name, value)
    assert other != entry()


def test_an_inbox_entry_equals_nothing_else_and_has_no_hash() -> None:
    assert entry() != 1
    with pytest.raises(TypeError):
        hash(entry())
    assert repr(entry()).startswith("InboxEntry(1, Message('t', 1 B")
