"""From store to store to store: what comes out at the end is what went in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import msgspec
import pytest

pytest.importorskip("hiredis")
from perdure.cli.migrate_source import open_directory_source
from perdure.clock import SystemClock
from perdure.errors import ConfigError
from perdure.model import Subscription
from perdure.pipeline.jobs.migrate import stores
from perdure.pipeline.jobs.migrate.directory import DatabaseTarget, Sessions
from perdure.pipeline.jobs.migrate.endpoints import Endpoint
from perdure.pipeline.jobs.migrate.job import Migration, Options, Summary, execute_here
from perdure.pipeline.jobs.migrate.ledger import Ledger
from perdure.pipeline.jobs.migrate.task import put_pages
from perdure.storage.memory import MemoryDatabase
from tests.support.database_servers import PostgresServer, RedisServer
from tests.unit.pipeline.jobs.migrate.samples import SETTINGS, owed, pages
from tests.unit.pipeline.jobs.migrate.test_directory import each
from tests.unit.pipeline.jobs.migrate.test_postgres import SESSIONS, V1_0, V1_2, V1_3

pytestmark = [
    pytest.mark.redis,
    pytest.mark.postgres,
    pytest.mark.slow,
]
NOW_US = SystemClock().now_us()
"""Redis expires keys by its own clock."""
FILL = """INSERT INTO device_publish_msg SELECT 'client ' || c, s, 't/' || c, $1,
    (65530 + s) % 65535 + 1, CASE WHEN s = 3 THEN 'PUBREL' ELSE 'PUBLISH' END,
    1 + s % 2, convert_to(c || '/' || s, 'UTF8'),
    CASE WHEN s % 2 = 0 THEN '{"props":[{"k":"a","v":"ä"},{"k":"a","v":""}]}' END, s % 3 = 0,
    CASE WHEN s % 4 = 1 THEN 5000 END, s % 2, CASE WHEN s > 5 THEN 'text' END,
    CASE WHEN s > 6 THEN 'answers' END, CASE WHEN s > 7 THEN '\\x00ff'::bytea END
    FROM generate_series(1, 30) c, generate_series(0, 9) s"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    async def fill(server: PostgresServer) -> None:
        connection = await asyncpg.connect(server.url)
        for statement in (SESSIONS, V1_0, V1_2, V1_3):
            await connection.execute(statement)
        for name in ("other", "whole", "shares"):
            await connection.execute(f"CREATE DATABASE {name}")
        await connection.execute(FILL, NOW_US // 1000 - 60_000)
        await connection.execute(
            "INSERT INTO device_session_ctx SELECT 'client ' || c, 1, 9, 100 + c "
            "FROM generate_series(1, 31) c"
        )
        await connection.close()

    with PostgresServer(settings={"shared_buffers": "16MB"}, durable=False) as server:
        asyncio.run(fill(server))
        yield server


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer(appendfsync="always") as server:
        yield server


def move(ledger: Path, source: Endpoint, target: Endpoint) -> Summary:
    """Migrate, twice: the second time without a ledger that knows of the first."""
    options = Options(
        source,
        target,
        ttl_s=10**6,
        limit=65_535,
        entries_per_range=100,
        directory=open_directory_source,
    )
    summary = Summary()
    for number in range(1 if target.is_database else 2):
        kept = Ledger(ledger / str(number))
        migration = Migration(options, kept, execute=execute_here, now_us=NOW_US)
        summary = migration.run()
        migration.close()
        assert summary.mismatches == []
        assert (summary.clients, summary.entries, summary.pubrels) == (31, 300, 30)
    return summary


@pytest.mark.filterwarnings("default")
def test_around(postgres: PostgresServer, redis: RedisServer, tmp_path: Path) -> None:
    first = Endpoint("postgres", postgres.url)
    compact = Endpoint("redis", redis.url, "compact")
    last = Endpoint("postgres", postgres.database_url("other"))
    tbmq = Endpoint("redis", redis.url, "tbmq", "t:")
    again = Endpoint("redis", redis.url, "compact", "again:")
    sums = []
    for number, (source, target) in enumerate(
        [
            (first, compact),
            (compact, last),
            (last, tbmq),
            (tbmq, Endpoint("directory", str(tmp_path / "data"))),
            (Endpoint("directory", str(tmp_path / "data")), again),
            (compact, Endpoint("redis", redis.url, "broker", "whole")),
            (first, Endpoint("postgres", postgres.database_url("whole"), "broker")),
        ]
    ):
        summary = move(tmp_path / f"ledger-{number}", source, target)
        sums.append((summary.clients, summary.entries, summary.payload_bytes > 0))
    assert len(set(sums)) == 1

    async def counters() -> list[int]:
        source = await stores.open_source(again)
        found = {}
        async for part in source.plan(10**6):
            async for page in source.read(part, SETTINGS):
                found[page.client_id] = page.last_packet_id
        await source.close()
        return [found[f"client {number}"] for number in range(1, 32)]

    assert asyncio.run(counters()) == [100 + number for number in range(1, 32)]


async def test_shared_queues_with_subscription_identifiers(
    postgres: PostgresServer, redis: RedisServer
) -> None:
    """From each kind of store, also one that was written by TBMQ's own layout."""
    sent = [owed(1, 5, identifiers=(3, 9)), owed(2, 6), owed(3, 7, identifiers=(268_435_455,))]
    shares = Sessions(NOW_US, subscriptions={"c": [Subscription("t/+", "g")]})
    for endpoint in (
        Endpoint("redis", redis.url, "compact", "shares:"),
        Endpoint("redis", redis.url, "tbmq", "shared:"),
        Endpoint("postgres", postgres.database_url("shares")),
    ):
        target = await stores.open_target(endpoint, now_us=NOW_US)
        await put_pages(0, each(pages("ss_g_t/+", sent)), target)
        await target.close()
        source = await stores.open_source(endpoint)
        database = MemoryDatabase()
        sessions = DatabaseTarget(database, shares)
        await sessions.begin()
        settings = msgspec.structs.replace(SETTINGS, now_us=NOW_US)
        async for part in source.plan(10**6):
            result = await put_pages(part.number, source.read(part, settings), sessions)
            assert (result.entries, result.mismatches) == (3, []), endpoint.kind
        await source.close()
        found = await database.read_group_entries("g/t/+", limit=9)
        assert [entry.identifiers for entry in found] == [(3, 9), (), (268_435_455,)]


async def test_a_directory_has_one_writer() -> None:
    with pytest.raises(ConfigError, match="one writer"):
        await stores.open_target(Endpoint("directory", "data"), now_us=1)
