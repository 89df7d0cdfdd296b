"""The whole migration, without Spark: planned, killed, gone on with, verified."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ConfigError, StorageError, StorageLocked, StorageUnavailable
from perdure.model import Subscription
from perdure.pipeline.jobs.migrate import stores
from perdure.pipeline.jobs.migrate.contract import Range, RangeResult
from perdure.pipeline.jobs.migrate.endpoints import Endpoint
from perdure.pipeline.jobs.migrate.job import (
    Migration,
    Options,
    Task,
    execute_here,
    parse_subscriptions,
    run_task,
)
from perdure.pipeline.jobs.migrate.ledger import Ledger
from perdure.pipeline.jobs.migrate.queues import QueueTarget
from perdure.storage.memory import MemoryDeviceQueue
from perdure.storage.rocksdb import RocksDatabase
from tests.unit.pipeline.jobs.migrate.samples import NOW_US, ListSource, owed, pages

SOURCE = Endpoint("postgres", "postgresql://u:secret@h/d")
CLIENTS = [f"c{number}" for number in range(6)]


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> ListSource:
    found = ListSource(
        *[
            pages(client_id, [owed(place, place + number) for place in range(1, number + 1)])
            for number, client_id in enumerate(CLIENTS)
        ]
    )

    async def open_source(endpoint: Endpoint, directory: object) -> ListSource:
        return found

    monkeypatch.setattr(stores, "open_source", open_source)
    return found


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> MemoryDeviceQueue:
    found = MemoryDeviceQueue()

    async def open_target(endpoint: Endpoint, *, now_us: int) -> QueueTarget:
        return QueueTarget(found, now_us=now_us)

    async def check_target(endpoint: Endpoint) -> None:
        assert endpoint == REDIS

    monkeypatch.setattr(stores, "open_target", open_target)
    monkeypatch.setattr(stores, "check_target", check_target)
    return found


def options(target: Endpoint) -> Options:
    return Options(SOURCE, target, ttl_s=0, limit=100)


def migrate(tmp_path: Path, target: Endpoint, execute: Any = execute_here, **more: Any) -> Any:
    ledger = Ledger(tmp_path / "ledger")
    migration = Migration(options(target), ledger, execute=execute, now_us=NOW_US, **more)
    try:
        return migration.run()
    finally:
        migration.close()


class Dies:
    """Runs some tasks, and is gone; the last one has written and nobody was told."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __call__(self, task: Task, ranges: Sequence[Range]) -> Iterator[RangeResult]:
        for number, part in enumerate(ranges):
            result = run_task(task, part)
            if number == self.after:
                raise StorageUnavailable("killed")
            yield result


REDIS = Endpoint("redis", "redis://h", "compact")


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("after", range(6))
def test_into_queues_with_a_kill_at_any_range(
    tmp_path: Path, queue: MemoryDeviceQueue, after: int
) -> None:
    with pytest.raises(StorageUnavailable):
        migrate(tmp_path, REDIS, Dies(after))
    told: list[tuple[int, int, int]] = []
    summary = migrate(tmp_path, REDIS, progress=lambda *numbers: told.append(numbers))
    assert (summary.clients, summary.entries, summary.mismatch_count) == (6, 15, 0)
    assert summary.resumed_ranges == after
    assert told[-1] == (6, 6, 15)
    for number, client_id in enumerate(CLIENTS):
        page = asyncio.run(
            queue.read(client_id, after_serial=-1, limit=99, bytes_max=10**6, now_us=0)
        )
        assert [entry.packet_id for entry in page.entries] == [
            place + number for place in range(1, number + 1)
        ]


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("after", [0, 3, 5])
def test_into_a_directory_with_a_kill(tmp_path: Path, after: int) -> None:
    target = Endpoint("directory", str(tmp_path / "data"))
    subs = {"c1": [Subscription("t/#")], "only": [Subscription("t/#")]}
    with pytest.raises(StorageUnavailable):
        migrate(tmp_path, target, Dies(after), subscriptions=subs)
    summary = migrate(tmp_path, target, subscriptions=subs)
    assert (summary.clients, summary.entries, summary.mismatch_count) == (6, 15, 0)
    assert (summary.resumed_ranges, summary.sessions_added) == (after, 1)
    assert not (tmp_path / "ledger" / "stage").exists()
    with pytest.raises(ConfigError, match="another migration"):
        migrate(tmp_path, target)
    again = migrate(tmp_path, target, subscriptions=subs)
    assert (again.resumed_ranges, again.entries) == (6, 15)
    database = RocksDatabase.open(tmp_path / "data")
    assert list(database.check()) == []
    assert asyncio.run(database.session_count()) == 7
    database.close()


@pytest.mark.usefixtures("source")
def test_a_directory_in_use_is_left_alone(tmp_path: Path) -> None:
    database = RocksDatabase.open(tmp_path / "data")
    with pytest.raises(StorageLocked):
        migrate(tmp_path, Endpoint("directory", str(tmp_path / "data")))
    database.close()


@pytest.mark.usefixtures("source")
def test_a_staged_file_that_was_cut_is_noticed(tmp_path: Path) -> None:
    def cut(task: Task, ranges: Sequence[Range]) -> Iterator[RangeResult]:
        for result in execute_here(task, ranges[5:]):
            [path] = Path(task.stage).iterdir()
            whole = path.read_bytes()
            first = 4 + int.from_bytes(whole[:4])
            path.write_bytes(whole[:first])
            yield result

    with pytest.raises(StorageError, match="not what was read"):
        migrate(tmp_path, Endpoint("directory", str(tmp_path / "data")), cut)
    summary = migrate(tmp_path, Endpoint("directory", str(tmp_path / "data")))
    assert (summary.entries, summary.mismatch_count) == (15, 0)


@pytest.mark.usefixtures("queue")
def test_a_dry_run_leaves_nothing(source: ListSource, tmp_path: Path) -> None:
    migration = Migration(options(REDIS), None, execute=execute_here, now_us=NOW_US)
    summary = migration.dry_run()
    migration.close()
    assert (summary.clients, summary.entries) == (6, 15)
    assert list(tmp_path.iterdir()) == []
    assert source.closed


@pytest.mark.usefixtures("source", "queue")
def test_secrets_are_not_in_the_ledger(tmp_path: Path) -> None:
    migrate(tmp_path, REDIS)
    assert "secret" not in (tmp_path / "ledger" / "plan.jsonl").read_text()


def test_subscriptions_of_a_file() -> None:
    lines = [
        b'{"client_id":"c","filter":"$share/g/a/#","qos":2,"identifier":7}',
        b"",
        b'{"client_id":"c","filter":"b","no_local":true,"retain_handling":2}',
        b'{"client_id":"d","filter":"b","retain_as_published":true}',
        b'{"client_id":"d","filter":"b","qos":0}',
    ]
    assert parse_subscriptions(lines) == {
        "c": [
            Subscription("a/#", "g", 2, identifier=7),
            Subscription("b", qos=1, no_local=True, retain_handling=2),
        ],
        "d": [Subscription("b", qos=0)],
    }


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b'{"client_id":"c"}',
        b'{"client_id":"c","filter":"a/#/b"}',
        b'{"client_id":"c","filter":"$share/g"}',
        b'{"client_id":"c","filter":"a","qos":3}',
        b'{"client_id":"c","filter":"a","what":1}',
    ],
)
def test_a_line_that_is_no_subscription_is_named(line: bytes) -> None:
    with pytest.raises(ConfigError, match="line 2"):
        parse_subscriptions([b"\n", line])
