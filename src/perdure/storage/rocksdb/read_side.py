"""The half of a database in a directory that reads.

Joins the readers of the log, of sessions and of retained messages; writes nothing, and knows of
writing only what the marks say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from perdure.errors import UsageError
from perdure.model import GroupRecord, InboxEntry, Message, SessionRecord, StoredSession
from perdure.storage.codec import decode_retained
from perdure.storage.contract import (
    Counted,
    Finding,
    GenerationInfo,
    ReadResult,
    RetainedPage,
    StreamInfo,
)
from perdure.storage.retained_walk import retained_key
from perdure.storage.rocksdb import retained
from perdure.storage.rocksdb.check import Checker
from perdure.storage.rocksdb.engine import RETAINED, Engine
from perdure.storage.rocksdb.generations import Generations
from perdure.storage.rocksdb.handle import EngineHandle
from perdure.storage.rocksdb.log import LogReader
from perdure.storage.rocksdb.marks import Marks
from perdure.storage.rocksdb.sessions import SessionReader
from perdure.storage.subscribers import SubscriberPage


class ReadSide:
    """Reads for ``RocksDatabase``, which puts new ``_marks`` at each write.

    Args:
        handle: the engine.
        generations, log: the log.
        sessions: sessions and groups.
    """

    def __init__(
        self,
        handle: EngineHandle,
        generations: Generations,
        log: LogReader,
        sessions: SessionReader,
    ) -> None:
        self._handle = handle
        self._generations = generations
        self._log = log
        self._sessions = sessions
        self._marks = Marks()

    @property
    def has_failed(self) -> bool:
        return self._handle.has_failed

    @property
    def retained_count(self) -> int:
        return self._marks.retained_count

    @property
    def retained_bytes(self) -> int:
        return self._marks.retained_bytes

    def retained_size_of(self, topic: str) -> int:
        key = retained_key(topic)
        value = self._handle.use().get(RETAINED, key)
        return 0 if value is None else len(key) + len(value)

    # -- the log ---------------------------------------------------------------------------

    async def read(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        bytes_max: int = 0,
    ) -> ReadResult:
        return self._log.read(filters, after_offset, until_offset, limit, bytes_max)

    async def count(
        self, filters: Sequence[str], *, after_offset: int, until_offset: int, limit: int
    ) -> Counted:
        return self._log.count(filters, after_offset, until_offset, limit)

    def messages_after(self, offset: int) -> int:
        return self._generations.messages_after(offset)

    def disk_bytes(self) -> int:
        total = 0
        for entry in self._handle.path.iterdir():
            try:
                total += entry.stat().st_size
            except FileNotFoundError:  # a compaction has just replaced it
                continue
        return total

    @property
    def since_offset(self) -> int:
        return self._generations.oldest.header.since_offset

    def generations(self) -> list[GenerationInfo]:
        return self._generations.info()

    def streams(self, generation: int) -> list[StreamInfo]:
        found = self._generations.get(generation)
        if found is None:
            raise UsageError(f"generation {generation} is unknown")
        return [StreamInfo(generation, *stream) for stream in found.layout.streams()]

    def tables(self) -> tuple[Engine, Generations]:
        """What is open now, for ``bulk``, which reads rows and not messages."""
        return self._handle.use(), self._generations

    @property
    def marks(self) -> Marks:
        """The high marks, for a repair."""
        return self._marks

    def check(self) -> Iterator[Finding]:
        """Look at every row; yields what is wrong (``check.py``). Nothing may write meanwhile."""
        return Checker(self._handle.use(), self._generations, self._marks).run()

    # -- sessions and groups ---------------------------------------------------------------

    async def open_session(self, client_id: str) -> StoredSession | None:
        return await self._sessions.open_session(client_id)

    def sessions(self, *, after: str = "") -> AsyncIterator[SessionRecord]:
        return self._sessions.sessions(after)

    async def session_ids(self, *, after: str, limit: int) -> list[str]:
        return await self._sessions.session_ids(after=after, limit=limit)

    async def session_records(self, client_ids: Sequence[str]) -> list[SessionRecord]:
        return await self._sessions.session_records(client_ids)

    async def session_count(self) -> int:
        return self._marks.session_count

    async def subscribers(
        self, topic: str, *, start: bytes, limit: int, steps_max: int
    ) -> SubscriberPage:
        return await self._sessions.subscribers(
            topic, start=start, limit=limit, steps_max=steps_max
        )

    async def subscribers_like(
        self, text: str, *, start: bytes, limit: int, steps_max: int
    ) -> SubscriberPage:
        return await self._sessions.subscribers_like(
            text, start=start, limit=limit, steps_max=steps_max
        )

    async def due_sessions(self, now_us: int, *, limit: int) -> list[SessionRecord]:
        return await self._sessions.due_sessions(now_us, limit)

    async def next_deadline_us(self) -> int:
        return await self._sessions.next_deadline_us()

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        return await self._sessions.read_inbox(
            client_id, after_offset=after_offset, until_offset=until_offset, limit=limit
        )

    async def groups(self) -> list[GroupRecord]:
        return await self._sessions.groups()

    async def group_members(self, group_key: str) -> list[str]:
        return await self._sessions.group_members(group_key)

    async def read_group_entries(
        self, group_key: str, *, limit: int, after_offset: int = 0
    ) -> list[InboxEntry]:
        return await self._sessions.read_group_entries(
            group_key, limit=limit, after_offset=after_offset
        )

    # -- retained --------------------------------------------------------------------------

    async def get_retained(self, topic: str) -> Message | None:
        value = self._handle.use().get(RETAINED, retained_key(topic))
        return None if value is None else decode_retained(topic, value)

    async def read_retained(
        self, topic_filter: str, *, after_topic: str, limit: int, scan_max: int
    ) -> RetainedPage:
        return retained.read_page(
            self._handle.use(),
            topic_filter,
            after_topic=after_topic,
            limit=limit,
            scan_max=scan_max,
        )
