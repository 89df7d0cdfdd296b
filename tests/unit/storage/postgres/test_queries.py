"""Pages, numbers and lists from their rows; data of TBMQ are read as they are."""

from __future__ import annotations

import pytest

from perdure.model import Message
from perdure.storage.device_queue import EntryState, QueuedEntry
from perdure.storage.postgres import Pool, Statement
from perdure.storage.postgres.queries import (
    Page,
    Queries,
    Stretch,
    is_past,
    pages_of,
    stats_of,
    stretch_of,
)
from perdure.storage.postgres.schema import look, migrate
from tests.unit.storage.postgres import tbmq

NOW_US = 1_700_000_000_000_000


def queued(
    serial: int, *, state: EntryState = EntryState.PUBLISH, expires: int = 0, forget: int = 0
) -> QueuedEntry:
    message = Message("t", b"", expires_at_us=expires)
    return QueuedEntry(serial, 1, state, message, 1, forget_at_us=forget)


def test_what_is_past_its_time() -> None:
    assert not is_past(queued(1), NOW_US)
    assert is_past(queued(1, expires=NOW_US), NOW_US)
    assert not is_past(queued(1, expires=NOW_US + 1), NOW_US)
    assert not is_past(queued(1, expires=NOW_US, state=EntryState.PUBREL), NOW_US)
    assert is_past(queued(1, forget=NOW_US, state=EntryState.PUBREL), NOW_US)


def test_a_page_is_split_by_the_time() -> None:
    page = Page()
    page.entries = [queued(1, expires=NOW_US), queued(2)]
    page.next_after = 2
    owed, past = page.split(NOW_US)
    assert ([entry.serial for entry in owed.entries], owed.next_after, past) == ([2], 2, [1])


def test_the_end_of_a_walk() -> None:
    row = {"count": 3, "last_client": "c", "last_serial": 9, "clients": None, "serials": None}
    assert stretch_of([row]) == Stretch(None, ())
    full = {**row, "count": 2000, "clients": ["a"], "serials": [1]}
    assert stretch_of([full]) == Stretch(("c", 9), (("a", 1),))


async def read_all(pool: Pool, queries: Queries, client_id: str) -> list[QueuedEntry]:
    entries: list[QueuedEntry] = []
    after: int | None = -1
    while after is not None:
        rows = await pool.run(queries.read([(client_id, after, 2, 1000)]))
        (page,) = pages_of(rows, 1)
        entries += page.entries
        after = page.next_after
    return entries


@pytest.mark.postgres
@pytest.mark.parametrize("upgraded", [False, True])
@pytest.mark.parametrize("version", tbmq.SCHEMAS)
async def test_what_each_release_of_tbmq_wrote(pool: Pool, version: str, upgraded: bool) -> None:
    await tbmq.create(pool, version)
    if upgraded:
        await migrate(pool)
    queries = Queries(await look(pool))
    wrapped = await read_all(pool, queries, "wrapped")
    assert [(entry.packet_id, entry.state.name, entry.message.payload) for entry in wrapped] == [
        (65534, "PUBLISH", b"w1"),
        (65535, "PUBLISH", b"w2"),
        (1, "PUBLISH", b"w3"),
        (2, "PUBREL", b"w4"),
    ]
    assert [entry.retain for entry in wrapped] == [False, True, False, False]
    assert wrapped[1].message.properties == b"\x26\x00\x04unit\x00\x01K"
    assert {entry.message.published_at_us for entry in wrapped} == {tbmq.TIME_MS * 1000}
    repeated = await read_all(pool, queries, "repeated")
    assert [(entry.serial, entry.packet_id) for entry in repeated] == [
        (0, 7),
        (1, 0),
        (2, 7),
        (3, 6),
    ]
    assert [entry.serial for entry in await read_all(pool, queries, "orphan {x}/ü")] == [10, 11]
    rows = await pool.run(queries.client_keys(after=""))
    keys = [row["client_id"] for row in rows]
    assert keys == ["empty", "new", "orphan {x}/ü", "repeated", "wrapped"]
    stats = [stats_of(row) for row in await pool.run(queries.stats([*keys, "unknown"]))]
    assert [(one.client_id, one.last_packet_id, one.last_serial) for one in stats] == [
        ("empty", 42, 41),
        ("new", 0, 0),
        ("orphan {x}/ü", 12, 11),
        ("repeated", 7, 3),
        ("wrapped", 2, 65536),
    ]
    assert [(one.publish_count, one.pubrel_count) for one in stats] == [
        (0, 0),
        (0, 0),
        (2, 0),
        (4, 0),
        (3, 1),
    ]


@pytest.mark.postgres
async def test_clients_come_in_the_order_of_bytes(pool: Pool) -> None:
    await migrate(pool)
    names = ["a", "B", "", "ä", "_", "Z", "é", "10", "9"]
    async with pool.connection() as connection:
        await connection.executemany(
            "INSERT INTO device_session_ctx VALUES ($1, 0)", [(name,) for name in names]
        )
    queries = Queries(await look(pool))
    ordered = sorted(names, key=str.encode)
    rows = await pool.run(queries.client_keys(after=""))
    assert [row["client_id"] for row in rows] == ordered
    rows = await pool.run(queries.client_keys(after="Z"))
    assert [row["client_id"] for row in rows] == ordered[ordered.index("Z") + 1 :]


@pytest.mark.postgres
async def test_a_page_of_a_large_backlog_is_all_that_the_server_sends(pool: Pool) -> None:
    await migrate(pool)
    await pool.run(
        Statement(
            "INSERT INTO device_publish_msg (client_id, serial_number, topic, time, qos, payload) "
            "SELECT 'c', n, 't', 0, 1, convert_to(repeat(chr(33 + n % 90), 65536), 'UTF8') "
            "FROM generate_series(1, 400) AS n"
        )
    )
    queries = Queries(await look(pool))
    rows = await pool.run(queries.read([("c", 0, 300, 1 << 20)]))
    assert sum(len(row["payload"] or b"") for row in rows) == 1 << 20
    # One row more says that there are more.
    assert len(rows) == 17
    (page,) = pages_of(rows, 1)
    assert (len(page.entries), page.next_after) == (16, 16)
    rows = await pool.run(queries.read([("c", 0, 3, 1 << 20), ("c", 399, 3, 10), ("d", 0, 9, 9)]))
    few, last, none = pages_of(rows, 3)
    assert (len(few.entries), few.next_after) == (3, 3)
    # One that is larger than the page comes all the same.
    assert (len(last.entries), last.next_after) == (1, None)
    assert (none.entries, none.next_after) == ([], None)
