"""Contestants: each wraps one of the broker's own stores for the workload.

A *durable* one acknowledges after the disk: AOF ``always``, ``synchronous_commit=on``, a synced
log. A *relaxed* one before it: AOF ``everysec``, ``synchronous_commit=off``, a written log.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, final

from perdure.bench.errors import BenchError
from perdure.model import Cursor, Message, SessionRecord
from perdure.storage.batch import Batch
from perdure.storage.contract import Database
from perdure.storage.device_queue import DeviceQueue, NewEntry
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command
from perdure.storage.redis.compact import CompactLayout, page_of
from perdure.storage.redis.replies import appended_of
from perdure.storage.redis.tbmq import TbmqLayout, looked_at

LIMIT: Final = 1_000
_PAGE_BYTES: Final = 1 << 20
_EPOCH: Final = 1
PREFIX: Final = "bench:"
"""Of all Redis keys of the comparison."""


@functools.cache
def client_id(number: int) -> str:
    """The name of a client."""
    return f"device-{number:06}"


@functools.cache
def topic(number: int) -> str:
    """The topic of a client."""
    return f"p2p/devices/{client_id(number)}"


def message(number: int, payload: bytes, now_us: int) -> Message:
    """A message for a client."""
    return Message(topic(number), payload, 1, published_at_us=now_us)


def now_us() -> int:
    """Wall time."""
    return time.time_ns() // 1000


@final
class QueueStore:
    """A ``DeviceQueue`` of ours.

    Args:
        queue: connected.
        pids: of its server.
        stored_bytes: asks the server for its size.
    """

    def __init__(
        self, queue: DeviceQueue, pids: Sequence[int], stored_bytes: Callable[[], int]
    ) -> None:
        self._queue = queue
        self._stored_bytes = stored_bytes
        self.pids = pids

    async def prepare(self, clients: int) -> None:
        """Own every queue, as a broker does whose clients are connected."""
        for at in range(0, clients, 256):
            some = range(at, min(at + 256, clients))
            await asyncio.gather(*(self._queue.take(client_id(n), epoch=_EPOCH) for n in some))

    async def persist(self, clients: Sequence[int], payload: bytes) -> Sequence[int]:
        """See ``Store.persist``."""
        now = now_us()
        entries = [NewEntry(client_id(n), message(n, payload, now), 1) for n in clients]
        appended = await self._queue.append(entries, now_us=now, limit=LIMIT)
        return [each.packet_id for each in appended]

    async def fetch(self, clients: Sequence[int]) -> int:
        """See ``Store.fetch``."""
        now = now_us()
        pages = await asyncio.gather(
            *(
                self._queue.read(
                    client_id(n), after_serial=-1, limit=100, bytes_max=_PAGE_BYTES, now_us=now
                )
                for n in clients
            )
        )
        return sum(len(page.entries) for page in pages)

    async def acknowledge(self, clients: Sequence[int], packet_ids: Sequence[int]) -> None:
        """See ``Store.acknowledge``."""
        await asyncio.gather(
            *(
                self._queue.acknowledge(client_id(n), [packet_id], epoch=_EPOCH)
                for n, packet_id in zip(clients, packet_ids, strict=True)
            )
        )

    async def stored_bytes(self) -> int:
        """See ``Store.stored_bytes``."""
        return await asyncio.to_thread(self._stored_bytes)

    async def clear(self, clients: int) -> None:
        """See ``Store.clear``."""
        for at in range(0, clients, 256):
            some = range(at, min(at + 256, clients))
            await asyncio.gather(*(self._queue.discard(client_id(n), epoch=_EPOCH) for n in some))

    async def close(self) -> None:
        """See ``Store.close``."""
        await self._queue.close()


class LayoutStore:
    """Queues on Redis in a layout, through a client that sends many commands at once.

    What both clients of this comparison have in common: the same commands and scripts, and the
    same work with the replies, so that nothing but the client differs.

    Args:
        layout: builds the commands; ``tbmq`` or ``compact``.
        pids, stored_bytes: as of ``QueueStore``.
    """

    def __init__(self, layout: Any, pids: Sequence[int], stored_bytes: Callable[[], int]) -> None:
        self._layout = layout
        self._stored_bytes = stored_bytes
        self.pids = pids

    async def run(self, commands: Sequence[Any]) -> list[Any]:
        """Send commands; their replies, in order."""
        raise NotImplementedError

    async def prepare(self, clients: int) -> None:
        """Own every queue."""
        await self._all([self._layout.take(client_id(n), epoch=_EPOCH) for n in range(clients)])

    async def persist(self, clients: Sequence[int], payload: bytes) -> Sequence[int]:
        """See ``Store.persist``."""
        now = now_us()
        append = self._layout.append
        commands = []
        for n in clients:
            name = client_id(n)
            commands.append(
                append(name, [NewEntry(name, message(n, payload, now), 1)], limit=LIMIT)
            )
        return [appended_of(reply)[0].packet_id for reply in await self.run(commands)]

    async def fetch(self, clients: Sequence[int]) -> int:
        """See ``Store.fetch``."""
        if isinstance(self._layout, CompactLayout):
            commands = [self._layout.glance(client_id(n)) for n in clients]
        else:
            read = self._layout.read
            commands = [
                read(client_id(n), after_serial=-1, limit=100, bytes_max=_PAGE_BYTES)
                for n in clients
            ]
        replies = await self.run(commands)
        return sum([self._count(reply) for reply in replies])

    def _count(self, reply: Any) -> int:
        if isinstance(self._layout, TbmqLayout):
            return len(looked_at(reply, after_serial=-1).entries)
        page, _ = page_of(reply, after_serial=-1, limit=100, bytes_max=_PAGE_BYTES, now_us=now_us())
        return len(page.entries)

    async def acknowledge(self, clients: Sequence[int], packet_ids: Sequence[int]) -> None:
        """See ``Store.acknowledge``."""
        acknowledge = self._layout.acknowledge
        replies = await self.run(
            [
                acknowledge(client_id(n), [packet_id], epoch=_EPOCH)
                for n, packet_id in zip(clients, packet_ids, strict=True)
            ]
        )
        if replies.count(1) != len(clients):
            raise BenchError("an acknowledgement found no message")

    async def stored_bytes(self) -> int:
        """See ``Store.stored_bytes``."""
        return await asyncio.to_thread(self._stored_bytes)

    async def clear(self, clients: int) -> None:
        """See ``Store.clear``."""
        raise NotImplementedError

    async def close(self) -> None:
        """See ``Store.close``."""

    async def _all(self, commands: list[Any]) -> None:
        for at in range(0, len(commands), 256):
            await self.run(commands[at : at + 256])


@final
class AsyncRedisStore(LayoutStore):
    """Perdure's client, which waits for nobody.

    Args:
        client: connected, with the layout's code.
        layout, pids, stored_bytes: as of ``LayoutStore``.
    """

    def __init__(
        self, client: RedisClient, layout: Any, pids: Sequence[int], size: Callable[[], int]
    ) -> None:
        super().__init__(layout, pids, size)
        self._client = client

    async def run(self, commands: Sequence[Any]) -> list[Any]:
        """One future for all of them."""
        return await self._client.execute(commands)

    async def clear(self, clients: int) -> None:
        """All keys of the comparison go, whatever the layout calls them."""
        async for keys in self._client.scan(PREFIX.encode() + b"*"):
            await self._client.execute([Command((b"UNLINK", key), key) for key in keys])

    async def close(self) -> None:
        """See ``Store.close``."""
        await self._client.close()


@final
class SyncRedisStore(LayoutStore):
    """redis-py, which waits for each reply: the Jedis of this comparison.

    In the batched shape a call is one pipeline.

    Args:
        url: of the server.
        layout, pids, size: as of ``LayoutStore``.
    """

    def __init__(self, url: str, layout: Any, pids: Sequence[int], size: Callable[[], int]) -> None:
        super().__init__(layout, pids, size)
        try:
            redis = importlib.import_module("redis")
        except ImportError as error:
            raise BenchError("redis-py is not installed", hint="pip install redis") from error
        self._redis: Any = redis.Redis.from_url(url, socket_timeout=30)
        for script in layout.code.scripts:
            self._redis.script_load(script.body)

    async def run(self, commands: Sequence[Any]) -> list[Any]:
        """One round trip; nothing else runs meanwhile."""
        if len(commands) == 1:
            return [self._redis.execute_command(*commands[0].args)]
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command.args)
        found: list[Any] = pipeline.execute()
        return found

    async def clear(self, clients: int) -> None:
        """All keys of the comparison go."""
        for key in list(self._redis.scan_iter(match=PREFIX + "*", count=1000)):
            self._redis.unlink(key)

    async def close(self) -> None:
        """See ``Store.close``."""
        self._redis.close()


@final
class EmbeddedStore:
    """The log in this process, used as the broker uses it.

    A message is recorded once; a fetch reads the client's topic after its cursor; an
    acknowledgement moves the cursor. Calls that wait for the disk at the same time share one sync.

    Args:
        database: opened for writing.
        directory: where it is.
        durable: wait for the disk.
    """

    pids: Sequence[int] = ()

    def __init__(self, database: Database, directory: Path, *, durable: bool) -> None:
        self._database = database
        self._directory = directory
        self._durable = durable
        self._offsets: dict[int, int] = {}
        self._serials: dict[int, int] = {}
        self._syncing: asyncio.Task[None] | None = None
        self._next_sync: asyncio.Task[None] | None = None

    async def prepare(self, clients: int) -> None:
        """A session for every client."""
        for at in range(0, clients, 1_000):
            batch = Batch()
            for n in range(at, min(at + 1_000, clients)):
                batch.put_session(SessionRecord(client_id(n), _EPOCH, 1, 3_600, True, 1))
            self._database.submit(batch, now_us())

    async def persist(self, clients: Sequence[int], payload: bytes) -> Sequence[int]:
        """See ``Store.persist``."""
        now = now_us()
        batch = Batch()
        # The cursor of a session that is owed nothing goes with the log (``Outbound.lift``).
        before = self._database.last_offset
        for n in clients:
            batch.append(message(n, payload, now))
            self._offsets[n] = before
            self._serials[n] = self._serials.get(n, 0) + 1
        self._database.submit(batch, now)
        await self._sync()
        return [self._serials[n] for n in clients]

    async def fetch(self, clients: Sequence[int]) -> int:
        """See ``Store.fetch``."""
        count = 0
        until = self._database.last_offset
        for n in clients:
            page = await self._database.read(
                [topic(n)],
                after_offset=self._offsets[n],
                until_offset=until,
                limit=100,
                bytes_max=_PAGE_BYTES,
            )
            count += len(page.messages)
            self._offsets[n] = page.messages[-1].offset if page.messages else until
        return count

    async def acknowledge(self, clients: Sequence[int], packet_ids: Sequence[int]) -> None:
        """See ``Store.acknowledge``."""
        batch = Batch()
        for n, serial in zip(clients, packet_ids, strict=True):
            cursor = Cursor(self._offsets[n], serial, sent=serial)
            batch.put_cursor(client_id(n), cursor, epoch=_EPOCH)
        self._database.submit(batch, now_us())
        await self._sync()

    async def _sync(self) -> None:
        """Wait for a sync that begins after now; those who wait meanwhile share the next."""
        if not self._durable:
            return
        if self._syncing is None:
            self._syncing = asyncio.create_task(asyncio.to_thread(self._database.sync))
            mine = self._syncing
        else:
            if self._next_sync is None:
                self._next_sync = asyncio.create_task(self._after(self._syncing))
            mine = self._next_sync
        await asyncio.shield(mine)
        if self._syncing is mine:
            self._syncing = None

    async def _after(self, running: asyncio.Task[None]) -> None:
        await asyncio.wait([running])
        self._syncing, self._next_sync = self._next_sync, None
        await asyncio.to_thread(self._database.sync)

    async def stored_bytes(self) -> int:
        """See ``Store.stored_bytes``: files, the log of what is not sorted yet among them."""
        total = 0
        for path in self._directory.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # RocksDB has just deleted it
                total += path.stat().st_size if path.is_file() else 0
        return total

    async def clear(self, clients: int) -> None:
        """See ``Store.clear``: the log is dropped with its directory."""

    async def close(self) -> None:
        """See ``Store.close``."""
        self._database.close()
