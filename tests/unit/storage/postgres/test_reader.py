"""Looking into a database that may be ours or TBMQ's, without changing it."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError
from perdure.model import Message
from perdure.storage.device_queue import NewEntry
from perdure.storage.postgres import Pool, PostgresDeviceQueue, Statement
from perdure.storage.postgres.reader import PostgresQueueReader
from perdure.storage.postgres.schema import migrate
from tests.unit.storage.postgres import tbmq

pytestmark = pytest.mark.postgres

NOW_US = 1_700_000_000_000_000


async def names(reader: PostgresQueueReader) -> list[tuple[str, bool]]:
    return [(stats.client_id, is_session) async for stats, is_session in reader.queues()]


@pytest.mark.parametrize("version", tbmq.SCHEMAS)
async def test_data_of_tbmq_stay_as_they_are(url: str, pool: Pool, version: str) -> None:
    await tbmq.create(pool, version)
    reader = await PostgresQueueReader.open(url)
    assert await names(reader) == [
        ("empty", True),
        ("new", True),
        ("orphan {x}/ü", False),
        ("repeated", True),
        ("wrapped", True),
    ]
    page = await reader.read("repeated", after_serial=-1, limit=3, bytes_max=100, now_us=NOW_US)
    assert ([entry.serial for entry in page.entries], page.next_after) == ([0, 1, 2], 2)
    assert await reader.stats("unknown") is None
    assert await reader.discard("repeated")
    assert not await reader.discard("repeated")
    assert await reader.discard("orphan {x}/ü")
    assert [name for name, _ in await names(reader)] == ["empty", "new", "wrapped"]
    await reader.close()
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()"
    assert (await pool.run(Statement(tables)))[0][0] == 2


async def test_what_has_expired_is_left_out_and_left_alone(url: str, pool: Pool) -> None:
    await migrate(pool)
    queue = PostgresDeviceQueue(pool)
    await queue.take("c", epoch=7)
    await queue.take("taken", epoch=1)
    message = Message("t", b"x", 1, expires_at_us=NOW_US + 1_000_000, published_at_us=NOW_US)
    await queue.append([NewEntry("c", message, 1)], now_us=NOW_US, limit=10)
    reader = await PostgresQueueReader.open(url)
    page = await reader.read(
        "c", after_serial=-1, limit=3, bytes_max=100, now_us=NOW_US + 2_000_000
    )
    assert (page.entries, page.next_after) == ([], None)
    stats = await reader.stats("c")
    assert stats is not None
    assert (stats.publish_count, stats.epoch) == (1, 7)
    assert await names(reader) == [("c", True), ("taken", True)]
    assert await reader.discard("c")
    assert await queue.stats("c") is None
    await reader.close()


async def test_a_database_without_queues(url: str) -> None:
    with pytest.raises(ConfigError, match="no device queues"):
        await PostgresQueueReader.open(url)
