"""A batch is data: what was called is what it holds; what it does is in tests/contract."""

from __future__ import annotations

import pytest

from perdure.errors import UsageError
from perdure.model import Cursor, GroupRecord, InboxEntry, Subscription
from perdure.storage.batch import ANYBODY, Batch, Placed, give_offsets
from perdure.storage.offsets import Offsets
from tests.contract.values import NOW_US, entry, message, record
from tests.unit.storage.recorder import told

SUB = Subscription("a/#", since_offset=3)


@pytest.fixture
def batch() -> Batch:
    return Batch()


def test_calls_are_kept_in_their_order(batch: Batch) -> None:
    assert batch.is_empty()
    batch.put_session(record("c1", 4))
    batch.put_cursor("c1", Cursor(7), epoch=4)
    batch.put_subscription("c1", SUB, epoch=4)
    batch.delete_subscription("c1", SUB, epoch=4)
    batch.put_awaiting_release("c1", 9, epoch=4)
    batch.delete_awaiting_release("c1", 9, epoch=4)
    batch.put_inbox("c1", entry(5), epoch=4)
    batch.put_tombstone("c1", entry(6, qos=2, serial=9, group_key="g/a"), epoch=4)
    batch.trim_inbox("c1", 5, epoch=4)
    batch.discard_session("c1")
    assert not batch.is_empty()
    assert [call for call, _ in told(batch)] == [
        ("put_session", record("c1", 4)),
        ("put_cursor", "c1", Cursor(7)),
        ("put_subscription", "c1", SUB),
        ("delete_subscription", "c1", SUB),
        ("put_awaiting_release", "c1", 9),
        ("delete_awaiting_release", "c1", 9),
        ("put_inbox", "c1", entry(5)),
        ("put_inbox", "c1", InboxEntry(6, None, qos=2, serial=9, group_key="g/a")),
        ("trim_inbox", "c1", 5),
        ("discard_session", "c1"),
    ]
    assert {asked for _, asked in told(batch)} == {("c1", 4), ("c1", ANYBODY)}


def test_groups_and_retained_messages_belong_to_no_session(batch: Batch) -> None:
    batch.put_group(GroupRecord("g", "a", 1, 2))
    batch.put_group_member("g/a", "c1")
    batch.delete_group_member("g/a", "c1")
    batch.put_group_entry("g/a", entry(5))
    batch.delete_group_entry("g/a", entry(5))
    batch.discard_group("g/a")
    batch.put_retained(message("r", offset=4))
    batch.delete_retained("r")
    assert [call for call, _ in told(batch)] == [
        ("put_group", GroupRecord("g", "a", 1, 2)),
        ("put_group_member", "g/a", "c1"),
        ("delete_group_member", "g/a", "c1"),
        ("put_group_entry", "g/a", entry(5)),
        ("delete_group_entry", "g/a", 5),
        ("discard_group", "g/a"),
        ("put_retained", message("r", offset=4)),
        ("delete_retained", "r"),
    ]
    assert {asked for _, asked in told(batch)} == {("", 0)}
    assert not batch.names_session("c1")


def test_messages_stand_by_themselves(batch: Batch) -> None:
    sent = [message("a"), message("b"), message("c")]
    batch.append(sent[0])
    batch.extend(sent[1:])
    assert batch.messages == sent
    assert batch.operations == []
    assert not batch.is_empty()


def test_a_batch_names_the_sessions_of_its_calls(batch: Batch) -> None:
    batch.append(message("log"))
    batch.put_session(record("new", epoch=1))
    batch.put_cursor("cursor", Cursor(), epoch=2)
    batch.put_subscription("sub", SUB, epoch=2)
    batch.trim_inbox("inbox", 5, epoch=2)
    batch.discard_session("gone")
    asked = ("log", "new", "cursor", "sub", "inbox", "gone", "nobody")
    named = [client_id for client_id in asked if batch.names_session(client_id)]
    assert named == ["new", "cursor", "sub", "inbox", "gone"]


def test_what_no_store_can_hold_is_refused_at_the_call(batch: Batch) -> None:
    with pytest.raises(UsageError, match=r"U\+0000"):
        batch.put_retained(message("r\0s", offset=4))
    with pytest.raises(UsageError, match=r"U\+0000"):
        batch.delete_retained("r\0s")
    assert batch.is_empty()


def test_offsets_are_given_when_it_enters_the_log(batch: Batch) -> None:
    sent, placed, kept = [message(), message()], entry(0), message("r")
    batch.place(placed)
    batch.extend(sent)
    batch.place(kept)
    offsets = Offsets(NOW_US + 7)
    give_offsets(batch, offsets, NOW_US)
    held: list[Placed] = [*sent, placed, kept]
    given = [each.offset for each in held]
    assert given == [NOW_US + 8, NOW_US + 9, NOW_US + 10, NOW_US + 11]
    assert (batch.first_offset, batch.last_offset) == (given[0], given[-1])
    assert offsets.last == given[-1]


def test_a_batch_without_anything_to_place_takes_no_offset(batch: Batch) -> None:
    offsets = Offsets(5)
    batch.discard_session("c1")
    give_offsets(batch, offsets, NOW_US)
    assert (batch.first_offset, batch.last_offset, offsets.last) == (0, 0, 5)


def test_what_was_refused_is_not_held(batch: Batch) -> None:
    batch.put_cursor("c1", Cursor(1), epoch=1)
    batch.put_cursor("c2", Cursor(1), epoch=1)
    assert batch.held() is batch.operations
    batch.refused = batch.operations[:1]
    assert batch.held() == batch.operations[1:]
