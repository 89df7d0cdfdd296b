"""A transaction: whatever the order of the calls, applied in its own order it means the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.model import Message
from perdure.storage.device_queue import EntryState, NewEntry, QueuedEntry
from perdure.storage.remote.driver import INBOX, TABLES, Kind, Transaction, messages_of
from tests.support.remote import ServerState

KEYS = st.sampled_from([b"1", b"2", b"3", b"4"])
OWNERS = st.sampled_from([b"a", b"b"])
ROWS = st.one_of(
    st.tuples(st.just("put"), OWNERS, KEYS),
    st.tuples(st.just("gone"), OWNERS, KEYS),
    st.tuples(st.just("trim"), OWNERS, KEYS),
    st.tuples(st.just("drop"), OWNERS, st.just(b"")),
)


def do(transaction: Transaction, call: tuple[str, bytes, bytes], value: bytes) -> None:
    kind, owner, key = call
    if kind == "put":
        transaction.put(INBOX, owner, key, value)
    elif kind == "gone":
        transaction.put(INBOX, owner, key, None)
    elif kind == "trim":
        transaction.trim(INBOX, owner, key)
    else:
        transaction.drop(INBOX, owner)


@given(st.lists(ROWS, max_size=20), st.lists(ROWS, max_size=20))
def test_rows_mean_what_the_calls_meant(
    before: list[tuple[str, bytes, bytes]], calls: list[tuple[str, bytes, bytes]]
) -> None:
    one_by_one, together = ServerState(), ServerState()
    gathered = Transaction()
    for number, call in enumerate(before + calls):
        single = Transaction()
        do(single, call, b"%d" % number)
        one_by_one.apply(single)
        if number < len(before):
            together.apply(single)
        else:
            do(gathered, call, b"%d" % number)
    together.apply(gathered)
    for owner in (b"a", b"b"):
        found = together.tables[INBOX].get(owner, {})
        assert found == one_by_one.tables[INBOX].get(owner, {})


QUEUES = st.one_of(
    st.tuples(st.just("append"), st.sampled_from("ab"), st.just(0)),
    st.tuples(st.just("trim"), st.sampled_from("ab"), st.integers(0, 30)),
    st.tuples(st.just("discard"), st.sampled_from("ab"), st.just(0)),
)


@given(st.lists(QUEUES, max_size=30), st.integers(0, 30))
def test_queues_mean_what_the_calls_meant(calls: list[tuple[str, str, int]], split: int) -> None:
    one_by_one, together = ServerState(), ServerState()
    gathered = Transaction()
    for number, (kind, client_id, serial) in enumerate(calls, 1):
        single = Transaction()
        for transaction in (single, gathered):
            if kind == "append":
                message = Message("t", b"", 1, offset=number)
                transaction.append(NewEntry(client_id, message, 1, serial=number), 1)
            elif kind == "trim":
                transaction.trim_queue(client_id, min(serial, number))
            else:
                transaction.discard_queue(client_id)
        one_by_one.apply(single)
        if number == split:
            together.apply(gathered)
            gathered = Transaction()
    together.apply(gathered)
    for client_id in "ab":
        found = together.queues.get(client_id, {})
        assert sorted(found) == sorted(one_by_one.queues.get(client_id, {}))


def test_what_was_settled_before_it_was_sent_costs_nothing() -> None:
    transaction = Transaction()
    for serial in (1, 2, 3):
        transaction.append(NewEntry("c", Message("t", b"", 1), 1, serial=serial), 1)
    transaction.trim_queue("c", 2)
    assert [entry.serial for entry in transaction.appends["c"]] == [3]
    transaction.trim_queue("c", 3)
    assert transaction.appends == {}
    assert transaction.queue_trims == {"c": 3}


def test_every_kind_of_table_is_used() -> None:
    assert set(TABLES.values()) == set(Kind)


def queued(serial: int) -> QueuedEntry:
    message = Message("t", b"", 1)
    return QueuedEntry(serial, 1, EntryState.PUBLISH, message, 1, False, (), 0, b"")


def test_a_page_ends_where_the_next_begins_or_where_it_is_told_to() -> None:
    last = messages_of([queued(3), queued(5)], None, until_serial=9)
    assert [message.offset for message in last.messages] == [3, 5]
    assert last.through_offset == 9
    assert messages_of([queued(3), queued(5)], 5, until_serial=9).through_offset == 5
    assert messages_of([], 12, until_serial=9).through_offset == 9
    cut = messages_of([queued(3), queued(5)], 5, until_serial=4)
    assert [message.offset for message in cut.messages] == [3]
    assert cut.through_offset == 4
