"""Owners of sessions, asked when a batch is written; through a backend in tests/contract."""

from __future__ import annotations

import pytest

from perdure.model import Cursor, GroupRecord
from perdure.storage.batch import Batch
from perdure.storage.fencing import silence, stale
from tests.contract.values import entry, message, record


@pytest.fixture
def batch() -> Batch:
    return Batch()


def refused(batch: Batch, **owners: int) -> list[int]:
    """Which operations of a batch do not hold, by their places."""
    found = stale(batch.operations, owners.get)
    return [batch.operations.index(operation) for operation in found]


def test_only_an_owner_that_is_there_and_not_overtaken_writes(batch: Batch) -> None:
    batch.put_cursor("c1", Cursor(), epoch=5)
    batch.put_cursor("c1", Cursor(), epoch=6)
    batch.put_cursor("c1", Cursor(), epoch=4)
    batch.put_cursor("c2", Cursor(), epoch=9)
    assert refused(batch, c1=5) == [2, 3]


def test_a_record_needs_no_session_but_no_later_owner_either(batch: Batch) -> None:
    batch.put_session(record("new", 1))
    batch.put_session(record("c1", 5))
    batch.put_session(record("c1", 4))
    assert refused(batch, c1=5) == [2]
    assert refused(batch, c1=6) == [1, 2]
    assert refused(batch) == [2]


def test_a_claim_holds_if_the_owner_is_the_one_that_was_read(batch: Batch) -> None:
    batch.claim_session(record("c1", 6), seen=5)
    batch.put_cursor("c1", Cursor(), epoch=6)
    assert refused(batch, c1=5) == []
    # Another one has read 5 too, and was first: what follows does not hold either.
    assert refused(batch, c1=6) == [0, 1]
    assert refused(batch, c1=4) == [0, 1]
    assert refused(batch) == [0, 1]


def test_a_session_that_was_not_there_is_claimed_once(batch: Batch) -> None:
    batch.claim_session(record("new", 1), seen=0)
    batch.discard_session("new")
    batch.claim_session(record("new", 9), seen=0)
    batch.claim_session(record("new", 1), seen=0)
    batch.put_cursor("new", Cursor(), epoch=9)
    assert refused(batch) == [3, 4]


def test_an_earlier_owner_does_not_discard_the_session_of_the_next(batch: Batch) -> None:
    batch.discard_session("c1", epoch=5)
    assert refused(batch, c1=6) == [0]
    assert refused(batch, c1=5) == []
    assert refused(batch) == []


def test_who_has_lost_its_session_is_silenced_and_nobody_else(batch: Batch) -> None:
    lost, other = message("a", publisher="c1"), message("b", publisher="c2", retain=True)
    kept, passed = message("c", publisher="c1", retain=True), message("d", qos=0, publisher="c1")
    batch.extend([lost, other, kept])
    batch.speak("c1", epoch=5)
    batch.speak("c2", epoch=5)
    batch.put_retained(kept)
    batch.put_retained(other)
    batch.delete_retained("e", publisher="c1")
    batch.delete_retained("f", publisher="c2")
    batch.pass_on(passed)
    whole = [*batch.operations]
    silence(batch, {"c1": 5, "c2": 5}.get, lambda _: 0)
    assert (batch.messages, batch.operations) == ([lost, other, kept], whole)
    silence(batch, {"c1": 6, "c2": 5}.get, lambda _: 0)
    assert batch.silenced == {"c1"}
    assert batch.messages == [other]
    assert batch.operations == [whole[0], whole[1], whole[3], whole[5]]


def test_what_a_batch_does_itself_counts(batch: Batch) -> None:
    batch.put_session(record("c1", 7))
    batch.put_cursor("c1", Cursor(), epoch=7)
    batch.put_cursor("c1", Cursor(), epoch=6)
    batch.discard_session("c1")
    batch.put_cursor("c1", Cursor(), epoch=7)
    # After a discard the next record may have any epoch.
    batch.put_session(record("c1", 1))
    batch.put_cursor("c1", Cursor(), epoch=1)
    assert refused(batch, c1=5) == [2, 4]


def test_a_refused_record_names_no_owner(batch: Batch) -> None:
    batch.put_session(record("c1", 3))
    batch.put_cursor("c1", Cursor(), epoch=3)
    batch.put_cursor("c1", Cursor(), epoch=5)
    assert refused(batch, c1=5) == [0, 1]


def test_what_belongs_to_no_session_always_holds(batch: Batch) -> None:
    batch.put_group(GroupRecord("g", "a", 1, 1))
    batch.put_group_member("g/a", "nobody")
    batch.delete_retained("a")
    assert refused(batch) == []


def test_of_two_nodes_that_give_out_for_a_group_one_counts(batch: Batch) -> None:
    entries = [entry(number, b"x", group_key="g/a") for number in (1, 2)]
    batch.put_inbox("c1", entries[0], epoch=5)
    batch.put_inbox("c1", entry(3, b"own"), epoch=5)
    batch.put_group(GroupRecord("g", "a", 9, 1, turn=4), seen=3)
    batch.delete_group_entry("g/a", entries[1])
    batch.put_group(GroupRecord("g", "a", 9, 1, turn=5), seen=4)
    whole = [*batch.operations]
    silence(batch, {"c1": 5}.get, lambda _: 3)
    assert batch.operations == whole
    silence(batch, {"c1": 5}.get, lambda _: 4)
    assert batch.lost_groups == {"g/a"}
    assert batch.operations == [whole[1]]
    assert not batch.gives(entries[0])


def test_what_a_group_gives_to_a_session_that_has_moved_comes_back(batch: Batch) -> None:
    given, other = entry(1, b"x", group_key="g/a"), entry(2, b"y", group_key="g/a")
    batch.put_inbox("c1", given, epoch=5)
    batch.put_inbox("c2", other, epoch=5)
    silence(batch, {"c1": 6, "c2": 5}.get, lambda _: 0)
    assert batch.returned == [given]
    assert not batch.gives(given)
    assert batch.gives(other)
    assert refused(batch, c1=6, c2=5) == [0]  # and its return holds
