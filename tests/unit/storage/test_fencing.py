"""Owners of sessions, asked when a batch is written; through a backend in tests/contract."""

from __future__ import annotations

import pytest

from perdure.model import Cursor, GroupRecord, InboxEntry
from perdure.storage.batch import Batch
from perdure.storage.fencing import silence, stale
from perdure.storage.operations import tombstone
from perdure.storage.peer_operations import PassMessage, Speak
from perdure.storage.saying import say, take_out
from tests.contract.values import entry, message, record


@pytest.fixture
def batch() -> Batch:
    return Batch()


class Known:
    """A state in which sessions have owners, and what tests put into it."""

    def __init__(self, owners: dict[str, int], turn: int = 0) -> None:
        self.owners = owners
        self.turn = turn
        self.members: list[str] = []
        self.given: list[InboxEntry] = []

    def owner_epoch(self, client_id: str) -> int | None:
        return self.owners.get(client_id)

    def group_turn(self, group_key: str) -> int:
        return self.turn

    def members_of(self, group_key: str) -> list[str]:
        return self.members

    def given_after(self, client_id: str, after_offset: int) -> list[InboxEntry]:
        return [each for each in self.given if each.offset > after_offset]


def refused(batch: Batch, **owners: int) -> list[int]:
    """Which operations of a batch do not hold, by their places."""
    found = stale(batch.operations, owners.get)
    return [batch.operations.index(operation) for operation in found]


def test_only_an_owner_that_is_there_and_not_overtaken_writes(batch: Batch) -> None:
    batch.put_cursor("c1", Cursor(), epoch=5)
    batch.put_cursor("c1", Cursor(), epoch=6)
    batch.put_cursor("c1", Cursor(), epoch=4)
    batch.put_cursor("c2", Cursor(), epoch=9)
    assert refused(batch, c1=5) == [1, 2, 3]


def test_an_owner_of_a_life_before_has_nothing_to_say_in_a_later_one(batch: Batch) -> None:
    """Of a session that others had ended, and that a node that was behind began anew, lower."""
    batch.speak("c1", epoch=12)
    batch.put_session(record("c1", 13, node="n1"))
    batch.discard_session("c1", epoch=12)
    batch.put_session(record("c2", 6, node="n1"))
    batch.put_session(record("c2", 7, node="n1"))
    assert refused(batch, c1=6, c2=6) == [0, 1, 2]


def test_where_there_are_no_nodes_a_later_owner_takes_over_whatever_its_epoch(
    batch: Batch,
) -> None:
    batch.put_session(record("c1", 13))
    batch.put_cursor("c1", Cursor(), epoch=13)
    batch.put_cursor("c1", Cursor(), epoch=6)
    assert refused(batch, c1=6) == [2]


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


def test_who_had_a_session_has_lost_it_though_it_is_claimed_in_vain_as_well(batch: Batch) -> None:
    batch.put_cursor("c1", Cursor(), epoch=5)
    batch.claim_session(record("c1", 9), seen=5)
    batch.put_cursor("c1", Cursor(), epoch=9)
    batch.refused = stale(batch.operations, {"c1": 7}.get)
    assert batch.overtaken() == [("c1", 5)]


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
    batch.speak("c1", epoch=5)
    batch.speak("c2", epoch=5)
    batch.extend([lost, other, kept])
    batch.put_retained(kept)
    batch.put_retained(other)
    batch.delete_retained("e", publisher="c1")
    batch.delete_retained("f", publisher="c2")
    batch.pass_on(passed)
    whole = [*batch.operations]
    silence(batch, Known({"c1": 5, "c2": 5}, 0))
    assert (batch.messages, batch.operations) == ([lost, other, kept], whole)
    silence(batch, Known({"c1": 6, "c2": 5}, 0))
    assert list(batch.silenced) == ["c1"]
    assert batch.messages == [other]
    assert batch.operations == [whole[0], whole[1], whole[3], whole[5]]


def test_what_is_said_for_the_next_owner_counts_behind_what_does_not(batch: Batch) -> None:
    """A node speaks for one owner, reads the claim of another, and speaks for that one."""
    old, new = message("a", publisher="c1"), message("b", publisher="c1", retain=True)
    other, passed = message("c", publisher="c2"), message("d", qos=0, publisher="c1")
    will = message("e", qos=0, publisher="c1")
    batch.speak("c1", epoch=5)
    batch.append(old)
    batch.pass_on(passed)
    batch.put_awaiting_release("c1", 7, epoch=5)
    batch.delete_retained("e", publisher="c1")
    batch.speak("c2", epoch=5)
    batch.append(other)
    batch.speak("c1", epoch=8)
    batch.speak("c1", epoch=8)
    batch.append(new)
    batch.put_retained(new)
    batch.pass_on(will)
    whole = [*batch.operations]
    silence(batch, Known({"c1": 8, "c2": 5}))
    assert batch.messages == [other, new]
    assert batch.operations == [whole[at] for at in (0, 2, 4, 5, 6, 7)]
    assert [each.after for each in batch.operations if isinstance(each, Speak)] == [0, 0, 1]
    assert [each.after for each in batch.operations if isinstance(each, PassMessage)] == [2]
    unsaid = batch.silenced["c1"]
    assert unsaid.messages == [old]
    assert [type(each).__name__ for each in unsaid.operations] == [
        "PassMessage",
        "PutAwaitingRelease",
        "DeleteRetained",
    ]
    assert batch.silent() == {id(old), id(passed)}


def test_what_was_said_in_time_counts_before_a_claim_that_does_not_hold(batch: Batch) -> None:
    """A node lets a session go while a client of it claims what it has read before."""
    old, will = message("a", publisher="c1"), message("will", publisher="c1")
    batch.speak("c1", epoch=5)
    batch.append(old)
    batch.put_session(record("c1", 6))
    batch.claim_session(record("c1", 9), seen=5)
    batch.speak("c1", epoch=9)
    batch.append(will)
    silence(batch, Known({"c1": 5}))
    assert batch.messages == [old]
    assert batch.silenced["c1"].messages == [will]


def test_who_speaks_for_one_owner_again_says_so_again(batch: Batch) -> None:
    said = [message("a", b"%d" % number, publisher="c1") for number in range(3)]
    for epoch, each in zip((8, 5, 8), said, strict=True):
        batch.speak("c1", epoch=epoch)
        batch.append(each)
    silence(batch, Known({"c1": 8}))
    assert batch.messages == [said[0], said[2]]


def test_what_is_taken_out_is_said_again_in_its_place(batch: Batch) -> None:
    """And what others say in the batch stays what it was."""
    old, other = message("a", publisher="c1"), message("b", publisher="c2")
    batch.speak("c1", epoch=5)
    batch.append(old)
    batch.speak("c2", epoch=5)
    batch.append(other)
    unsaid = take_out(batch, "c1")
    assert [each.after for each in batch.operations if isinstance(each, Speak)] == [0]
    say(unsaid, batch, "c1", 5)
    assert batch.messages == [other, old]
    silence(batch, Known({"c1": 6, "c2": 5}))
    assert batch.messages == [other]
    silence(batch, Known({"c2": 6}))
    assert batch.messages == []


def test_what_a_batch_does_itself_counts(batch: Batch) -> None:
    batch.put_session(record("c1", 6))
    batch.put_cursor("c1", Cursor(), epoch=6)
    batch.put_cursor("c1", Cursor(), epoch=5)
    batch.discard_session("c1")
    batch.put_cursor("c1", Cursor(), epoch=6)
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
    silence(batch, Known({"c1": 5}, 3))
    assert batch.operations == whole
    silence(batch, Known({"c1": 5}, 4))
    assert batch.lost_groups == {"g/a"}
    assert batch.operations == [whole[1]]
    assert not batch.gives(entries[0])


def test_what_a_group_gives_to_a_session_that_has_moved_comes_back(batch: Batch) -> None:
    given, other = entry(1, b"x", group_key="g/a"), entry(2, b"y", group_key="g/a")
    batch.put_inbox("c1", given, epoch=5)
    batch.put_inbox("c2", other, epoch=5)
    silence(batch, Known({"c1": 6, "c2": 5}, 0))
    assert batch.returned == [given]
    assert not batch.gives(given)
    assert batch.gives(other)
    assert refused(batch, c1=6, c2=5) == [0]  # and its return holds


def test_what_a_session_that_is_let_go_has_not_seen_goes_back_to_its_groups(batch: Batch) -> None:
    state = Known({"c1": 5})
    seen, unseen, own, kept = (entry(at, group_key="g/a") for at in (7, 8, 9, 10))
    state.given = [seen, unseen, own, entry(11), tombstone(kept)]
    batch.put_tombstone("c1", own, epoch=5)
    batch.return_unseen("c1", 7, epoch=5)
    batch.discard_session("c1", epoch=5)
    silence(batch, state)
    assert batch.returned == [unseen]
    kinds = [type(each).__name__ for each in batch.operations]
    assert kinds == [
        "PutTombstone",
        "ReturnUnseen",
        "PutTombstone",
        "PutGroupEntry",
        "DiscardSession",
    ]
    assert stale(batch.operations, state.owner_epoch) == []


def test_who_has_a_session_no_more_returns_nothing_of_it(batch: Batch) -> None:
    state = Known({"c1": 6})
    state.given = [entry(8, group_key="g/a")]
    batch.return_unseen("c1", 7, epoch=5)
    silence(batch, state)
    assert (batch.returned, len(batch.operations)) == ([], 1)


def test_a_group_that_somebody_has_joined_is_not_discarded(batch: Batch) -> None:
    state = Known({})
    batch.discard_group("g/a")
    silence(batch, state)
    assert len(batch.operations) == 1
    state.members = ["c1"]
    silence(batch, state)
    assert batch.operations == []
    batch.delete_group_member("g/a", "c1")
    batch.discard_group("g/a")
    batch.put_group_member("g/b", "c2")
    batch.delete_group_member("g/b", "c1")
    batch.discard_group("g/b")
    silence(batch, state)
    assert [type(each).__name__ for each in batch.operations] == [
        "DeleteGroupMember",
        "DiscardGroup",
        "PutGroupMember",
        "DeleteGroupMember",
    ]
