"""TBMQ's tables, made and filled by plain SQL, in each release's columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import asyncpg
import msgspec
import pytest

from perdure.errors import ConfigError, StorageUnavailable
from perdure.pipeline.jobs.migrate import postgres
from perdure.pipeline.jobs.migrate.contract import Range
from perdure.pipeline.jobs.migrate.postgres import PostgresSource
from perdure.pipeline.tbmq.pending import PendingPage
from tests.support.database_servers import PostgresServer
from tests.unit.pipeline.jobs.migrate.samples import NOW_US, SETTINGS, numbers

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.slow,
]
NOW_MS = NOW_US // 1000
SESSIONS = """CREATE TABLE device_session_ctx (client_id varchar(255) PRIMARY KEY,
    last_updated_time bigint NOT NULL, last_serial_number bigint, last_packet_id integer)"""
V1_0 = """CREATE TABLE device_publish_msg (client_id varchar(255) NOT NULL,
    serial_number bigint NOT NULL, topic varchar NOT NULL, time bigint NOT NULL,
    packet_id integer, packet_type varchar(255), qos integer NOT NULL, payload bytea NOT NULL,
    PRIMARY KEY (client_id, serial_number))"""
V1_2 = """ALTER TABLE device_publish_msg ADD user_properties varchar, ADD retain boolean,
    ADD msg_expiry_interval integer, ADD payload_format_indicator integer,
    ADD content_type varchar(255)"""
V1_3 = """ALTER TABLE device_publish_msg ADD response_topic varchar(255),
    ADD correlation_data bytea"""
INSERT = """INSERT INTO device_publish_msg (client_id, serial_number, topic, time, packet_id,
    packet_type, qos, payload) VALUES ($1, $2, 't', $3, $4, $5, $6, $7)"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(settings={"shared_buffers": "16MB"}, durable=False) as running:
        yield running


async def database(server: PostgresServer, name: str, *statements: str) -> Any:
    """A connection to a new database."""
    first = await asyncpg.connect(server.url)
    await first.execute(f"CREATE DATABASE {name}")
    await first.close()
    connection = await asyncpg.connect(server.database_url(name))
    for statement in statements:
        await connection.execute(statement)
    return connection


async def insert(
    connection: Any,
    client_id: str,
    *rows: tuple[int, int | None],
    kind: str | None = "PUBLISH",
    time_ms: int = NOW_MS,
) -> None:
    await connection.executemany(
        INSERT,
        [(client_id, serial, time_ms, packet, kind, 1, b"%d" % serial) for serial, packet in rows],
    )


async def read(
    url: str, part: Range | None = None, **settings: Any
) -> dict[str, list[PendingPage]]:
    source = PostgresSource(url)
    found: dict[str, list[PendingPage]] = {}
    changed = msgspec.structs.replace(SETTINGS, **settings)
    try:
        async for page in source.read(part or Range(0, 1), changed):
            found.setdefault(page.client_id, []).append(page)
    finally:
        await source.close()
    return found


async def test_the_first_release(server: PostgresServer) -> None:
    connection = await database(server, "v1_0", SESSIONS, V1_0)
    # Serial numbers give the order; identifiers wrap, are missing, and come twice.
    await insert(connection, "c", (65_533, 65_534), (65_534, 65_535), (65_535, 1), (65_536, None))
    await insert(connection, "c", (70_000, 1))
    await connection.execute("INSERT INTO device_session_ctx VALUES ('c', 1, 70000, 1)")
    await connection.execute("INSERT INTO device_session_ctx VALUES ('empty', 1, 8, 9)")
    await connection.execute("INSERT INTO device_session_ctx VALUES ('new', 1, NULL, NULL)")
    await insert(connection, "no session", (0, 7), kind=None)
    found = await read(server.database_url("v1_0"))
    assert numbers(found["c"]) == [
        (b"65533", 65_534),
        (b"65534", 65_535),
        (b"65535", 1),
        (b"65536", 2),
        (b"70000", 1),
    ]
    assert found["c"][0].losses.renumbered == 1
    assert found["c"][0].last_packet_id == 2
    assert (found["empty"][0].entries, found["empty"][0].last_packet_id) == ([], 9)
    assert (found["new"][0].entries, found["new"][0].last_packet_id) == ([], 0)
    assert numbers(found["no session"]) == [(b"0", 7)]
    unique = await read(server.database_url("v1_0"), unique=True)
    assert [number for _, number in numbers(unique["c"])] == [65_534, 65_535, 1, 2, 3]
    await connection.close()


async def test_every_column_of_the_later_releases(server: PostgresServer) -> None:
    connection = await database(server, "v1_2", SESSIONS, V1_0, V1_2)
    await connection.execute(
        "INSERT INTO device_publish_msg VALUES ('c', 0, 't', $1, 3, 'PUBLISH', 2, '', "
        """'{"props":[{"k":"a","v":"b"}]}', true, 600, 1, 'text')""",
        NOW_MS,
    )
    [entry] = (await read(server.database_url("v1_2")))["c"][0].entries
    assert (entry.qos, entry.retain, entry.payload) == (2, True, b"")
    assert entry.expires_at_us == NOW_US + 600_000_000
    assert b"text" in entry.properties
    await connection.execute(V1_3)
    await connection.execute(
        "UPDATE device_publish_msg SET response_topic = 'answer', correlation_data = '\\x00ff'"
    )
    [entry] = (await read(server.database_url("v1_2")))["c"][0].entries
    assert b"answer" in entry.properties
    await connection.close()


async def test_what_stays_behind(server: PostgresServer) -> None:
    connection = await database(server, "losses", SESSIONS, V1_0, V1_2, V1_3)
    hour_ms = 3_600_000
    await insert(connection, "c", (0, 1), (1, 2), time_ms=NOW_MS - 9 * 24 * hour_ms)
    await insert(connection, "c", (2, 3), kind="PUBREL", time_ms=NOW_MS - 9 * 24 * hour_ms)
    await insert(connection, "c", (3, 3), kind="PUBREL")
    await insert(connection, "c", *[(serial, serial) for serial in range(4, 10)])
    await connection.execute("UPDATE device_publish_msg SET qos = 7 WHERE serial_number = 9")
    found = await read(server.database_url("losses"), ttl_s=7 * 86_400, limit=6)
    entries = [entry for page in found["c"] for entry in page.entries]
    assert [entry.packet_id for entry in entries] == [3, 6, 7, 8]
    assert [entry.released for entry in entries] == [True, False, False, False]
    assert {entry.forget_at_us for entry in entries} == {0, NOW_US + 7 * 86_400_000_000}
    losses = found["c"][0].losses
    assert (losses.expired, losses.over_limit, losses.repeated) == (2, 2, 1)
    [damaged] = losses.damaged
    assert "'c' row 9" in damaged
    await connection.close()


async def test_ranges_hold_every_client_once(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "PAGE_ENTRIES", 3)
    connection = await database(server, "ranges", SESSIONS, V1_0)
    clients = ["a", "B", "b", "ä", "a b", "{x}", "z_messages", "", "ss_g_t/#", "7"]
    for count, client_id in enumerate(clients):
        await insert(connection, client_id, *[(serial, serial + 1) for serial in range(count)])
        await connection.execute(
            "INSERT INTO device_session_ctx VALUES ($1, 1, $2::int, $2::int)", client_id, count
        )
    source = PostgresSource(server.database_url("ranges"))
    ranges = [part async for part in source.plan(12)]
    await source.close()
    assert len(ranges) > 3
    assert (ranges[0].after, ranges[0].number) == (None, 0)
    seen: dict[str, int] = {}
    for part in ranges:
        for client_id, queue in (await read(server.database_url("ranges"), part)).items():
            assert client_id not in seen
            seen[client_id] = len(numbers(queue))
            assert [page.is_first for page in queue] == [True] + [False] * (len(queue) - 1)
            assert [page.is_last for page in queue] == [False] * (len(queue) - 1) + [True]
            assert all(len(page.entries) <= 3 for page in queue)
    assert seen == {client_id: count for count, client_id in enumerate(clients)}
    await connection.close()


async def test_what_is_no_tbmq_is_said(server: PostgresServer) -> None:
    connection = await database(server, "other", "CREATE TABLE device_publish_msg (client_id int)")
    with pytest.raises(ConfigError, match="serial_number"):
        await read(server.database_url("other"))
    await connection.execute("DROP TABLE device_publish_msg")
    await connection.execute(V1_0)
    with pytest.raises(ConfigError, match="device_session_ctx"):
        await read(server.database_url("other"))
    await connection.execute("DROP TABLE device_publish_msg")
    with pytest.raises(ConfigError, match="not there"):
        await read(server.database_url("other"))
    await connection.close()
    with pytest.raises(ConfigError, match="absent"):
        await read(server.database_url("absent"))
    with pytest.raises(StorageUnavailable, match="does not answer"):
        await read("postgresql://127.0.0.1:1/none")


async def test_a_server_that_goes_away(server: PostgresServer) -> None:
    connection = await database(server, "leaving", SESSIONS, V1_0)
    for number in range(20):
        await insert(connection, f"c{number}", *[(serial, serial + 1) for serial in range(50)])
    source = PostgresSource(server.database_url("leaving"))
    pages = source.read(Range(0, 1), SETTINGS)
    assert (await anext(pages)).client_id == "c0"
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = 'leaving' AND pid <> pg_backend_pid()"
    )
    with pytest.raises(StorageUnavailable, match="does not answer"):
        async for _ in pages:
            pass
    await source.close()
    await connection.close()


async def test_a_user_without_rights(server: PostgresServer) -> None:
    connection = await database(server, "closed", SESSIONS, V1_0)
    await connection.execute("CREATE USER nobody_special PASSWORD 'x'")
    url = server.database_url("closed").split("@")[1]
    with pytest.raises(ConfigError, match="refuses"):
        await read(f"postgresql://nobody_special:x@{url}")
    with pytest.raises(ConfigError, match="refuses"):
        await read(f"postgresql://nobody_special:y@{url}")
    await connection.close()
