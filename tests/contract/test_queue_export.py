"""One history, and the same lines of an export from every store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.exit_codes import CommandFailed
from perdure.cli.queue_open import connect
from perdure.cli.queue_sources import (
    DeviceQueueSource,
    PostgresSource,
    SessionSource,
)
from perdure.clock import SystemClock
from perdure.model import Cursor, SessionRecord, Subscription
from perdure.storage.batch import Batch
from perdure.storage.contract import Database
from perdure.storage.device_queue import DeviceQueue
from perdure.storage.postgres import Pool, PostgresDeviceQueue, Statement
from perdure.storage.postgres.driver import PostgresDriver
from perdure.storage.postgres.reader import PostgresQueueReader
from perdure.storage.postgres.schema import migrate
from perdure.storage.redis import open_device_queue
from perdure.storage.redis.driver import RedisDriver
from perdure.storage.remote.driver import Driver
from perdure.storage.remote.store import RemoteDatabase
from perdure.storage.rocksdb import RocksDatabase
from tests.contract.queues import NOW_US, PROPERTIES, SECOND_US, append, entry, message
from tests.support.database_servers import PostgresServer, RedisServer
from tests.support.staged import Staged

HOUR_US = 3600 * SECOND_US
EXPORTED: list[dict[str, Any]] = [
    {
        "client_id": "a b",
        "packet_id": 1,
        "topic": "t/1",
        "qos": 1,
        "retain": False,
        "payload_base64": "MQ==",
        "properties": {},
        "expires_at": None,
        "state": "PUBLISH",
    },
    {
        "client_id": "a b",
        "packet_id": 3,
        "topic": "t/3",
        "qos": 2,
        "retain": False,
        "payload_base64": "",
        "properties": {},
        "expires_at": None,
        "state": "PUBREL",
    },
    {
        "client_id": "a b",
        "packet_id": 4,
        "topic": "t/4",
        "qos": 1,
        "retain": True,
        "payload_base64": "NA==",
        "properties": {
            "user_properties": [["unit", "K"], ["unit", "°C"], ["", ""]],
            "content_type": "text/plain",
            "response_topic": "answers/ä",
            "correlation_data": "AP8=",
            "payload_format_indicator": 1,
            "message_expiry_interval": 3600,
            "subscription_identifiers": [9],
        },
        "expires_at": (NOW_US + HOUR_US) // 1000,
        "state": "PUBLISH",
    },
    {"client_id": "a b", "last_packet_id": 5},
    {"client_id": "empty", "last_packet_id": 2},
]


async def live(queue: DeviceQueue) -> None:
    """Five messages: the second was acknowledged, the third is past its PUBREC, the fifth has
    expired; and a client that has had two and acknowledged both."""
    await queue.take("a b", epoch=1)
    await queue.take("empty", epoch=1)
    await append(
        queue,
        entry("a b", b"1", topic="t/1"),
        entry("a b", b"2", topic="t/2"),
        entry("a b", b"3", topic="t/3", qos=2),
        entry(
            "a b",
            b"4",
            topic="t/4",
            retain=True,
            identifiers=(9,),
            properties=PROPERTIES,
            expires_at_us=NOW_US + HOUR_US,
        ),
        entry("a b", b"5", topic="t/5", expires_at_us=NOW_US + SECOND_US),
        entry("empty"),
        entry("empty"),
    )
    await queue.acknowledge("a b", [2], epoch=1)
    await queue.release("a b", [3], epoch=1)
    await queue.acknowledge("empty", [1, 2], epoch=1)


def record(client_id: str) -> SessionRecord:
    return SessionRecord(
        client_id,
        epoch=1,
        created_at_us=NOW_US,
        expiry_s=3600,
        connected=False,
        changed_at_us=NOW_US,
    )


def live_in(database: Database) -> None:
    """The same, as the broker's log and cursors."""
    batch = Staged(database)
    batch.put_session(record("a b"))
    for sub in (Subscription("t/+", qos=2), Subscription("t/4", qos=2, identifier=9)):
        kept = Subscription(sub.filter, qos=2, identifier=sub.identifier, retain_as_published=True)
        batch.put_subscription("a b", kept, epoch=1)
    batch.put_session(record("empty"))
    batch.put_cursor("empty", Cursor(NOW_US - SECOND_US, 2), epoch=1)
    for number in range(1, 6):
        expires = {4: NOW_US + HOUR_US, 5: NOW_US + SECOND_US}.get(number, 0)
        batch.append(
            message(
                b"%d" % number,
                f"t/{number}",
                qos=2 if number == 3 else 1,
                retain=number == 4,
                properties=PROPERTIES if number == 4 else b"",
                expires_at_us=expires,
            ),
            NOW_US + number,
        )
    batch.put_cursor("a b", Cursor(0, 0, settled=(2,), released=(3,), sent=3), epoch=1)
    batch.write()


async def test_every_device_queue_exports_the_same(queue: DeviceQueue) -> None:
    await live(queue)
    source = DeviceQueueSource(queue, NOW_US + 2 * SECOND_US)
    assert [line async for line in source.lines()] == EXPORTED
    # Nothing was deleted by looking.
    stats = await source.stats("a b")
    assert stats is not None
    assert (stats.publish_count, stats.pubrel_count) == (3, 1)


@pytest.mark.postgres
@pytest.mark.parametrize("pages", [2, 500])
async def test_a_postgres_is_read_as_it_is(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    monkeypatch.setattr("perdure.cli.queue_sources.PAGE_ENTRIES", pages)
    server: PostgresServer = request.getfixturevalue("postgres_server")
    pool = Pool(server.url, size=2)
    await migrate(pool)
    tables = "device_session_ctx, device_publish_msg, perdure_queue, perdure_queue_entry"
    await pool.run(Statement(f"TRUNCATE {tables}"))
    queue = PostgresDeviceQueue(pool)
    await live(queue)
    source = PostgresSource(await PostgresQueueReader.open(server.url), NOW_US + 2 * SECOND_US)
    assert [line async for line in source.lines()] == EXPORTED
    await source.close()
    await queue.close()


async def test_a_data_directory_is_a_queue_for_each_session(tmp_path: Path) -> None:
    database = RocksDatabase.open(tmp_path / "data", now_us=NOW_US)
    live_in(database)
    source = SessionSource(database, NOW_US + 2 * SECOND_US)
    assert [line async for line in source.lines()] == EXPORTED
    listed = [stats async for stats in source.queues()]
    assert [(stats.client_id, stats.publish_count, stats.pubrel_count) for stats in listed] == [
        ("a b", 2, 1),
        ("empty", 0, 0),
    ]
    database.close()


@asynccontextmanager
async def _on_postgres(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, Driver]]:
    server: PostgresServer = request.getfixturevalue("postgres_server")
    pool = Pool(server.url, size=1)
    schema = f"export_{NOW_US}"
    await pool.run(Statement(f"CREATE SCHEMA {schema}"))
    url = f"{server.url}?search_path={schema}"
    yield url, PostgresDriver(url, policy="ignore")
    await pool.run(Statement(f"DROP SCHEMA {schema} CASCADE"))
    await pool.close()


@asynccontextmanager
async def _on_redis(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, Driver]]:
    server: RedisServer = request.getfixturevalue("redis_server")
    server.command("FLUSHALL")
    yield server.url, RedisDriver(server.url, policy="ignore")


@pytest.mark.parametrize(
    "server",
    [
        pytest.param(_on_postgres, marks=pytest.mark.postgres),
        pytest.param(_on_redis, marks=pytest.mark.redis),
    ],
)
async def test_a_broker_in_a_server_has_the_queues_of_its_sessions(
    request: pytest.FixtureRequest, server: Any
) -> None:
    """While it runs, and with queues beside it that belong to no session."""
    async with server(request) as (url, driver):
        database = await RemoteDatabase.open(driver, now_us=NOW_US)
        live_in(database)
        assert await database.open_session("a b") is not None
        if url.startswith("redis"):
            queue = await open_device_queue(url)
        else:
            queue = await PostgresDeviceQueue.open(url, durable="ignore")
        await append(queue, entry("c", b"beside"))
        source = await connect(url, layout="compact", prefix=None, now_us=NOW_US + 2 * SECOND_US)
        lines = [line async for line in source.lines()]
        assert [*lines[:4], *lines[6:]] == EXPORTED
        assert (lines[4]["payload_base64"], lines[5]["last_packet_id"]) == ("YmVzaWRl", 1)
        listed = [stats async for stats in source.queues()]
        assert [(one.client_id, one.publish_count, one.pubrel_count) for one in listed] == [
            ("a b", 2, 1),
            ("c", 1, 0),
            ("empty", 0, 0),
        ]
        for client_id, expected in (("a b", [1, 3, 4]), ("c", [1]), ("nobody", [])):
            found = [one.packet_id async for one in source.entries(client_id)]
            assert found == expected
        assert await source.stats("nobody") is None
        with pytest.raises(CommandFailed, match="session of a broker"):
            await source.discard("a b")
        assert await source.discard("c")
        await source.close()
        # The broker was not disturbed.
        batch = Batch()
        batch.append(message(b"later", "t/9"))
        database.submit(batch, NOW_US + 100)
        assert await database.open_session("empty") is not None
        await queue.close()
        await database.stop()


def tbmq_2(server: RedisServer, prefix: str, time_ms: int) -> None:
    """Keys as TBMQ 2.x leaves them; Redis lets them expire by its own clock."""

    def put(client_id: str, packet_id: int, score: int, **fields: object) -> None:
        key = f"{prefix}{{{client_id}}}_messages_{packet_id}"
        value = {"clientId": client_id, "packetId": packet_id, "time": time_ms, "qos": 1}
        value |= {"packetType": "PUBLISH", "payload": "eA==", "retained": False, "topicName": "t"}
        server.command("SET", key, json.dumps({**value, **fields}), "EX", "604800")
        refer(client_id, packet_id, score)

    def refer(client_id: str, packet_id: int, score: int) -> None:
        base = f"{prefix}{{{client_id}}}_messages"
        server.command("ZADD", base, str(score), f"{base}_{packet_id}")

    def last(client_id: str, packet_id: int) -> None:
        server.command("SET", f"{prefix}{{{client_id}}}_last_packet_id", str(packet_id))

    put("w {r}_messages", 65_534, 65_534)
    put("w {r}_messages", 65_535, 65_535, packetType="PUBREL", qos=2)
    server.command("PERSIST", f"{prefix}{{w {{r}}_messages}}_messages_65535")
    put(
        "w {r}_messages", 1, 65_536, retained=True, userProperties={"props": [{"k": "a", "v": "1"}]}
    )
    refer("w {r}_messages", 2, 65_537)  # its message has expired
    put("w {r}_messages", 3, 65_538, topicName=None, topic="old/name")
    last("w {r}_messages", 3)
    put("ss_group_a/+", 9, 9, msgExpiryInterval=60, contentType="text/plain")
    last("quiet", 0)


@pytest.mark.redis
@pytest.mark.parametrize("prefix", ["", "tenant:"])
async def test_what_tbmq_2_left_in_redis(request: pytest.FixtureRequest, prefix: str) -> None:
    server: RedisServer = request.getfixturevalue("redis_server")
    server.command("FLUSHALL")
    now_us = SystemClock().now_us()
    time_ms = now_us // 1000
    tbmq_2(server, prefix, time_ms)
    source = await connect(server.url, layout="tbmq", prefix=prefix or None, now_us=now_us)
    lines = [line async for line in source.lines()]
    await source.close()
    assert [(line["client_id"], line.get("packet_id"), line.get("state")) for line in lines] == [
        ("quiet", None, None),
        ("ss_group_a/+", 9, "PUBLISH"),
        ("w {r}_messages", 65_534, "PUBLISH"),
        ("w {r}_messages", 65_535, "PUBREL"),
        ("w {r}_messages", 1, "PUBLISH"),
        ("w {r}_messages", 3, "PUBLISH"),
        ("w {r}_messages", None, None),
    ]
    assert (lines[0]["last_packet_id"], lines[6]["last_packet_id"]) == (0, 3)
    assert lines[1]["properties"] == {"content_type": "text/plain", "message_expiry_interval": 60}
    assert lines[1]["expires_at"] == time_ms + 60_000
    week_ms = 604_800_000
    assert time_ms + week_ms - 1000 < lines[2]["expires_at"] < time_ms + week_ms + 60_000
    assert lines[3]["expires_at"] is None
    assert (lines[4]["retain"], lines[4]["properties"]) == (True, {"user_properties": [["a", "1"]]})
    assert (lines[5]["topic"], lines[5]["payload_base64"]) == ("old/name", "eA==")
