"""Queues in PostgreSQL: what the contract does not say of every backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from perdure.errors import ConfigError, Fenced, StorageUnavailable, UsageError
from perdure.model import Message
from perdure.storage.device_queue import EntryState, NewEntry, QueuedEntry
from perdure.storage.postgres import Pool, PostgresDeviceQueue, Statement, statements
from perdure.storage.postgres.device_queue import list_rows
from perdure.storage.postgres.queries import Queries, Shape
from perdure.storage.postgres.schema import migrate
from tests.support.database_servers import PostgresServer
from tests.unit.storage.postgres import tbmq

pytestmark = pytest.mark.postgres

NOW_US = 1_700_000_000_000_000
SECOND_US = 1_000_000


@pytest_asyncio.fixture
async def queue(pool: Pool) -> AsyncIterator[PostgresDeviceQueue]:
    await migrate(pool)
    opened = PostgresDeviceQueue(pool)
    yield opened
    await opened.close()


def entry(client_id: str = "c", payload: bytes = b"x", **fields: int) -> NewEntry:
    expires_at_us = fields.pop("expires_at_us", 0)
    message = Message("t", payload, 1, expires_at_us=expires_at_us, published_at_us=NOW_US)
    return NewEntry(client_id, message, fields.pop("qos", 1), **fields)  # type: ignore[arg-type]


async def append(queue: PostgresDeviceQueue, *entries: NewEntry, limit: int = 1000) -> list[int]:
    results = await queue.append(entries, now_us=NOW_US, limit=limit)
    return [result.packet_id for result in results]


async def read(queue: PostgresDeviceQueue, client_id: str = "c") -> list[QueuedEntry]:
    page = await queue.read(
        client_id, after_serial=-1, limit=1000, bytes_max=1 << 20, now_us=NOW_US
    )
    assert page.next_after is None
    return page.entries


async def one(pool: Pool, sql: str) -> object:
    ((value,),) = await pool.run(Statement(sql))
    return value


async def test_what_is_asked_at_once_is_one_transaction(
    pool: Pool, queue: PostgresDeviceQueue
) -> None:
    await append(queue, entry("warm"))
    commits = "SELECT count(DISTINCT xmin::text) FROM device_publish_msg"
    await asyncio.gather(*(append(queue, entry(f"c{n}")) for n in range(50)))
    assert await one(pool, commits) == 2
    await asyncio.gather(*(queue.take(f"c{n}", epoch=1) for n in range(50)))
    assert await one(pool, "SELECT count(DISTINCT xmin::text) FROM perdure_queue") == 1
    counts = await asyncio.gather(
        *(queue.acknowledge(f"c{n}", [1], epoch=1 + (n == 7)) for n in range(50)),
        return_exceptions=True,
    )
    assert [count for count in counts if count != 1] == [counts[7]]
    assert isinstance(counts[7], Fenced)


async def test_unbatched_each_is_its_own(pool: Pool) -> None:
    await migrate(pool)
    queue = PostgresDeviceQueue(pool, batched=False)
    await asyncio.gather(*(append(queue, entry(f"c{n}")) for n in range(10)))
    commits = "SELECT count(DISTINCT xmin::text) FROM device_publish_msg"
    assert await one(pool, commits) == 10
    await queue.close()


async def test_one_wrong_append_does_not_cost_the_others(queue: PostgresDeviceQueue) -> None:
    await append(queue, entry("bad", serial=10))
    results = await asyncio.gather(
        append(queue, entry("good")),
        append(queue, entry("bad", serial=10)),
        append(queue, entry("better")),
        return_exceptions=True,
    )
    assert results[0] == results[2] == [1]
    assert isinstance(results[1], UsageError)


async def test_appends_of_one_client_keep_their_order(queue: PostgresDeviceQueue) -> None:
    tasks = [append(queue, entry(payload=b"%d" % n, position=n)) for n in range(1, 40)]
    assert await asyncio.gather(*tasks) == [[n] for n in range(1, 40)]
    assert [one.message.payload for one in await read(queue)] == [b"%d" % n for n in range(1, 40)]


async def test_many_writers_of_the_same_clients(url: str, queue: PostgresDeviceQueue) -> None:
    others = [PostgresDeviceQueue(Pool(url, size=2)) for _ in range(3)]
    clients = [f"c{n}" for n in range(12)]
    await asyncio.gather(
        *(
            append(writer, *(entry(client) for client in (clients if turn % 2 else clients[::-1])))
            for turn in range(8)
            for writer in others
        )
    )
    for client in clients:
        stats = await queue.stats(client)
        assert stats is not None
        assert (stats.publish_count, stats.last_serial, stats.last_packet_id) == (24, 24, 24)
    for other in others:
        await other.close()


async def test_nothing_of_the_former_owner_is_under_way_once_a_queue_was_taken(
    url: str, pool: Pool, queue: PostgresDeviceQueue
) -> None:
    await queue.take("c", epoch=1)
    await append(queue, entry(), entry())
    watching = Pool(url, size=1)
    async with pool.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        settled = statements.acknowledge([("c", 1, [1])])
        await connection.fetch(settled.sql, *settled.arguments)
        taking = asyncio.create_task(queue.take("c", epoch=2))
        waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while not await one(watching, waits):
            assert not taking.done()
        await transaction.commit()
    assert (await taking).publish_count == 1
    with pytest.raises(Fenced):
        await queue.acknowledge("c", [2], epoch=1)
    await watching.close()


async def test_clients_are_listed_by_bytes_whatever_the_collation(server: PostgresServer) -> None:
    own = Pool(server.url, size=1)
    await own.run(
        Statement(
            "CREATE DATABASE icu TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en' LOCALE 'C'"
        )
    )
    await own.close()
    queue = await PostgresDeviceQueue.open(server.database_url("icu"), durable="ignore")
    names = ["b", "B", "a", "A", "", "ä", "_", "10", "9"]
    soon = NOW_US + SECOND_US
    await append(queue, *(entry(name, expires_at_us=soon) for name in names))
    ordered = sorted(names, key=str.encode)
    assert [stats.client_id async for stats in queue.clients()] == ordered
    assert [stats.client_id async for stats in queue.clients(after="B")] == ordered[5:]
    assert await queue.sweep(now_us=soon, limit=5) == 5
    assert await queue.sweep(now_us=soon, limit=5) == 4
    await queue.close()


async def test_a_plain_message_uses_the_tables_of_tbmq_alone(
    pool: Pool, queue: PostgresDeviceQueue
) -> None:
    await append(queue, entry(), entry(expires_at_us=NOW_US + 9 * SECOND_US))
    assert await one(pool, "SELECT count(*) FROM perdure_queue") == 0
    assert await one(pool, "SELECT count(*) FROM perdure_queue_entry") == 0
    rows = await pool.run(Statement("SELECT * FROM device_publish_msg ORDER BY serial_number"))
    assert dict(rows[1]) == {
        "client_id": "c",
        "serial_number": 2,
        "topic": "t",
        "time": NOW_US // 1000,
        "packet_id": 2,
        "packet_type": "PUBLISH",
        "qos": 1,
        "payload": b"x",
        "user_properties": None,
        "retain": False,
        "msg_expiry_interval": 9,
        "payload_format_indicator": None,
        "content_type": None,
        "response_topic": None,
        "correlation_data": None,
    }
    (session,) = await pool.run(Statement("SELECT * FROM device_session_ctx"))
    assert tuple(session) == ("c", NOW_US // 1000, 2, 2)


async def test_nothing_of_ours_stays_behind_an_entry(
    pool: Pool, queue: PostgresDeviceQueue
) -> None:
    await queue.take("c", epoch=1)
    full = {"identifiers": (1,), "extra": b"e", "forget_at_us": NOW_US + SECOND_US}
    message = Message("t", b"x", 1, published_at_us=NOW_US)
    entries = [NewEntry("c", message, 2, **full) for _ in range(6)]  # type: ignore[arg-type]
    beside = "SELECT count(*) FROM perdure_queue_entry"
    await append(queue, *entries, limit=5)
    assert await one(pool, beside) == 5
    await queue.acknowledge("c", [2], epoch=1)
    await queue.release("c", [3], epoch=1, forget_at_us=NOW_US + 9 * SECOND_US)
    await queue.trim_through("c", 4, epoch=1)
    assert await one(pool, beside) == 2
    assert await queue.sweep(now_us=NOW_US + SECOND_US, limit=10) == 2
    assert await one(pool, beside) == 0
    await append(queue, *entries)
    assert await queue.discard("c", epoch=1)
    assert await one(pool, beside) == 0
    assert await one(pool, "SELECT count(*) FROM device_session_ctx") == 0


async def test_what_others_delete_is_not_taken_for_a_later_message(
    pool: Pool, queue: PostgresDeviceQueue
) -> None:
    message = Message("t", b"x", 1, published_at_us=NOW_US)
    await queue.append(
        [NewEntry("c", message, 1, identifiers=(5,), forget_at_us=NOW_US + SECOND_US)],
        now_us=NOW_US,
        limit=10,
    )
    # TBMQ deletes the client and begins again.
    async with pool.connection() as connection:
        await connection.execute("DELETE FROM device_publish_msg; DELETE FROM device_session_ctx")
    later = Message("t", b"later", 1, published_at_us=NOW_US + 7000)
    await queue.append([NewEntry("c", later, 1)], now_us=NOW_US, limit=10)
    (found,) = await read(queue)
    assert (found.message.payload, found.identifiers, found.forget_at_us) == (b"later", (), 0)
    assert await queue.sweep(now_us=NOW_US + 2 * SECOND_US, limit=10) == 0
    assert await one(pool, "SELECT count(*) FROM perdure_queue_entry") == 0
    assert len(await read(queue)) == 1


@pytest.mark.parametrize("length", [255, 256, 5000])
async def test_a_client_id_of_any_length(
    pool: Pool, queue: PostgresDeviceQueue, length: int
) -> None:
    names = ["ü" * length, "ü" * length + "x", "a"]
    await append(queue, *(entry(name, name[-3:].encode()) for name in names))
    for name in names:
        (found,) = await read(queue, name)
        assert found.message.payload == name[-3:].encode()
        stats = await queue.take(name, epoch=4)
        assert (stats.client_id, stats.publish_count) == (name, 1)
    assert {stats.client_id async for stats in queue.clients()} == set(names)
    assert await queue.discard(names[0], epoch=4)
    assert [stats.client_id async for stats in queue.clients()] == ["a", names[1]]


@pytest.mark.parametrize("version", tbmq.SCHEMAS)
async def test_queues_of_tbmq_go_on(pool: Pool, version: str) -> None:
    await tbmq.create(pool, version)
    await migrate(pool)
    queue = PostgresDeviceQueue(pool)
    # Past the wrap; after what is there, whether the session says so or not.
    names = ["wrapped", "orphan {x}/ü", "empty", "new"]
    results = await queue.append([entry(name) for name in names], now_us=NOW_US, limit=10)
    assert [(result.serial, result.packet_id) for result in results] == [
        (65537, 3),
        (12, 13),
        (42, 43),
        (1, 1),
    ]
    for name in names:
        assert (await queue.take(name, epoch=1)).epoch == 1
    # Of two with one identifier the older goes first, then the other.
    await queue.take("repeated", epoch=1)
    assert await queue.acknowledge("repeated", [7], epoch=1) == 1
    assert [found.serial for found in await read(queue, "repeated")] == [1, 2, 3]
    assert await queue.release("repeated", [7], epoch=1) == 1
    released = await read(queue, "repeated")
    assert [found.state for found in released] == [
        EntryState.PUBLISH,
        EntryState.PUBREL,
        EntryState.PUBLISH,
    ]
    # What never had an identifier can only be trimmed.
    assert await queue.acknowledge("repeated", [0, 7, 6], epoch=1) == 2
    assert await queue.trim_through("repeated", 1, epoch=1) == 1
    await queue.close()


@pytest.mark.trap(7)
async def test_all_that_carry_an_identifier_go_for_the_one_that_needs_it(pool: Pool) -> None:
    await tbmq.create(pool, "1.3")
    await migrate(pool)
    queue = PostgresDeviceQueue(pool)
    (result,) = await queue.append([entry("repeated", packet_id=7)], now_us=NOW_US, limit=10)
    assert [gone.serial for gone in result.trimmed] == [0, 2]
    await queue.close()


async def test_a_deep_queue_is_counted_once_and_then_kept(
    pool: Pool, queue: PostgresDeviceQueue
) -> None:
    count = "SELECT publish_count FROM perdure_queue WHERE client_id = 'c'"
    # Serials with gaps, as offsets of a log are: their span says nothing.
    serials = (n * 1000 for n in range(1, 200))

    def entries(number: int) -> list[NewEntry]:
        return [entry(qos=2, serial=next(serials)) for _ in range(number)]

    await queue.take("c", epoch=1)
    await append(queue, *entries(60), limit=100)
    assert await one(pool, count) is None
    await append(queue, *entries(20), limit=100)
    assert await one(pool, count) is None
    await append(queue, *entries(1), limit=100)
    assert await one(pool, count) == 81
    await queue.acknowledge("c", [1, 2], epoch=1)
    await queue.release("c", [3], epoch=1)
    await queue.trim_through("c", 5000, epoch=1)
    assert await one(pool, count) == 76
    trimmed = await queue.append(entries(30), now_us=NOW_US, limit=100)
    assert [gone.packet_id for result in trimmed for gone in result.trimmed] == list(range(6, 12))
    assert await one(pool, count) == 100
    # Once it is shallow, counting is cheap again.
    assert await queue.trim_through("c", 100_000, epoch=1) == 89
    assert await one(pool, count) is None
    stats = await queue.stats("c")
    assert stats is not None
    assert stats.publish_count == 11


async def test_a_deep_queue_of_serials_without_gaps_is_counted_when_it_matters(
    pool: Pool, queue: PostgresDeviceQueue
) -> None:
    count = "SELECT count(*) FROM perdure_queue"
    await append(queue, *[entry()] * 80, limit=100)
    await append(queue, *[entry()] * 10, limit=100)
    assert await one(pool, count) == 0
    # Half of the span is not there any more: nothing has to go.
    async with pool.connection() as connection:
        await connection.execute("DELETE FROM device_publish_msg WHERE serial_number % 2 = 0")
    results = await queue.append([entry()] * 50, now_us=NOW_US, limit=100)
    assert not any(result.trimmed for result in results)
    assert await one(pool, "SELECT count(*) FROM device_publish_msg") == 95
    results = await queue.append([entry()] * 10, now_us=NOW_US, limit=100)
    assert [gone.serial for result in results for gone in result.trimmed] == [1, 3, 5, 7, 9]


async def test_a_count_that_others_made_wrong_costs_no_message(
    pool: Pool, queue: PostgresDeviceQueue
) -> None:
    await append(queue, *[entry()] * 100, limit=100)
    await append(queue, entry(), limit=100)
    stored = "SELECT publish_count FROM perdure_queue WHERE client_id = 'c'"
    assert await one(pool, stored) == 100
    await pool.run(Statement("DELETE FROM device_publish_msg WHERE serial_number < 99"))
    results = await queue.append([entry()] * 50, now_us=NOW_US, limit=100)
    assert not any(result.trimmed for result in results)
    await pool.run(Statement("DELETE FROM device_publish_msg"))
    results = await queue.append([entry()] * 50, now_us=NOW_US, limit=100)
    assert not any(result.trimmed for result in results)
    assert len(await read(queue)) == 50


async def test_messages_without_an_expiry_may_be_kept_for_a_time(pool: Pool) -> None:
    await migrate(pool)
    queue = PostgresDeviceQueue(pool, kept_us=60 * SECOND_US)
    await queue.take("c", epoch=1)
    later = NOW_US + 600 * SECOND_US
    await append(queue, entry(), entry(expires_at_us=later), entry(qos=2))
    await queue.release("c", [3], epoch=1)
    assert await queue.sweep(now_us=NOW_US + 59 * SECOND_US, limit=10) == 0
    assert await queue.sweep(now_us=NOW_US + 60 * SECOND_US, limit=10) == 1
    assert [found.packet_id for found in await read(queue)] == [2, 3]
    await queue.close()


async def test_a_large_store_is_swept_in_several_stretches(
    queue: PostgresDeviceQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.storage.postgres.queries._WALK_ROWS", 10)
    monkeypatch.setattr("perdure.storage.postgres.device_queue._SWEEP_STRETCHES", 2)
    soon = NOW_US + SECOND_US
    await append(queue, *(entry(f"c{n:02}", expires_at_us=soon) for n in range(35)))
    swept = [await queue.sweep(now_us=soon, limit=100) for _ in range(3)]
    assert sum(swept) == 35
    assert max(swept) == 20
    await append(queue, *(entry(f"c{n:02}", expires_at_us=soon) for n in range(35)))
    counts = []
    while sum(counts) < 35:
        counts.append(await queue.sweep(now_us=soon, limit=7))
        assert counts[-1] <= 7
    assert await queue.sweep(now_us=soon, limit=7) == 0


async def test_a_restart_of_the_server_is_survived() -> None:
    with PostgresServer(durable=False) as server:
        queue = await PostgresDeviceQueue.open(server.url, durable="ignore")
        await append(queue, entry(position=1))
        await asyncio.to_thread(server.kill)
        with pytest.raises(StorageUnavailable):
            await append(queue, entry(position=2))
        with pytest.raises(StorageUnavailable):
            await read(queue)
        await asyncio.to_thread(server.start)
        await append(queue, entry(position=1), entry(position=2))
        assert len(await read(queue)) == 2
        await queue.close()


async def test_a_server_that_is_not_durable_may_be_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="fsync is off"):
        await PostgresDeviceQueue.open(url, durable="refuse")
    queue = await PostgresDeviceQueue.open(url, durable="warn")
    await append(queue, entry())
    await queue.close()
    with pytest.raises(StorageUnavailable):
        await append(queue, entry())


async def test_queues_can_be_listed_without_anything_of_ours(pool: Pool) -> None:
    await tbmq.create(pool, "1.3")
    reader = Queries(Shape(has_state=False))
    listed = [row async for row in list_rows(pool, reader, after="new")]
    assert [row["name"] for row in listed] == ["orphan {x}/ü", "repeated", "wrapped"]
    assert [row["is_session"] for row in listed] == [False, True, True]


async def test_a_page_has_an_entry_at_least(queue: PostgresDeviceQueue) -> None:
    with pytest.raises(UsageError):
        await queue.read("c", after_serial=-1, limit=0, bytes_max=10, now_us=NOW_US)
