"""What a view of the shared log has of its own store as it is: everything that is read, and what is
each node's own business (generations, space)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from perdure.model import GroupRecord, InboxEntry, Message, SessionRecord, StoredSession
from perdure.storage.contract import Counted, GenerationInfo, ReadResult, RetainedPage, StreamInfo
from perdure.storage.ordered.local import Local
from perdure.storage.subscribers import SubscriberPage


class ReadThrough:
    """The reading half of a ``storage.contract.Database``.

    Args:
        local: the node's store.
    """

    def __init__(self, local: Local) -> None:
        self._local = local

    @property
    def last_offset(self) -> int:
        return self._local.last_offset

    @property
    def retained_count(self) -> int:
        return self._local.retained_count

    @property
    def retained_bytes(self) -> int:
        return self._local.retained_bytes

    def retained_size_of(self, topic: str) -> int:
        return self._local.retained_size_of(topic)

    async def read(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        bytes_max: int = 0,
    ) -> ReadResult:
        return await self._local.read(
            filters,
            after_offset=after_offset,
            until_offset=until_offset,
            limit=limit,
            bytes_max=bytes_max,
        )

    async def count(
        self, filters: Sequence[str], *, after_offset: int, until_offset: int, limit: int
    ) -> Counted:
        return await self._local.count(
            filters, after_offset=after_offset, until_offset=until_offset, limit=limit
        )

    def messages_after(self, offset: int) -> int:
        return self._local.messages_after(offset)

    async def open_session(self, client_id: str) -> StoredSession | None:
        return await self._local.open_session(client_id)

    def sessions(self, *, after: str = "") -> AsyncIterator[SessionRecord]:
        return self._local.sessions(after=after)

    async def session_ids(self, *, after: str, limit: int) -> list[str]:
        return await self._local.session_ids(after=after, limit=limit)

    async def session_records(self, client_ids: Sequence[str]) -> list[SessionRecord]:
        return await self._local.session_records(client_ids)

    async def session_count(self) -> int:
        return await self._local.session_count()

    async def subscribers(
        self, topic: str, *, start: bytes, limit: int, steps_max: int
    ) -> SubscriberPage:
        return await self._local.subscribers(topic, start=start, limit=limit, steps_max=steps_max)

    async def subscribers_like(
        self, text: str, *, start: bytes, limit: int, steps_max: int
    ) -> SubscriberPage:
        return await self._local.subscribers_like(
            text, start=start, limit=limit, steps_max=steps_max
        )

    async def due_sessions(self, now_us: int, *, limit: int) -> list[SessionRecord]:
        return await self._local.due_sessions(now_us, limit=limit)

    async def next_deadline_us(self) -> int:
        return await self._local.next_deadline_us()

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        return await self._local.read_inbox(
            client_id, after_offset=after_offset, until_offset=until_offset, limit=limit
        )

    async def groups(self) -> list[GroupRecord]:
        return await self._local.groups()

    async def group_members(self, group_key: str) -> list[str]:
        return await self._local.group_members(group_key)

    async def read_group_entries(
        self, group_key: str, *, limit: int, after_offset: int = 0
    ) -> list[InboxEntry]:
        return await self._local.read_group_entries(
            group_key, limit=limit, after_offset=after_offset
        )

    async def get_retained(self, topic: str) -> Message | None:
        return await self._local.get_retained(topic)

    async def read_retained(
        self, topic_filter: str, *, after_topic: str, limit: int, scan_max: int
    ) -> RetainedPage:
        return await self._local.read_retained(
            topic_filter, after_topic=after_topic, limit=limit, scan_max=scan_max
        )

    def disk_bytes(self) -> int:
        return self._local.disk_bytes()

    @property
    def since_offset(self) -> int:
        return self._local.since_offset

    def generations(self) -> list[GenerationInfo]:
        return self._local.generations()

    def streams(self, generation: int) -> list[StreamInfo]:
        return self._local.streams(generation)

    def rotate(self, now_us: int) -> GenerationInfo:
        return self._local.rotate(now_us)

    def drop_generation(self, generation: int) -> None:
        self._local.drop_generation(generation)
