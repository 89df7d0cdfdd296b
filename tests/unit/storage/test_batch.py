"""A batch is data: what was called is what it holds; what it does is in tests/contract."""

from __future__ import annotations

import pytest
from tests.contract.values import NOW_US, entry, message, record
from tests.unit.storage.recorder import told

from perdure.errors import UsageError
from perdure.model import Cursor, GroupRecord, Subscription
from perdure.storage.batch import Batch
from perdure.storage.offsets import Offsets

SUB = Subscription("a/#", since_offset=3)


@pytest.fixture
def batch() -> Batch:
    return Batch(Offsets())


def test_calls_are_kept_in_their_order(batch: Batch) -> None:
    assert batch.is_empty()
    batch.put_session(record("c1", 4))
    batch.put_cursor("c1", Cursor(7), epoch=4)
    batch.put_subscription("c1", SUB, epoch=4)
    batch.delete_subscription("c1", SUB, epoch=4)
    batch.put_awaiting_release("c1", 9, epoch=4)
    batch.delete_awaiting_release("c1", 9, epoch=4)
    batch.put_inbox("c1", entry(5), epoch=4)
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
        ("trim_inbox", "c1", 5),
        ("discard_session", "c1"),
    ]
    assert {asked for _, asked in told(batch)} == {("c1", 4), ("c1", 0)}


def test_groups_and_retained_messages_belong_to_no_session(batch: Batch) -> None:
    batch.put_group(GroupRecord("g", "a", 1, 2))
    batch.put_group_member("g/a", "c1")
    batch.delete_group_member("g/a", "c1")
    batch.put_group_entry("g/a", entry(5))
    batch.delete_group_entry("g/a", 5)
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
    batch.append(sent[0], NOW_US)
    batch.extend(sent[1:], NOW_US)
    assert batch.messages == sent
    assert batch.operations == []
    assert not batch.is_empty()


def test_a_batch_names_the_sessions_of_its_calls(batch: Batch) -> None:
    batch.append(message("log"), NOW_US)
    batch.put_session(record("new", epoch=1))
    batch.put_cursor("cursor", Cursor(), epoch=2)
    batch.put_subscription("sub", SUB, epoch=2)
    batch.trim_inbox("inbox", 5, epoch=2)
    batch.discard_session("gone")
    asked = ("log", "new", "cursor", "sub", "inbox", "gone", "nobody")
    named = [client_id for client_id in asked if batch.names_session(client_id)]
    assert named == ["new", "cursor", "sub", "inbox", "gone"]


def test_what_no_store_can_hold_is_refused_at_the_call(batch: Batch) -> None:
    with pytest.raises(UsageError, match="offset"):
        batch.put_retained(message("r"))
    with pytest.raises(UsageError, match=r"U\+0000"):
        batch.put_retained(message("r\0s", offset=4))
    with pytest.raises(UsageError, match=r"U\+0000"):
        batch.delete_retained("r\0s")
    assert batch.is_empty()
