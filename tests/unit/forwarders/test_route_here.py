"""``pipeline route`` in one process on a real Redis: what a broken round has written already is not
written again, a target that is away leaves the cursor where it is, and a dropped range is told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.errors import ConfigError, StorageUnavailable
from perdure.model import Message
from perdure.storage.redis.open import open_device_queue
from perdure.storage.rocksdb import RocksDatabase
from tests import servers
from tests.support.database_servers import RedisServer
from tests.support.staged import Staged
from tests.unit.pipeline.logs import SECOND, START, open_log

pytest.importorskip("pyarrow")
from perdure.forwarders.route import here
from perdure.forwarders.route.here import route_here
from perdure.forwarders.route.job import RouteJob, Task, Written
from perdure.forwarders.route.queue_writer import QueueSettings, may_lose
from perdure.forwarders.route.targets import QUEUE, Route
from perdure.pipeline.offsets import StreamPosition
from perdure.pipeline.options import ReadOptions

pytestmark = pytest.mark.redis

COUNT = 250


def fill(database: RocksDatabase, first: int) -> None:
    """Messages of QoS 0, 1 and 2 in turn, on three topics."""
    staged = Staged(database)
    for i in range(first, first + COUNT):
        message = Message(f"m/{i % 5}", b"%d" % i, i % 3, publisher="p")
        staged.append(message, START + i * SECOND)


def wanted(topics: set[int], qos: int, count: int) -> list[tuple[bytes, int]]:
    return [(b"%d" % i, min(i % 3, qos)) for i in range(count) if i % 3 and i % 5 in topics]


@pytest.mark.parametrize("layout", ["tbmq", "compact"])
def test_queues_have_their_part_once(tmp_path: Path, layout: str) -> None:
    url = servers.redis().url
    prefix = f"{servers.redis_prefix()}:"
    settings = QueueSettings(url, layout, prefix)  # type: ignore[arg-type]
    routes = (Route(QUEUE, "one", "m/1", 1), Route(QUEUE, "t {o", "m/#"), Route(QUEUE, "t {o", "#"))
    told: list[StreamPosition] = []

    def job(start: int | None, where: QueueSettings = settings, rows: int = 60) -> RouteJob:
        return RouteJob(
            ReadOptions(str(tmp_path / "db")),
            Task(routes, {}, "origin", where),
            execute=route_here,
            start=start,
            on_position=told.append,
            rows_per_round=rows,
        )

    def run(each: RouteJob) -> list[Written]:
        found: list[Written] = []
        has_more = True
        while has_more:
            written, has_more = each.run_round()
            found += written
        return found

    with_log = open_log(tmp_path / "db")
    try:
        fill(with_log, 0)
        first, has_more = job(None).run_round()
        assert has_more
        early = told[-1].offset
        # A driver that is killed has written a round and not said so.
        assert sum(each.repeated for each in run(job(None))) == sum(each.written for each in first)
        assert told[-1].offset > early
        fill(with_log, COUNT)
        away = QueueSettings("redis://127.0.0.1:1", layout, prefix)  # type: ignore[arg-type]
        before = told[-1]
        with pytest.raises(StorageUnavailable, match="queues"):
            run(job(before.offset, away))
        assert told[-1] == before
        assert sum(each.repeated for each in run(job(before.offset))) == 0
        assert run(job(told[-1].offset)) == []
        with_log.rotate(START + 3 * COUNT * SECOND)
        with_log.drop_generation(1)
        with pytest.raises(ConfigError, match="dropped"):
            run(job(early))
    finally:
        with_log.close()
    assert asyncio.run(queues(url, layout, prefix)) == {
        "one": wanted({1}, 1, 2 * COUNT),
        "t {o": wanted({0, 1, 2, 3, 4}, 2, 2 * COUNT),
    }


@pytest.mark.parametrize("limit", ["BYTES_MAX", "OWED_MAX"])
def test_a_round_that_is_too_large_for_memory_is_made_smaller(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred thousand messages of any size, each for any number of queues, were one round."""
    url, prefix = servers.redis().url, f"{servers.redis_prefix()}:"
    monkeypatch.setattr(here, limit, 20)
    routes = (Route(QUEUE, "one", "m/1", 1), Route(QUEUE, "t {o", "#"))
    task = Task(routes, {}, "origin", QueueSettings(url, "tbmq", prefix))
    told: list[StreamPosition] = []
    with_log = open_log(tmp_path / "db")
    fill(with_log, 0)
    with_log.close()
    options = ReadOptions(str(tmp_path / "db"))
    job = RouteJob(options, task, execute=route_here, start=None, on_position=told.append)
    has_more = True
    while has_more:
        _, has_more = job.run_round()
    assert len(told) > 10
    assert asyncio.run(queues(url, "tbmq", prefix)) == {
        "one": wanted({1}, 1, COUNT),
        "t {o": wanted({0, 1, 2, 3, 4}, 2, COUNT),
    }


@pytest.mark.parametrize(("fsync", "lost"), [("always", 0), ("everysec", 1)])
def test_a_redis_that_may_lose_entries_is_told(fsync: str, lost: int) -> None:
    with RedisServer(appendfsync=fsync) as server:
        found = may_lose(QueueSettings(server.url))
    assert len(found) == lost
    with pytest.raises(StorageUnavailable):
        may_lose(QueueSettings("redis://127.0.0.1:1"))


async def queues(url: str, layout: str, prefix: str) -> dict[str, list[tuple[bytes, int]]]:
    """Payload and QoS of each entry, in order."""
    queue = await open_device_queue(url, layout=layout, prefix=prefix)  # type: ignore[arg-type]
    found = {}
    try:
        for name in ("one", "t {o"):
            page = await queue.read(name, after_serial=0, limit=9999, bytes_max=1 << 24, now_us=1)
            found[name] = [(each.message.payload, each.qos) for each in page.entries]
    finally:
        await queue.close()
    return found
