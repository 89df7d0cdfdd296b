"""Every kind of damage to a state in a server is found, and a state without one has none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure.model import Cursor, GroupRecord, InboxEntry, Message, SessionRecord, Subscription
from perdure.storage.codec import decode_record, encode_cursor, encode_record
from perdure.storage.contract import Finding
from perdure.storage.remote import rows
from perdure.storage.remote.check import Checker
from perdure.storage.remote.driver import (
    CLIENTS,
    GROUPS,
    INBOX,
    LOG,
    MEMBERS,
    META,
    RETAINED,
    RETURNED,
    ROWS,
    Owner,
    Row,
)
from perdure.storage.remote.store import RemoteDatabase
from tests.support.remote import MemoryDriver, ServerState
from tests.support.staged import Staged

NOW_US = 1_700_000_000_000_000
FIRST = rows.generation_owner(1)
FAR = NOW_US * 2


def record(client_id: str) -> SessionRecord:
    return SessionRecord(
        client_id, epoch=1, created_at_us=1, expiry_s=60, connected=False, changed_at_us=1
    )


async def filled() -> ServerState:
    state = ServerState()
    database = await RemoteDatabase.open(MemoryDriver(state, queue_max=2), now_us=NOW_US)
    batch = Staged(database)
    batch.put_session(record("c"))
    batch.put_subscription("c", Subscription("a/+", qos=2), epoch=1)
    batch.put_cursor("c", Cursor(0, 0, settled=(2,), sent=2), epoch=1)
    batch.put_awaiting_release("c", 7, epoch=1)
    batch.put_group(GroupRecord("g", "a/+", 0, 1))
    batch.put_group_member("g/a/+", "c")
    batch.write()
    batch = Staged(database)
    for number in range(3):
        batch.append(Message(f"a/{number}", b"%d" % number, 2), NOW_US + number)
    entry = InboxEntry(database.last_offset, Message("i", b"", 1), qos=1)
    batch.put_inbox("c", entry, epoch=1)
    batch.put_group_entry("g/a/+", entry)
    batch.put_retained(Message("r/s", b"", 1, retain=True, offset=NOW_US))
    batch.write()
    await database.open_session("c")
    database.rotate(NOW_US + 10)
    later = Staged(database)
    later.append(Message("b", b"", 1), NOW_US + 20)
    later.append(Message("b", b"", 1), NOW_US + 30)
    await database.stop()
    return state


async def findings(state: ServerState) -> list[Finding]:
    driver = MemoryDriver(state)
    driver._is_connected = True
    return [finding async for finding in Checker(driver).run()]


async def test_nothing_is_wrong() -> None:
    state = await filled()
    assert await findings(state) == []


Damage = Callable[[dict[str, dict[Owner, dict[bytes, bytes]]]], object]


def put(table: str, owner: Owner, key: bytes, value: bytes = b"") -> Damage:
    return lambda tables: tables[table].setdefault(owner, {}).__setitem__(key, value)


def first(tables: dict[str, dict[Owner, dict[bytes, bytes]]], table: str, owner: Owner) -> Row:
    return next(iter(tables[table][owner].items()))


def moved(tables: dict[str, dict[Owner, dict[bytes, bytes]]]) -> None:
    key, block = first(tables, LOG, FIRST)
    del tables[LOG][FIRST][key]
    tables[LOG][FIRST][rows.number(rows.parse_number(key) + 1)] = block


def cut(tables: dict[str, dict[Owner, dict[bytes, bytes]]]) -> None:
    key, block = first(tables, LOG, FIRST)
    tables[LOG][FIRST][key] = block[:-1]


def repeated(tables: dict[str, dict[Owner, dict[bytes, bytes]]]) -> None:
    key, block = first(tables, LOG, FIRST)
    messages = rows.decode_block(block)
    ((_, twice),) = rows.encode_blocks([messages[0], messages[0], messages[-1]])
    tables[LOG][FIRST][key] = twice


def overlapping(tables: dict[str, dict[Owner, dict[bytes, bytes]]]) -> None:
    _, block = first(tables, LOG, FIRST)
    ((last, shorter),) = rows.encode_blocks(rows.decode_block(block)[:1])
    tables[LOG][FIRST][rows.number(last)] = shorter


@pytest.mark.parametrize(
    ("damage", "table", "problem"),
    [
        (put(META, b"", b"?"), META, "unknown kind"),
        (put(META, b"", b"F", b"\x00"), META, "format is unknown"),
        (put(META, b"", b"G\x00\x00\x00\x09", b"\x00"), META, "generation"),
        (put(META, b"", rows.counters_key(9), bytes(16)), META, "not there"),
        (put(META, b"", rows.counters_key(1), b"1"), META, "do not decode"),
        (put(META, b"", rows.counters_key(1), rows.counters(9, 1)), LOG, "9 were counted"),
        (
            put(META, b"", rows.header_key(2), encode_record(rows.Header(2, FAR, 0, 1))),
            META,
            "begin where",
        ),
        (lambda tables: tables[LOG].pop(FIRST), LOG, "0 messages, but 3"),
        (moved, LOG, "does not end at its key"),
        (cut, LOG, "cut short"),
        (repeated, LOG, "do not ascend"),
        (overlapping, LOG, "overlaps"),
        (put(LOG, FIRST, rows.number(5), b"\x01"), LOG, "without messages"),
        (put(LOG, FIRST, rows.number(5), b"\x02"), LOG, "version 2"),
        (
            put(
                LOG,
                FIRST,
                rows.number(FAR),
                next(rows.encode_blocks([Message("t", b"", offset=FAR)]))[1],
            ),
            LOG,
            "another generation",
        ),
        (put(CLIENTS, b"", b"gone"), CLIENTS, "without a record"),
        (put(ROWS, b"c", b"?"), ROWS, "unknown kind"),
        (put(ROWS, b"c", b"s", encode_record(record("d"))), ROWS, "another session"),
        (put(ROWS, b"c", b"s", b"\xff"), ROWS, ""),
        (put(ROWS, b"c", b"c", encode_cursor(Cursor(FAR, 1))), ROWS, "beyond"),
        (put(ROWS, b"c", b"c", encode_cursor(Cursor(0, 5, settled=(9, 9)))), ROWS, "ascend"),
        (put(ROWS, b"c", b"r1"), ROWS, "not a packet identifier"),
        (
            put(ROWS, b"c", rows.subscription_key(3, "x"), encode_record(Subscription("y"))),
            ROWS,
            "another subscription",
        ),
        (put(INBOX, b"c", rows.number(FAR), b"\xff"), INBOX, ""),
        (put(INBOX, b"c", b"1"), INBOX, "number"),
        (put("added", b"c", rows.number(4), b"\x00"), "queues", "no version"),
        (put(GROUPS, b"", b"h/x", encode_record(GroupRecord("g", "x", 0, 1))), GROUPS, "another"),
        (put(GROUPS, b"", b"h/x", b"\xff"), GROUPS, ""),
        (put(MEMBERS, b"g/a/+", b""), MEMBERS, "no name"),
        (put(RETURNED, b"g/a/+", rows.number(3), b""), RETURNED, ""),
        (put(RETAINED, b"", b"x", b"\xff"), RETAINED, ""),
        (put(RETAINED, b"", b"\xff", b"\xff"), RETAINED, "not UTF-8"),
    ],
)
async def test_damage_is_found(damage: Damage, table: str, problem: str) -> None:
    state = await filled()
    damage(state.tables)
    found = await findings(state)
    assert any(one.table == table and problem in one.problem and one.problem for one in found), (
        found
    )


async def test_what_is_beyond_the_last_offset() -> None:
    state = await filled()
    (entry_key, entry), *_ = state.tables[INBOX][b"c"].items()
    state.tables[INBOX][b"c"] = {rows.number(FAR): entry}
    (topic, retained), *_ = state.tables[RETAINED][b""].items()
    state.tables[RETAINED][b""][topic] = rows.number(FAR) + retained[8:]
    problems = {(one.table, one.problem) for one in await findings(state)}
    assert problems == {
        (INBOX, "an entry beyond the last offset"),
        (RETAINED, "a retained message beyond the last offset"),
    }
    assert entry_key != rows.number(FAR)


async def test_what_the_broker_writes_meanwhile_is_no_damage() -> None:
    """Between the look at the counters and the one at the messages, more are recorded."""
    state = ServerState()
    database = await RemoteDatabase.open(MemoryDriver(state), now_us=NOW_US)
    driver = MemoryDriver(state)
    driver._is_connected = True
    checker = Checker(driver)
    await checker._meta()
    meta = await checker._meta()
    batch = Staged(database)
    batch.append(Message("t", b"", 1), NOW_US + 1)
    batch.write()
    await database.read(["t"], after_offset=0, until_offset=1, limit=1)
    await database.stop()
    header = decode_record(rows.header_decoder, "generation", meta[rows.header_key(1)])
    assert [one async for one in checker._generation(header, meta)] == []
