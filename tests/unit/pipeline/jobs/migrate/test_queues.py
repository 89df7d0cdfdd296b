"""Device queues as source and target, on the reference queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from perdure.errors import StorageUnavailable
from perdure.pipeline.jobs.migrate import queues
from perdure.pipeline.jobs.migrate.contract import Range
from perdure.pipeline.jobs.migrate.queues import QueueSource, QueueTarget
from perdure.pipeline.jobs.migrate.task import put_pages
from perdure.pipeline.tbmq.pending import PendingPage
from perdure.storage.device_queue import Appended, NewEntry
from perdure.storage.memory import MemoryDeviceQueue
from tests.unit.pipeline.jobs.migrate.samples import HOUR_US, NOW_US, SETTINGS, owed, pages
from tests.unit.pipeline.jobs.migrate.test_directory import each

ENTRIES = [
    owed(1, 65_535, expires_at_us=NOW_US + HOUR_US),
    owed(2, 1, released=True),
    owed(4, 2, retain=True, identifiers=(3,), forget_at_us=NOW_US + HOUR_US),
]


async def read_all(queue: Any, client_id: str = "c", **settings: Any) -> list[PendingPage]:
    part = Range(0, 1, clients=(client_id,))
    return [page async for page in QueueSource(queue).read(part, SETTINGS)]


async def test_there_and_back() -> None:
    queue = MemoryDeviceQueue()
    target = QueueTarget(queue, now_us=NOW_US)
    for _ in range(2):  # a run that was killed is repeated
        result = await put_pages(0, each(pages("c", ENTRIES)), target)
        assert result.mismatches == []
        assert (result.entries, result.pubrels) == (3, 1)
    [page] = await read_all(queue)
    assert [entry.packet_id for entry in page.entries] == [65_535, 1, 2]
    assert [entry.released for entry in page.entries] == [False, True, False]
    assert page.entries[2].forget_at_us == NOW_US + HOUR_US
    assert (page.last_packet_id, page.is_first, page.is_last) == (2, True, True)
    again = await put_pages(0, each([page]), QueueTarget(MemoryDeviceQueue(), now_us=NOW_US))
    assert again.digest == result.digest


@pytest.mark.parametrize("entries", [[], ENTRIES])
async def test_the_last_packet_identifier_is_kept(entries: list[Any]) -> None:
    queue = MemoryDeviceQueue()
    target = QueueTarget(queue, now_us=NOW_US)
    for _ in range(2):
        result = await put_pages(0, each(pages("c", entries, last=900)), target)
        assert result.mismatches == []
    stats = await queue.stats("c")
    assert stats is not None
    assert stats.last_packet_id == 900
    assert stats.publish_count + stats.pubrel_count == len(entries)


async def test_a_client_without_anything_is_known() -> None:
    queue = MemoryDeviceQueue()
    result = await put_pages(0, each(pages("c", [])), QueueTarget(queue, now_us=NOW_US))
    assert result.mismatches == []
    stats = await queue.stats("c")
    assert stats is not None
    assert (stats.publish_count, stats.last_packet_id) == (0, 0)


async def test_an_entry_goes_for_no_counter() -> None:
    queue = MemoryDeviceQueue()
    target = QueueTarget(queue, now_us=NOW_US)
    result = await put_pages(0, each(pages("c", ENTRIES, last=65_535)), target)
    assert result.mismatches == []
    stats = await queue.stats("c")
    assert stats is not None
    assert stats.last_packet_id == 2


async def test_what_has_expired_stays_behind() -> None:
    queue = MemoryDeviceQueue()
    late = [owed(1, 1, expires_at_us=NOW_US), owed(2, 2), owed(3, 3, forget_at_us=NOW_US - 1)]
    await put_pages(0, each(pages("c", late)), QueueTarget(queue, now_us=0))
    [page] = await read_all(queue)
    assert [entry.payload for entry in page.entries] == [b"2"]
    assert page.entries[0].place == 3
    assert page.losses.expired == 2
    assert page.last_packet_id == 3
    stats = await queue.stats("c")
    assert stats is not None
    assert stats.publish_count == 3  # a source is not changed


async def test_long_queues_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "PAGE_ENTRIES", 2)
    monkeypatch.setattr(queues, "BATCH_ENTRIES", 2)
    queue = MemoryDeviceQueue()
    entries = [owed(place, place) for place in range(1, 6)]
    await put_pages(0, each(pages("c", entries)), QueueTarget(queue, now_us=NOW_US))
    found = await read_all(queue)
    assert [len(page.entries) for page in found] == [2, 2, 1]
    assert [page.is_first for page in found] == [True, False, False]
    assert [page.is_last for page in found] == [False, False, True]
    ranges = [part async for part in QueueSource(queue).plan(3)]
    assert [part.clients for part in ranges] == [("c",)]


async def test_plan_packs_clients_into_ranges() -> None:
    queue = MemoryDeviceQueue()
    target = QueueTarget(queue, now_us=NOW_US)
    for client_id in "abc":
        await put_pages(0, each(pages(client_id, [owed(1, 1), owed(2, 2)])), target)
    ranges = [part async for part in QueueSource(queue).plan(4)]
    assert [part.clients for part in ranges] == [("a", "b"), ("c",)]
    assert [part.number for part in ranges] == [0, 1]


class SlowQueue(MemoryDeviceQueue):
    """Looks at a batch only when its write ends, as a client that sends later does."""

    def __init__(self, *, failures: int = 0) -> None:
        super().__init__()
        self.failures = failures

    async def append(
        self, entries: Sequence[NewEntry], *, now_us: int, limit: int
    ) -> list[Appended]:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise StorageUnavailable("connection lost")
        return await super().append(entries, now_us=now_us, limit=limit)


@pytest.mark.trap(22)
async def test_a_batch_is_not_cleared_while_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 22: every entry of every batch arrives, however late the store looks at it."""
    monkeypatch.setattr(queues, "BATCH_ENTRIES", 2)
    queue = SlowQueue()
    entries = [owed(place, place) for place in range(1, 8)]
    result = await put_pages(0, each(pages("c", entries)), QueueTarget(queue, now_us=NOW_US))
    assert result.mismatches == []
    assert result.entries == 7


@pytest.mark.trap(22)
async def test_a_write_that_fails_ends_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 22: what was not written is not counted, and the repeat brings it in order."""
    monkeypatch.setattr(queues, "BATCH_ENTRIES", 2)
    queue = SlowQueue(failures=1)
    entries = [owed(place, place) for place in range(1, 8)]
    with pytest.raises(StorageUnavailable):
        await put_pages(0, each(pages("c", entries)), QueueTarget(queue, now_us=NOW_US))
    result = await put_pages(0, each(pages("c", entries)), QueueTarget(queue, now_us=NOW_US))
    assert result.mismatches == []
    [page] = await read_all(queue)
    assert [entry.packet_id for entry in page.entries] == list(range(1, 8))


async def test_what_the_target_had_before_is_told() -> None:
    queue = MemoryDeviceQueue()
    target = QueueTarget(queue, now_us=NOW_US)
    await put_pages(0, each(pages("c", [owed(9, 9)])), target)
    result = await put_pages(0, each(pages("c", [owed(1, 1)])), target)
    [mismatch] = result.mismatches
    assert (mismatch.client_id, mismatch.reason) == ("c", "contents differ")
