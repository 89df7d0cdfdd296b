"""Databases are recognised, brought up to date once, or refused before they are touched."""

from __future__ import annotations

import asyncio

import pytest

from perdure.errors import ConfigError, FormatTooNew, StorageCorrupt
from perdure.model import Message
from perdure.storage.device_queue import NewEntry
from perdure.storage.postgres import Pool, PostgresDeviceQueue, Statement
from perdure.storage.postgres.schema import Migration, look, migrate, migrations, missing
from tests.unit.storage.postgres import tbmq

pytestmark = pytest.mark.postgres

COLUMNS = """
SELECT table_name, column_name, data_type, character_maximum_length AS length, is_nullable
FROM information_schema.columns WHERE table_schema = current_schema()
AND table_name LIKE 'device%' ORDER BY table_name, column_name
"""
INDEXES = """
SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()
AND tablename LIKE 'device%' ORDER BY indexname
"""

# To the column, as the seed has them.
SEED = {
    "device_session_ctx": {
        ("client_id", "character varying", 255, "NO"),
        ("last_updated_time", "bigint", None, "NO"),
        ("last_serial_number", "bigint", None, "YES"),
        ("last_packet_id", "integer", None, "YES"),
    },
    "device_publish_msg": {
        ("client_id", "character varying", 255, "NO"),
        ("serial_number", "bigint", None, "NO"),
        ("topic", "character varying", None, "NO"),
        ("time", "bigint", None, "NO"),
        ("packet_id", "integer", None, "YES"),
        ("packet_type", "character varying", 255, "YES"),
        ("qos", "integer", None, "NO"),
        ("payload", "bytea", None, "NO"),
        ("user_properties", "character varying", None, "YES"),
        ("retain", "boolean", None, "YES"),
        ("msg_expiry_interval", "integer", None, "YES"),
        ("payload_format_indicator", "integer", None, "YES"),
        ("content_type", "character varying", 255, "YES"),
        ("response_topic", "character varying", 255, "YES"),
        ("correlation_data", "bytea", None, "YES"),
    },
}
KEYS = {
    "device_session_ctx_pkey": "(client_id)",
    "device_publish_msg_pkey": "(client_id, serial_number)",
    "idx_device_publish_msg_packet_id": "(client_id, packet_id)",
}


async def assert_is_seed(pool: Pool) -> None:
    found: dict[str, set[tuple[object, ...]]] = {}
    for row in await pool.run(Statement(COLUMNS)):
        found.setdefault(row["table_name"], set()).add(tuple(row)[1:])
    assert found == SEED
    indexes = {row["indexname"]: row["indexdef"] for row in await pool.run(Statement(INDEXES))}
    assert indexes.keys() == KEYS.keys()
    assert all(indexes[name].endswith(KEYS[name]) for name in KEYS)


async def test_an_empty_database_gets_the_tables_of_the_seed(pool: Pool) -> None:
    assert not (await look(pool)).has_queues
    assert await migrate(pool) == migrations()
    shape = await look(pool)
    assert (shape.has_queues, shape.has_state, shape.missing) == (True, True, frozenset())
    await assert_is_seed(pool)
    assert await migrate(pool) == []


@pytest.mark.parametrize("version", tbmq.SCHEMAS)
async def test_the_tables_of_each_release_are_brought_up_to_date(pool: Pool, version: str) -> None:
    await tbmq.create(pool, version)
    lacking = {"1.0": 5, "1.2": 2, "1.3": 0}[version]
    shape = await look(pool)
    assert (shape.has_queues, shape.has_state, len(shape.missing)) == (True, False, lacking)
    before = await pool.run(Statement("SELECT count(*) FROM device_publish_msg"))
    await migrate(pool)
    await assert_is_seed(pool)
    assert await pool.run(Statement("SELECT count(*) FROM device_publish_msg")) == before


async def test_any_number_may_start_at_once(url: str) -> None:
    pools = [Pool(url, size=1) for _ in range(4)]
    applied = await asyncio.gather(*(migrate(pool) for pool in pools))
    assert sorted(len(one) for one in applied) == [0, 0, 0, len(migrations())]
    for pool in pools:
        await pool.close()


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("CREATE TABLE device_session_ctx (client_id varchar)", "no column last_updated_time"),
        (tbmq.SESSIONS, "device_publish_msg.*no column client_id"),
        (
            tbmq.SESSIONS.replace("last_packet_id int", "last_packet_id int2") + ";" + tbmq.V1_0,
            "last_packet_id is int2, not int4",
        ),
        (
            tbmq.SESSIONS + ";" + tbmq.V1_0.replace("retain", "shop_id int NOT NULL, retain"),
            "column shop_id is not TBMQ's",
        ),
    ],
)
async def test_tables_of_somebody_else_are_refused(pool: Pool, sql: str, reason: str) -> None:
    async with pool.connection() as connection:
        await connection.execute(sql)
    with pytest.raises(ConfigError, match=reason):
        await look(pool)
    with pytest.raises(ConfigError, match=reason):
        await migrate(pool)
    tables = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE 'p%'"
    assert await pool.run(Statement(tables)) == []


async def test_a_wider_type_is_no_harm(pool: Pool) -> None:
    await tbmq.create(pool, "1.0")
    async with pool.connection() as connection:
        await connection.execute(
            "ALTER TABLE device_publish_msg ALTER COLUMN client_id TYPE text, "
            "ALTER COLUMN packet_id TYPE bigint, ALTER COLUMN qos TYPE bigint"
        )
    await migrate(pool)
    queue = PostgresDeviceQueue(pool)
    message = Message("t", b"", 1)
    (result,) = await queue.append([NewEntry("wrapped", message, 1)], now_us=10**15, limit=2)
    assert (result.packet_id, len(result.trimmed)) == (3, 2)
    await queue.take("wrapped", epoch=1)
    assert await queue.acknowledge("wrapped", [3, 2], epoch=1) == 2
    await queue.close()


async def test_a_column_more_is_no_harm(pool: Pool) -> None:
    await tbmq.create(pool, "1.3")
    await pool.run(Statement("ALTER TABLE device_publish_msg ADD COLUMN note text"))
    await migrate(pool)
    assert (await look(pool)).has_state


async def test_a_later_release_has_been_here(pool: Pool) -> None:
    await migrate(pool)
    await pool.run(Statement("INSERT INTO perdure_migration VALUES (9999, 'later', '')"))
    with pytest.raises(FormatTooNew, match="migration 9999"):
        await migrate(pool)


async def test_without_the_right_to_make_tables(url: str, pool: Pool) -> None:
    async with pool.connection() as connection:
        await connection.execute("CREATE ROLE guest")
        schema = await connection.fetchval("SELECT current_schema()")
        await connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO guest")
    guest = Pool(f"{url}&role=guest", size=1)
    with pytest.raises(ConfigError, match="PostgreSQL"):
        await migrate(guest)
    await guest.close()


def test_only_what_was_not_applied_is_missing() -> None:
    known = [Migration(1, "one", "SELECT 1"), Migration(2, "two", "SELECT 2")]
    first = {"version": 1, "name": "one", "checksum": known[0].checksum}
    assert missing(known, []) == known
    assert missing(known, [first]) == known[1:]
    with pytest.raises(StorageCorrupt, match="migration 1"):
        missing(known, [{**first, "checksum": "another"}])


def test_versions_have_no_gap() -> None:
    found = migrations()
    assert [migration.version for migration in found] == list(range(1, len(found) + 1))
    assert found[0].name == "queues"
