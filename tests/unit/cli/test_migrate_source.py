"""A data directory as the source of a migration: what a client would get is what moves."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support.staged import Staged

pytest.importorskip("pyarrow")
from perdure.cli import migrate_source
from perdure.cli.migrate_source import DatabaseSource, open_directory_source
from perdure.model import Message, Subscription
from perdure.pipeline.jobs.migrate.directory import DatabaseTarget, Sessions
from perdure.pipeline.jobs.migrate.queues import QueueTarget
from perdure.pipeline.jobs.migrate.task import copy_range, put_pages
from perdure.pipeline.tbmq.pending import PendingPage
from perdure.storage.memory import MemoryDatabase, MemoryDeviceQueue
from perdure.storage.rocksdb import RocksDatabase
from tests.unit.pipeline.jobs.migrate.samples import HOUR_US, NOW_US, SETTINGS, owed, pages
from tests.unit.pipeline.jobs.migrate.test_directory import each

ENTRIES = [
    owed(1, 65_535, expires_at_us=NOW_US + HOUR_US),
    owed(2, 1, released=True),
    owed(3, 1, retain=True),
    owed(4, 7, forget_at_us=NOW_US + 5),
]


async def _filled(database: RocksDatabase | MemoryDatabase) -> None:
    sessions = Sessions(NOW_US, subscriptions={"c": [Subscription("live/#", qos=1)]})
    target = DatabaseTarget(database, sessions)
    await target.begin()
    result = await put_pages(
        0, each([*pages("c", ENTRIES, last=9), *pages("d", [], last=4)]), target
    )
    assert result.mismatches == []
    batch = Staged(database)
    batch.append(Message("live/1", b"live", 1, published_at_us=NOW_US), NOW_US)
    batch.append(Message("other", b"not for c", 1, published_at_us=NOW_US), NOW_US)
    batch.write()
    database.sync()


async def _read(source: DatabaseSource, **settings: object) -> dict[str, list[PendingPage]]:
    found: dict[str, list[PendingPage]] = {}
    changed = msgspec.structs.replace(SETTINGS, **settings)
    async for part in source.plan(10_000):
        async for page in source.read(part, changed):
            found.setdefault(page.client_id, []).append(page)
    return found


async def test_what_was_taken_over_can_move_on(tmp_path: Path) -> None:
    database = RocksDatabase.open(tmp_path / "data")
    await _filled(database)
    source = open_directory_source(str(tmp_path / "data"))  # beside the one that writes
    found = await _read(source)
    [page] = found["c"]
    assert [(e.payload, e.packet_id, e.released) for e in page.entries] == [
        (b"1", 65_535, False),
        (b"", 1, True),
        (b"3", 1, False),
        (b"4", 7, False),
        (b"live", 10, False),
    ]
    assert page.last_packet_id == 10
    assert (found["d"][0].entries, found["d"][0].last_packet_id) == ([], 4)
    queue = MemoryDeviceQueue()
    unique = msgspec.structs.replace(SETTINGS, unique=True)
    [part] = [part async for part in source.plan(10_000)]
    result = await copy_range(source, part, QueueTarget(queue, now_us=NOW_US), unique)
    assert result.mismatches == []
    assert (result.entries, result.losses.renumbered) == (5, 1)
    await source.close()
    database.close()


async def test_what_has_expired_keeps_the_places_of_the_rest() -> None:
    database = MemoryDatabase()
    await _filled(database)
    source = DatabaseSource(database)
    early = (await _read(source))["c"][0].entries
    late = (await _read(source, now_us=NOW_US + 6))["c"][0].entries
    places = {entry.payload: entry.place for entry in early}
    assert [entry.payload for entry in late] == [b"1", b"", b"3", b"live"]
    assert all(entry.place == places[entry.payload] for entry in late)


async def test_long_queues_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate_source, "PAGE_ENTRIES", 2)
    database = MemoryDatabase()
    await _filled(database)
    queue = (await _read(DatabaseSource(database)))["c"]
    assert [len(page.entries) for page in queue] == [2, 2, 1]
    assert [page.is_last for page in queue] == [False, False, True]
    ranges = [part async for part in DatabaseSource(database).plan(10)]
    assert [part.clients for part in ranges] == [("c",), ("d",)]
