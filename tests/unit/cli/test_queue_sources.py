"""Queues of several kinds of stores, looked at in the same way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from perdure.cli.queue_sources import DeviceQueueSource, merged
from perdure.model import Message
from perdure.storage.device_queue import NewEntry
from perdure.storage.memory import MemoryDeviceQueue

NOW = 1_700_000_000_000_000
SECOND = 1_000_000


async def test_looking_does_not_delete_what_has_expired() -> None:
    queue = MemoryDeviceQueue()
    soon = Message("t", b"x", 1, expires_at_us=NOW + SECOND, published_at_us=NOW)
    later = Message("t", b"y", 1, published_at_us=NOW)
    new = [NewEntry("c", soon, 1), NewEntry("c", later, 1), NewEntry("c", later, 1)]
    await queue.append(new, now_us=NOW, limit=10)
    source = DeviceQueueSource(queue, NOW + 2 * SECOND)
    assert [entry.packet_id async for entry in source.entries("c")] == [2, 3]
    assert [stats.publish_count async for stats in source.queues()] == [3]
    assert await source.discard("c")
    assert not await source.discard("c")
    await source.close()


async def test_messages_without_a_number_have_no_session_line() -> None:
    queue = MemoryDeviceQueue()
    await queue.take("new", epoch=1)
    source = DeviceQueueSource(queue, NOW)
    assert [line async for line in source.lines()] == [{"client_id": "new", "last_packet_id": 0}]


async def of(items: Sequence[str]) -> AsyncIterator[str]:
    for item in items:
        yield item


async def together(first: Sequence[str], second: Sequence[str]) -> list[str]:
    return [item async for item in merged(of(first), of(second), lambda item: item[0])]


async def test_two_sources_keep_their_order_and_the_first_one_wins() -> None:
    assert await together(["a1", "c1", "c2", "e1"], ["b1", "c8", "c9", "d1", "f1"]) == [
        "a1",
        "b1",
        "c1",
        "c2",
        "d1",
        "e1",
        "f1",
    ]
    assert await together([], ["a1", "b1"]) == ["a1", "b1"]
    assert await together(["a1", "b1"], []) == ["a1", "b1"]
    assert await together(["ä1"], ["z1"]) == ["z1", "ä1"]
    assert await together([], []) == []
