"""The calls that both layouts share: what is sent, and what is made of the answers.

What they mean is in ``tests/contract``, on real servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import pytest

from perdure.errors import UsageError
from perdure.storage.device_queue import NewEntry, QueueStats
from perdure.storage.redis.commands import Command, Reply
from perdure.storage.redis.compact import CompactLayout
from perdure.storage.redis.compact_queue import CompactDeviceQueue
from perdure.storage.redis.device_queue import RedisDeviceQueue
from perdure.storage.redis.tbmq import TbmqLayout


@final
class FakeClient:
    """Answers in order, and remembers the commands."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.sent: list[Command] = []
        self.is_closed = False

    async def execute(self, commands: Sequence[Command]) -> list[Reply]:
        self.sent += commands
        return [self.replies.pop(0) for _ in commands]

    async def call(self, command: Command) -> Reply:
        return (await self.execute([command]))[0]

    async def close(self) -> None:
        self.is_closed = True


def stats_of(client_id: str, reply: Reply) -> QueueStats | None:
    assert reply is None
    return None


@pytest.mark.parametrize("layout", [CompactLayout(), TbmqLayout()])
async def test_acknowledge_and_release_count(layout: Any) -> None:
    client = FakeClient(2, 1, None)
    queue = RedisDeviceQueue(client, layout, stats_of)  # type: ignore[arg-type]
    assert await queue.acknowledge("c", [1, 2], epoch=7) == 2
    assert await queue.release("c", [3], epoch=7, forget_at_us=9) == 1
    assert await queue.stats("c") is None
    assert [command.args for command in client.sent] == [
        layout.acknowledge("c", [1, 2], epoch=7).args,
        layout.release("c", [3], epoch=7, forget_at_us=9).args,
        layout.stats("c").args,
    ]
    await queue.close()
    assert client.is_closed


async def test_nothing_is_sent_for_no_entries_and_a_limit_is_checked() -> None:
    client = FakeClient()
    queue = CompactDeviceQueue(client, CompactLayout())  # type: ignore[arg-type]
    entries: list[NewEntry] = []
    assert await queue.append(entries, now_us=0, limit=1) == []
    with pytest.raises(UsageError):
        await queue.append(entries, now_us=0, limit=0)
    assert client.sent == []
