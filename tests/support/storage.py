"""A store that fails, and dies, when it is told to.

It keeps three levels apart, as a disk does: what a batch holds (memory), what was written (safe
against the death of the process) and what was synced (safe against power loss). ``crash`` ends a
process and returns what the next one finds.

``FaultyDatabase`` is a ``storage.contract.Database`` on top of the reference backend.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from perdure.errors import StorageError
from perdure.model import GroupRecord, InboxEntry, Message, SessionRecord, StoredSession
from perdure.storage.batch import Batch
from perdure.storage.capabilities import Capabilities
from perdure.storage.contract import (
    Counted,
    GenerationInfo,
    ReadResult,
    RetainedPage,
    StreamInfo,
)
from perdure.storage.memory import MemoryDatabase
from perdure.storage.subscribers import SubscriberPage


class ProcessDied(BaseException):
    """The process that wrote is dead: nothing after the write happened."""


class FaultyDatabase:
    """The reference backend with faults.

    Args:
        inner: what is kept.

    Attributes:
        die_in: writes until the process dies in one; -1 = it does not.
        die_after_write: it dies after that write has taken effect, not before.
        write_error: every write fails with this, until ``heal``.
        sync_error: every sync fails with this, until ``heal``.
        read_error: every read that may wait fails with this, until ``heal``.
        forgets: a failed sync has lost what was written since the last good one.
        pause: awaited before each read, as if the store were a server; None = reads never wait.
        write_count: batches written.
        sync_count: syncs done.
    """

    def __init__(self, inner: MemoryDatabase | None = None) -> None:
        self.inner = inner or MemoryDatabase()
        self.die_in = -1
        self.die_after_write = False
        self.write_error: StorageError | None = None
        self.sync_error: StorageError | None = None
        self.read_error: StorageError | None = None
        self.forgets = False
        self.pause: Callable[[], Awaitable[None]] | None = None
        self.write_count = 0
        self.sync_count = 0
        self._has_lost = False
        self.on_sequenced: Callable[[], None] | None = None

    def use_loop(self, later: Callable[[Callable[[], None]], object]) -> None:
        """What is done later is done by a loop; nothing is, here."""

    # Faults.

    def crash(self, *, power: bool, chance: random.Random | None = None) -> FaultyDatabase:
        """The process dies; returns what the next one opens.

        Args:
            power: what was not synced is lost. With ``chance`` some of it, from the last batch
                backwards: a disk may have got further than it was asked to.
            chance: decides how much.
        """
        if power:
            unsynced = self.inner.unsynced_count
            self.inner.lose_power(keep=chance.randint(0, unsynced) if chance is not None else 0)
        return type(self)(self.inner.reopened())

    def heal(self) -> None:
        """What made it fail is gone: the next ``recover`` succeeds."""
        self.write_error = None
        self.sync_error = None
        self.read_error = None
        self.inner.fail_with = None

    @property
    def is_failing(self) -> bool:
        """Whether a write or a sync would fail now."""
        return self.write_error is not None or self.sync_error is not None

    # Writing.

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    @property
    def last_offset(self) -> int:
        return self.inner.last_offset

    @property
    def has_failed(self) -> bool:
        return self.inner.has_failed

    @property
    def retained_count(self) -> int:
        return self.inner.retained_count

    @property
    def retained_bytes(self) -> int:
        return self.inner.retained_bytes

    def retained_size_of(self, topic: str) -> int:
        return self.inner.retained_size_of(topic)

    def submit(self, batch: Batch, now_us: int) -> None:
        if self.write_error is not None:
            self.inner.fail_with = self.write_error
        dies = self.dies()
        if dies and not self.die_after_write:
            raise ProcessDied
        self.inner.submit(batch, now_us)
        self.write_count += 1
        if dies:
            raise ProcessDied

    def dies(self) -> bool:
        """Whether the process dies in this write."""
        dies = self.die_in == 0
        if self.die_in >= 0:
            self.die_in -= 1
        return dies

    def fail_if_told(self) -> None:
        """Fail as a write does."""
        if self.write_error is not None:
            self.inner.fail_with = self.write_error
        self.inner.refuse_if_failed()

    def sync(self) -> None:
        if self.sync_error is not None:
            self.inner.fail_with = self.sync_error
            self._has_lost = self.forgets
        self.inner.sync()
        self.sync_count += 1

    async def recover(self) -> bool:
        if self.is_failing:
            return False
        if self._has_lost:
            self._has_lost = False
            self.inner.lose_power()
        return await self.inner.recover()

    # Reading.

    async def read(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        bytes_max: int = 0,
    ) -> ReadResult:
        await self._wait()
        return await self.inner.read(
            filters,
            after_offset=after_offset,
            until_offset=until_offset,
            limit=limit,
            bytes_max=bytes_max,
        )

    async def count(
        self, filters: Sequence[str], *, after_offset: int, until_offset: int, limit: int
    ) -> Counted:
        await self._wait()
        return await self.inner.count(
            filters, after_offset=after_offset, until_offset=until_offset, limit=limit
        )

    def messages_after(self, offset: int) -> int:
        return self.inner.messages_after(offset)

    async def open_session(self, client_id: str) -> StoredSession | None:
        await self._wait()
        return await self.inner.open_session(client_id)

    def sessions(self, *, after: str = "") -> AsyncIterator[SessionRecord]:
        return self.inner.sessions(after=after)

    async def session_ids(self, *, after: str, limit: int) -> list[str]:
        await self._wait()
        return await self.inner.session_ids(after=after, limit=limit)

    async def session_records(self, client_ids: Sequence[str]) -> list[SessionRecord]:
        await self._wait()
        return await self.inner.session_records(client_ids)

    async def session_count(self) -> int:
        return await self.inner.session_count()

    async def subscribers(
        self, topic: str, *, start: bytes, limit: int, steps_max: int
    ) -> SubscriberPage:
        await self._wait()
        return await self.inner.subscribers(topic, start=start, limit=limit, steps_max=steps_max)

    async def subscribers_like(
        self, text: str, *, start: bytes, limit: int, steps_max: int
    ) -> SubscriberPage:
        await self._wait()
        return await self.inner.subscribers_like(
            text, start=start, limit=limit, steps_max=steps_max
        )

    async def due_sessions(self, now_us: int, *, limit: int) -> list[SessionRecord]:
        await self._wait()
        return await self.inner.due_sessions(now_us, limit=limit)

    async def next_deadline_us(self) -> int:
        return await self.inner.next_deadline_us()

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        await self._wait()
        return await self.inner.read_inbox(
            client_id, after_offset=after_offset, until_offset=until_offset, limit=limit
        )

    async def groups(self) -> list[GroupRecord]:
        await self._wait()
        return await self.inner.groups()

    async def group_members(self, group_key: str) -> list[str]:
        await self._wait()
        return await self.inner.group_members(group_key)

    async def read_group_entries(
        self, group_key: str, *, limit: int, after_offset: int = 0
    ) -> list[InboxEntry]:
        await self._wait()
        return await self.inner.read_group_entries(
            group_key, limit=limit, after_offset=after_offset
        )

    async def get_retained(self, topic: str) -> Message | None:
        await self._wait()
        return await self.inner.get_retained(topic)

    async def read_retained(
        self, topic_filter: str, *, after_topic: str, limit: int, scan_max: int
    ) -> RetainedPage:
        await self._wait()
        return await self.inner.read_retained(
            topic_filter, after_topic=after_topic, limit=limit, scan_max=scan_max
        )

    async def sweep_retained(self, now_us: int, *, limit: int) -> int:
        return await self.inner.sweep_retained(now_us, limit=limit)

    # The log.

    def disk_bytes(self) -> int:
        return self.inner.disk_bytes()

    @property
    def since_offset(self) -> int:
        return self.inner.since_offset

    def generations(self) -> list[GenerationInfo]:
        if self.read_error is not None and self.has_failed:
            raise self.read_error  # as while a database is closed, to be opened again
        return self.inner.generations()

    def streams(self, generation: int) -> list[StreamInfo]:
        return self.inner.streams(generation)

    def rotate(self, now_us: int) -> GenerationInfo:
        return self.inner.rotate(now_us)

    def drop_generation(self, generation: int) -> None:
        self.inner.drop_generation(generation)

    def close(self) -> None:
        self.inner.close()

    async def _wait(self) -> None:
        if self.pause is not None:
            await self.pause()
        if self.read_error is not None:
            raise self.read_error
