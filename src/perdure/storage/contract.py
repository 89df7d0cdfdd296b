"""What every storage backend promises.

One ``Database`` holds everything durable of one broker: the log, sessions, private streams
(inboxes), shared groups and retained messages. Writes go through a ``batch.Batch``, which is
atomic: after a crash either all of it is there or nothing. ``Database.submit`` hands a batch to the
log; when it is *sequenced*, which for a store in this process is before ``submit`` returns, it has
its offsets and reads see it. ``Database.sync`` makes what is sequenced safe against power loss.

A ``Message`` or ``InboxEntry`` that was given to a batch or came from a read is shared: nobody
changes it afterwards, but for the store that gives it its offset. What is submitted for a session
under an epoch that is not its owner's any more is refused (``fencing``).

Reads see every sequenced batch. They are coroutines because a backend may be a server; an embedded
backend never suspends in them. Backends raise ``StorageError`` and nothing else: the names of the
library behind them stay in their room.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol, runtime_checkable

from perdure.model import GroupRecord, InboxEntry, Message, SessionRecord, StoredSession
from perdure.storage.batch import Batch
from perdure.storage.capabilities import Capabilities
from perdure.storage.results import (
    Counted,
    Finding,
    GenerationInfo,
    ReadResult,
    RetainedPage,
    StreamInfo,
)
from perdure.storage.subscribers import SubscriberPage
from perdure.topic.proposal import Structure

__all__ = [
    "Batch",
    "Capabilities",
    "Counted",
    "Database",
    "Finding",
    "GenerationInfo",
    "ReadResult",
    "RetainedPage",
    "StreamInfo",
    "TakesStructure",
]


@runtime_checkable
class TakesStructure(Protocol):
    """A database whose log learns topic structures and can be told one."""

    def rotate_to(self, structure: Structure, now_us: int) -> GenerationInfo:
        """Start a new generation, which begins with a structure instead of what was learned.

        Raises:
            ConfigError: the structure cannot be used.
        """
        ...


class Database(Protocol):
    """A broker's durable state on one shard."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do besides; the same for as long as it is open."""
        ...

    @property
    def last_offset(self) -> int:
        """The highest offset of what was sequenced (also by a previous process)."""
        ...

    @property
    def has_failed(self) -> bool:
        """Whether a write or a sync has failed, so that all are refused until ``recover``."""
        ...

    @property
    def retained_count(self) -> int:
        """Number of retained topics."""
        ...

    @property
    def retained_bytes(self) -> int:
        """Bytes of all retained messages, each as ``codec.retained_size`` counts it."""
        ...

    def retained_size_of(self, topic: str) -> int:
        """What the written retained message of a topic counts, bytes; 0 = there is none."""
        ...

    on_sequenced: Callable[[], None] | None
    """Called when batches have been sequenced that were not when ``submit`` returned."""

    def submit(self, batch: Batch, now_us: int) -> None:
        """Hand a batch to the log.

        Once ``batch.is_sequenced``, it was applied but for ``batch.refused``: operations for
        an owner that is none any more. Batches are sequenced in the order in which they were
        submitted here, with those of other submitters in between. What is sequenced is safe
        against the death of the process if the store ``keeps_written``.

        Args:
            now_us: wall time; offsets are ``max(last + 1, now_us)`` and consecutive for what one
                batch holds. A log that is elsewhere goes by its own time.

        Raises:
            StorageFull, StorageUnavailable: nothing of the batch was applied, and every later
                write fails until ``recover`` has returned True.
        """
        ...

    def sync(self) -> None:
        """Make every batch written before this call safe against power loss.

        Blocks, and gives up the GIL while it does: call it in a thread.

        Raises:
            StorageUnavailable: what was written since the last sync may be lost.
        """
        ...

    async def recover(self) -> bool:
        """After a failed write or sync, try to become writable again.

        Batches that were begun before may be written afterwards.

        Returns:
            True once a probe was written and synced; False while the cause lasts.

        Raises:
            StorageCorrupt: something that had been synced is gone.
        """
        ...

    async def read(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        bytes_max: int = 0,
    ) -> ReadResult:
        """Recorded messages that match any filter, in offset order, each once.

        Args:
            filters: topic filters without ``$share``; a leading wildcard does not match ``$``.
            after_offset: exclusive lower bound.
            until_offset: inclusive upper bound.
            limit: most messages to return, >= 1.
            bytes_max: most bytes of its messages; 0 = no bound. One message is always
                returned if one matches, however large.
        """
        ...

    async def count(
        self, filters: Sequence[str], *, after_offset: int, until_offset: int, limit: int
    ) -> Counted:
        """How many messages there are for ``read``, a page of them as it has: at most ``limit``,
        and fewer where much is looked at in vain. Payloads are not read where the layout can tell
        from the keys."""
        ...

    def messages_after(self, offset: int) -> int:
        """How many messages were recorded after an offset, at most: an upper estimate from
        sparse counters, within a few thousand of the truth, without a look at the disk."""
        ...

    async def open_session(self, client_id: str) -> StoredSession | None:
        """Everything stored of a session, or None.

        Subscriptions come by ``since_offset``, then name; packet identifiers ascend.
        """
        ...

    def sessions(self, *, after: str = "") -> AsyncIterator[SessionRecord]:
        """All session records in client-id order (UTF-8), from the first id above ``after``."""
        ...

    async def session_ids(self, *, after: str, limit: int) -> list[str]:
        """Client ids of the stored sessions in their order, from the first above ``after``, without
        a look at their records."""
        ...

    async def session_records(self, client_ids: Sequence[str]) -> list[SessionRecord]:
        """The records of sessions, in the order that was asked for, without those that are not
        there."""
        ...

    async def session_count(self) -> int:
        """Number of stored sessions."""
        ...

    async def subscribers(
        self, topic: str, *, start: bytes, limit: int, steps_max: int
    ) -> SubscriberPage:
        """Stored subscriptions that hold and that a topic matches, those of groups and those with a
        content filter too, in an order of the store's.

        Args:
            topic: topic name.
            start: where the page before says that the next one begins; empty = the beginning.
            limit: most subscriptions to return.
            steps_max: most entries to look at, so that one page's time is bounded: it may be
                short, or empty, and go on all the same.
        """
        ...

    async def subscribers_like(
        self, text: str, *, start: bytes, limit: int, steps_max: int
    ) -> SubscriberPage:
        """Stored subscriptions that hold and whose names have a text in them; see
        ``subscribers``."""
        ...

    async def due_sessions(self, now_us: int, *, limit: int) -> list[SessionRecord]:
        """Sessions whose ``deadline_us`` has come, earliest first."""
        ...

    async def next_deadline_us(self) -> int:
        """The earliest ``deadline_us`` of any session; 0 = none."""
        ...

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        """Entries of a session's private stream in offset order (bounds as in ``read``)."""
        ...

    async def groups(self) -> list[GroupRecord]:
        """All shared groups."""
        ...

    async def group_members(self, group_key: str) -> list[str]:
        """Client ids of the durable members of a group."""
        ...

    async def read_group_entries(
        self, group_key: str, *, limit: int, after_offset: int = 0
    ) -> list[InboxEntry]:
        """Messages returned to a group, oldest first."""
        ...

    async def get_retained(self, topic: str) -> Message | None:
        """The retained message of one topic."""
        ...

    async def read_retained(
        self, topic_filter: str, *, after_topic: str, limit: int, scan_max: int
    ) -> RetainedPage:
        """A page of the retained messages that match a filter.

        Args:
            after_topic: where the page before ended (``next_after``); empty = start.
            limit: most messages to return.
            scan_max: most keys to look at, so that one page's time is bounded.
        """
        ...

    async def sweep_retained(self, now_us: int, *, limit: int) -> int:
        """Look at the next ``limit`` retained messages (in turn, over all of them) and delete
        those that have expired, in a write of its own.

        Returns:
            How many were deleted.
        """
        ...

    def disk_bytes(self) -> int:
        """Space that the data take on disk, bytes."""
        ...

    @property
    def since_offset(self) -> int:
        """What was recorded with a lower offset, the log has dropped: the oldest generation's."""
        ...

    def generations(self) -> list[GenerationInfo]:
        """The generations of the log, oldest first; asks each for its size."""
        ...

    def streams(self, generation: int) -> list[StreamInfo]:
        """The learned streams of a generation."""
        ...

    def rotate(self, now_us: int) -> GenerationInfo:
        """Start a new generation, which inherits the learned wildcards."""
        ...

    def drop_generation(self, generation: int) -> None:
        """Delete a generation that is not the current one."""
        ...

    def close(self) -> None:
        """Flush, sync and release the directory."""
        ...
