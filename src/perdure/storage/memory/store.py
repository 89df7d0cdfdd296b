"""The reference implementation of ``storage.contract``.

``submit`` applies a batch to the live state and keeps it; ``sync`` applies what was kept to a
second state, which is what a power cut would leave: ``lose_power`` goes back to it. Tests and
simulations use it for that.

Invariant: the live state is the synced state plus the changes written since.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeAlias, final

from perdure.config.schema.storage import StorageConfig
from perdure.errors import StorageUnavailable, UsageError
from perdure.model import GroupRecord, InboxEntry, Message, SessionRecord, StoredSession
from perdure.storage.batch import Batch, apply, give_offsets
from perdure.storage.capabilities import EMBEDDED, Capabilities
from perdure.storage.codec import retained_size
from perdure.storage.contract import Counted, GenerationInfo, ReadResult, RetainedPage, StreamInfo
from perdure.storage.fencing import stale
from perdure.storage.memory.state import State, retained_key
from perdure.storage.notes import Note
from perdure.storage.offsets import Offsets
from perdure.storage.subscribers import (
    Subscriber,
    SubscriberPage,
    parse_subscriber,
    subscriber_key,
)
from perdure.topic.matching import matches

Change: TypeAlias = Callable[[State], None]


@final
class MemoryDatabase:
    """A ``storage.contract.Database`` without a disk.

    Attributes:
        offsets: of its log.
        fail_with: when set, writes and syncs raise it until it is cleared and ``recover`` ran.
    """

    def __init__(self) -> None:
        self._live = State()
        self._synced = State()
        self._unsynced: list[Change] = []
        self.offsets = Offsets()
        self._failed = False
        self._closed = False
        self.fail_with: Exception | None = None
        self.on_sequenced: Callable[[], None] | None = None

    # -- writing ---------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        return EMBEDDED

    @property
    def last_offset(self) -> int:
        return self.offsets.last

    @property
    def has_failed(self) -> bool:
        return self._failed

    @property
    def retained_count(self) -> int:
        return len(self._live.retained)

    @property
    def retained_bytes(self) -> int:
        return self._live.retained_bytes

    def retained_size_of(self, topic: str) -> int:
        message = self._live.retained.get(topic)
        return 0 if message is None else retained_size(message)

    def submit(self, batch: Batch, now_us: int) -> None:
        self.refuse_if_failed()
        give_offsets(batch, self.offsets, now_us)
        self.apply(batch)

    def apply(self, batch: Batch, notes: Sequence[Note] = ()) -> None:
        """What ``submit`` does with a batch that has its offsets, whoever submitted it; see
        ``ordered.local.Local``."""
        self.refuse_if_failed()
        batch.refused = stale(batch.operations, self.owner_epoch)
        batch.is_sequenced = True
        if batch.is_empty() and not notes:
            return
        last_offset = self.offsets.last
        messages = batch.recorded()
        operations = batch.held()

        def change(state: State) -> None:
            state.last_offset = max(state.last_offset, last_offset)
            for message in messages:
                state.append(message)
            apply(operations, state)
            for key, value in notes:
                state.note(key, value)

        self._apply(change)

    def notes(self) -> list[tuple[bytes, bytes]]:
        """What was noted, by key."""
        return sorted(self._live.notes.items())

    @property
    def has_sessions(self) -> bool:
        """Whether there is any session."""
        return bool(self._live.sessions)

    def group_turn(self, group_key: str) -> int:
        """The turn of a group's record; 0 = there is no such group."""
        group = self._live.groups.get(group_key)
        return 0 if group is None or group.record is None else group.record.turn

    def members_of(self, group_key: str) -> list[str]:
        """Client identifiers of a group's members."""
        group = self._live.groups.get(group_key)
        return sorted(group.members, key=str.encode) if group else []

    def given_after(self, client_id: str, after_offset: int) -> list[InboxEntry]:
        """What stands in a session's private stream behind an offset, tombstones too."""
        inbox = self._live.inboxes.get(client_id, {})
        return [inbox[offset] for offset in sorted(inbox) if offset > after_offset]

    def retained_offset_of(self, topic: str) -> int:
        """The offset of the retained message of a topic; 0 = there is none."""
        message = self._live.retained.get(topic)
        return 0 if message is None else message.offset

    def rewind_offsets(self) -> None:
        """Forget offsets that were given and are not in the log."""
        self.offsets.last = self._live.last_offset

    def sync(self) -> None:
        self.refuse_if_failed()
        unsynced, self._unsynced = self._unsynced, []
        for change in unsynced:
            change(self._synced)

    async def recover(self) -> bool:
        if self.fail_with is not None or self._closed:
            return False
        self._failed = False
        return True

    @property
    def state(self) -> State:
        """What it holds now."""
        return self._live

    @property
    def unsynced_count(self) -> int:
        """Batches written since the last sync."""
        return len(self._unsynced)

    def lose_power(self, keep: int = 0) -> None:
        """Go back to what was synced, as a power cut does; open batches must be thrown away.

        Args:
            keep: so many batches written after the last sync survive too, the oldest first.
        """
        for change in self._unsynced[:keep]:
            change(self._synced)
        self._unsynced.clear()
        self._live = copy.deepcopy(self._synced)
        self.offsets.last = self._live.last_offset

    def reopened(self) -> MemoryDatabase:
        """A database with what this one held: a stop and a start."""
        database = MemoryDatabase()
        database._live = self._live
        database._synced = self._synced
        database._unsynced = self._unsynced
        database.offsets.last = self._live.last_offset
        return database

    def owner_epoch(self, client_id: str) -> int | None:
        """The epoch of a session's record; None = no such session."""
        session = self._live.sessions.get(client_id)
        return None if session is None else session.record.epoch

    def _apply(self, change: Change) -> None:
        change(self._live)
        self._unsynced.append(change)

    def refuse_if_failed(self) -> None:
        """Raise what a write would."""
        if self._closed:
            raise StorageUnavailable("the database is closed")
        if self.fail_with is not None:
            self._failed = True
            raise self.fail_with
        if self._failed:
            raise StorageUnavailable("an earlier write failed")

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
        messages: list[Message] = []
        size_bytes = 0
        for message in self._live.log_after(after_offset):
            if message.offset > until_offset:
                break
            if not any(matches(filter_, message.topic) for filter_ in filters):
                continue
            size_bytes += message.held_bytes()
            if messages and bytes_max and size_bytes > bytes_max:
                return ReadResult(messages, messages[-1].offset)
            messages.append(message)
            if len(messages) >= limit:
                return ReadResult(messages, message.offset)
        return ReadResult(messages, until_offset)

    async def count(
        self, filters: Sequence[str], *, after_offset: int, until_offset: int, limit: int
    ) -> Counted:
        page = await self.read(
            filters, after_offset=after_offset, until_offset=until_offset, limit=limit
        )
        return Counted(len(page.messages), page.through_offset)

    def messages_after(self, offset: int) -> int:
        return len(self._live.log_after(offset))

    def disk_bytes(self) -> int:
        return 0

    @property
    def since_offset(self) -> int:
        return next(iter(self._live.generations.values())).since_offset

    def generations(self) -> list[GenerationInfo]:
        infos: list[GenerationInfo] = []
        for generation in self._live.generations.values():
            messages = [m for m in self._live.log if generation.holds(m.offset)]
            infos.append(
                GenerationInfo(
                    generation=generation.generation,
                    layout=0,
                    since_offset=generation.since_offset,
                    until_offset=generation.until_offset,
                    created_at_us=generation.created_at_us,
                    message_count=len(messages),
                    bytes=sum(len(m.payload) + len(m.topic) for m in messages),
                    stream_count=len({m.topic for m in messages}),
                )
            )
        return infos

    def streams(self, generation: int) -> list[StreamInfo]:
        bounds = self._live.generations.get(generation)
        if bounds is None:
            raise UsageError(f"generation {generation} is unknown")
        topics = dict.fromkeys(m.topic for m in self._live.log if bounds.holds(m.offset))
        return [StreamInfo(generation, number, topic) for number, topic in enumerate(topics, 1)]

    def rotate(self, now_us: int) -> GenerationInfo:
        self.refuse_if_failed()
        last_offset = self.offsets.last

        def change(state: State) -> None:
            state.last_offset = max(state.last_offset, last_offset)
            state.rotate(now_us)

        self._apply(change)
        self.sync()
        return self.generations()[-1]

    def drop_generation(self, generation: int) -> None:
        self.refuse_if_failed()
        self._apply(lambda state: state.drop_generation(generation))
        self.sync()

    # -- sessions --------------------------------------------------------------------------

    async def open_session(self, client_id: str) -> StoredSession | None:
        session = self._live.sessions.get(client_id)
        if session is None:
            return None
        return StoredSession(
            session.record,
            session.cursor,
            tuple(session.subscriptions[key] for key in sorted(session.subscriptions)),
            tuple(sorted(session.awaiting_release)),
        )

    async def sessions(self, *, after: str = "") -> AsyncIterator[SessionRecord]:
        for client_id in sorted(self._live.sessions, key=str.encode):
            session = self._live.sessions.get(client_id)
            if client_id.encode() > after.encode() and session is not None:
                yield session.record

    async def session_ids(self, *, after: str, limit: int) -> list[str]:
        ids = sorted(self._live.sessions, key=str.encode)
        return [each for each in ids if each.encode() > after.encode()][:limit]

    async def session_records(self, client_ids: Sequence[str]) -> list[SessionRecord]:
        sessions = self._live.sessions
        return [sessions[each].record for each in client_ids if each in sessions]

    async def session_count(self) -> int:
        return len(self._live.sessions)

    async def subscribers(
        self, topic: str, *, start: bytes, limit: int, steps_max: int
    ) -> SubscriberPage:
        return self._subscribers(
            lambda topic_filter, _: matches(topic_filter, topic), start, limit, steps_max
        )

    async def subscribers_like(
        self, text: str, *, start: bytes, limit: int, steps_max: int
    ) -> SubscriberPage:
        return self._subscribers(lambda _, name: text in name, start, limit, steps_max)

    def _subscribers(
        self, wanted: Callable[[str, str], bool], start: bytes, limit: int, steps_max: int
    ) -> SubscriberPage:
        keys = sorted(
            subscriber_key(sub.filter, client_id, sub.name)
            for client_id, session in self._live.sessions.items()
            for sub in session.subscriptions.values()
            if not sub.until_offset
        )
        found: list[Subscriber] = []
        for looked, key in enumerate(keys[bisect_left(keys, start) :]):
            if len(found) >= limit or looked >= steps_max:
                return SubscriberPage(found, key)
            topic_filter, subscriber = parse_subscriber(key)
            if wanted(topic_filter, subscriber.name):
                found.append(subscriber)
        return SubscriberPage(found, None)

    async def due_sessions(self, now_us: int, *, limit: int) -> list[SessionRecord]:
        records = [session.record for session in self._live.sessions.values()]
        due = [record for record in records if 0 < record.deadline_us <= now_us]
        due.sort(key=lambda record: (record.deadline_us, record.client_id.encode()))
        return due[:limit]

    async def next_deadline_us(self) -> int:
        deadlines = [session.record.deadline_us for session in self._live.sessions.values()]
        return min((deadline for deadline in deadlines if deadline), default=0)

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        inbox = self._live.inboxes.get(client_id, {})
        return [inbox[offset] for offset in sorted(inbox) if after_offset < offset <= until_offset][
            :limit
        ]

    # -- groups ----------------------------------------------------------------------------

    async def groups(self) -> list[GroupRecord]:
        groups = self._live.groups
        records = [groups[key].record for key in sorted(groups, key=str.encode)]
        return [record for record in records if record is not None]

    async def group_members(self, group_key: str) -> list[str]:
        return self.members_of(group_key)

    async def read_group_entries(
        self, group_key: str, *, limit: int, after_offset: int = 0
    ) -> list[InboxEntry]:
        group = self._live.groups.get(group_key)
        if group is None:
            return []
        offsets = sorted(offset for offset in group.entries if offset > after_offset)
        return [group.entries[offset] for offset in offsets[:limit]]

    # -- retained --------------------------------------------------------------------------

    async def get_retained(self, topic: str) -> Message | None:
        return self._live.retained.get(topic)

    async def read_retained(
        self, topic_filter: str, *, after_topic: str, limit: int, scan_max: int
    ) -> RetainedPage:
        messages: list[Message] = []
        topics = sorted(self._live.retained, key=retained_key)
        if after_topic:
            start = retained_key(after_topic)
            topics = [topic for topic in topics if retained_key(topic) > start]
        for looked, topic in enumerate(topics, 1):
            if matches(topic_filter, topic):
                messages.append(self._live.retained[topic])
            if len(messages) >= limit or looked >= scan_max:
                return RetainedPage(messages, topic)
        return RetainedPage(messages, None)

    async def sweep_retained(self, now_us: int, *, limit: int) -> int:
        self.refuse_if_failed()
        batch = self.expired_retained(now_us, limit=limit)
        self.submit(batch, 0)
        return len(batch.operations)

    def expired_retained(self, now_us: int, *, limit: int) -> Batch:
        """A batch that deletes retained messages that have expired."""
        retained = self._live.retained
        batch = Batch()
        for topic in [t for t, m in retained.items() if 0 < m.expires_at_us <= now_us][:limit]:
            batch.delete_retained(topic)
        return batch

    def close(self) -> None:
        if not self._closed and not self._failed and self.fail_with is None:
            self.sync()
        self._closed = True


def open_configured(storage: StorageConfig, engine: object) -> MemoryDatabase:
    """A new one; see ``config.backends``."""
    return MemoryDatabase()
