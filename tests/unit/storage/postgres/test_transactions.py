"""A transaction as statements: arrays, rows of long keys, queues."""

from __future__ import annotations

from perdure.model import Message
from perdure.storage.device_queue import NewEntry
from perdure.storage.postgres.rows import key_of
from perdure.storage.postgres.transactions import (
    KEY_BYTES_MAX,
    KINDS,
    OWN,
    Changes,
    is_long,
    long_id,
    statements,
)
from perdure.storage.remote.driver import INBOX, META, ROWS, Transaction

LONG = b"k" * KEY_BYTES_MAX


def entry(client_id: str, serial: int, *, publisher: str = "") -> NewEntry:
    message = Message("t", b"payload", 1, False, publisher, b"", 0, 1_000_000, serial)
    return NewEntry(client_id, message, 1, serial=serial)


def transaction() -> Transaction:
    made = Transaction()
    made.number = 7
    return made


def test_tables_have_numbers_that_never_change() -> None:
    names = "meta rows clients inbox groups members returned retained log added"
    assert {name: number for number, name in enumerate(names.split(), 1)} == KINDS


def test_rows_are_columns_and_what_is_absent_is_none() -> None:
    made = transaction()
    made.drop(INBOX, b"gone")
    made.trim(INBOX, b"c", b"\x05")
    made.put(ROWS, b"c", b"s", b"record")
    made.put(ROWS, b"c", b"t", b"cursor")
    made.put(META, b"", b"old", None)
    changes = Changes(made)
    assert changes.arguments == [
        *([KINDS[INBOX]], [b"gone"]),
        *([KINDS[INBOX]], [b"c"], [b"\x05"]),
        *([KINDS[META]], [b""], [b"old"]),
        *([KINDS[ROWS]] * 2, [b"c", b"c"], [b"s", b"t"], [b"record", b"cursor"]),
    ]
    assert changes.may_touch_long
    assert not changes.has_long
    assert Changes(transaction()).arguments == [None] * 12


def test_a_transaction_without_queues_is_one_statement() -> None:
    made = transaction()
    made.put(ROWS, b"c", b"s", b"record")
    changes = Changes(made)
    head, rest = statements(3, made, changes)
    assert head.sql.startswith("SELECT perdure_commit($1, ")
    assert head.arguments == (3, 7, *changes.arguments)
    assert len(head.arguments) == head.sql.count("$")
    assert rest == []


def test_queues_go_with_the_rows_in_one_call() -> None:
    made = transaction()
    made.discard_queue("gone")
    made.trim_queue("c", 4)
    made.append(entry("c", 5), 10)
    made.append(entry("d", 6, publisher="d"), 10)
    head, rest = statements(3, made, Changes(made))
    assert head.sql.startswith("SELECT perdure_commit_with_queues($1, ")
    assert len(head.arguments) == head.sql.count("$")
    assert head.arguments[14:17] == ([key_of("gone")], [key_of("c")], [4])
    assert rest == []


def test_a_transaction_that_only_trims_appends_nothing() -> None:
    made = transaction()
    made.trim_queue("c", 4)
    head, rest = statements(3, made, Changes(made))
    assert head.arguments[14:17] == (None, [key_of("c")], [4])
    assert set(head.arguments[17:]) == {None}
    assert rest == []


def test_a_clients_own_message_is_marked() -> None:
    made = transaction()
    own, other = entry("c", 5, publisher="c"), entry("c", 6, publisher="d")
    made.append(own, 10)
    made.append(other, 10)
    head, _ = statements(3, made, Changes(made))
    columns = [column for column in head.arguments if isinstance(column, list)]
    values = [value for column in columns for value in column if isinstance(value, bytes)]
    assert len([value for value in values if OWN in value]) == 1
    assert own.extra == b""


def test_long_keys_have_a_table_of_their_own() -> None:
    assert not is_long(b"", LONG)
    assert is_long(b"c", LONG)
    made = transaction()
    made.drop(INBOX, b"gone")
    made.trim(INBOX, b"c", b"\x05")
    made.put(ROWS, b"c", LONG, b"value")
    made.put(ROWS, b"d", LONG, None)
    made.put(ROWS, b"c", b"short", b"value")
    changes = Changes(made)
    assert changes.has_long
    place = long_id(KINDS[ROWS], b"c", LONG)
    assert [(each.sql.split()[0], each.arguments) for each in changes.long_statements()] == [
        ("DELETE", (KINDS[INBOX], b"gone")),
        ("DELETE", (KINDS[INBOX], b"c", b"\x05")),
        ("DELETE", ([long_id(KINDS[ROWS], b"d", LONG)],)),
        ("INSERT", (place, KINDS[ROWS], b"c", LONG, b"value")),
    ]
    assert changes.arguments[-2:] == [[b"short"], [b"value"]]
    assert Changes(transaction()).long_statements() == []


def test_owner_and_key_do_not_run_into_each_other() -> None:
    assert long_id(1, b"ab", b"c") != long_id(1, b"a", b"bc")
    assert long_id(1, b"a", b"c") != long_id(2, b"a", b"c")
