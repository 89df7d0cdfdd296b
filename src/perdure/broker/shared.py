"""Shared subscriptions: one durable cursor for a group, each message to one member.

A group reads the log like a session does: live while a member is connected and takes messages,
lagging otherwise. What it gives to a member becomes an entry of that member's private stream, with
an offset and a serial number of its own, and the group's position moves in the same batch: after a
crash the message is with the member or still with the group, never with both and never lost.

A member's unsettled messages pass to another when its session ends, or when its connection goes
while another member is connected; not when it is taken over, since it is back already (trap 39).
QoS 2 messages that were sent stay with the session they were sent to, and end with it
[MQTT-4.8.2-4] [MQTT-4.8.2-5]. An ephemeral member's entries are kept by the group until they are
settled, because nobody else would know of them after a crash.
"""

from __future__ import annotations

import functools
from bisect import insort
from collections import deque
from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.broker.services import RETRY_US
from perdure.errors import StorageError
from perdure.model import GroupRecord, InboxEntry, Message, StoredSession, Subscription
from perdure.storage.contract import Batch
from perdure.topic.shared import NOBODY, Chooser, make_chooser

if TYPE_CHECKING:
    from perdure.broker.live_session import LiveSession
    from perdure.broker.services import Services
    from perdure.config.schema import SharedConfig

RETURNED_PAGE: Final = 256
"""Returned entries read at once from the store."""


@final
class GroupMember:
    """A connected session as a member of one group."""

    __slots__ = ("session", "sub")

    def __init__(self, session: LiveSession, sub: Subscription) -> None:
        self.session = session
        self.sub = sub

    @property
    def client_id(self) -> str:
        """Its client id."""
        return self.session.client_id

    @property
    def inflight_count(self) -> int:
        """Messages sent to it, or about to be, and not acknowledged."""
        return len(self.session.outbound.inflight) + self.session.addressed

    @property
    def is_available(self) -> bool:
        """Whether its window has room now."""
        session = self.session
        return (
            not session.lagging
            and not session.sender.congested
            and session.holder.is_connected
            and not session.outbound.pending
            and self.inflight_count < session.outbound.window_max
        )


@final
class SharedGroup:
    """One share name with one filter."""

    def __init__(self, services: Services, record: GroupRecord, chooser: Chooser) -> None:
        self._services = services
        self.record: GroupRecord = record
        self.key: str = record.key
        self.filter: str = record.filter
        self.position: int = record.position
        self.members: list[GroupMember] = []
        """Connected members."""
        self.lagging: bool = True
        self.returned: deque[InboxEntry] = deque()
        """Entries that came back from members, to be given before anything from the log; in the
        log's order, whenever they came back."""
        self.returned_loaded: bool = False
        self._chooser = chooser
        self._catching_up: bool = False

    def deliver(self, message: Message) -> None:
        """A message was dispatched now."""
        if not message.qos or not message.offset:
            self._give_unrecorded(message)
            return
        if self.lagging:
            return
        index = self._choose(message)
        if index == NOBODY:
            self.fall_behind(message.offset - 1)
            return
        self.position = message.offset
        self._give(self.members[index], message)

    def fall_behind(self, position: int) -> None:
        """Stop taking dispatched messages; read from the log after ``position`` instead."""
        if not self.lagging:
            self.lagging = True
            self.position = position
            self.start()

    def reload(self, record: GroupRecord) -> None:
        """Go on from what the store has."""
        self.record = record
        self.position = record.position
        self.lagging = True
        self.returned.clear()
        self.returned_loaded = False
        self.start()

    def joined(self) -> None:
        """A member is ready for messages: read what the group has missed."""
        if self.lagging or self.returned:
            self.start()
            # The group may be waiting for other members to have room.
            for member in self.members:
                self._services.room.made(member.session)

    def start(self) -> None:
        """Begin to read for the group, unless that goes on already."""
        if not self._catching_up and self.members:
            self._catching_up = True
            self._services.scheduler.spawn(self._run(), name="group")

    def put(self, batch: Batch) -> None:
        """Add the record to a batch."""
        self.record = msgspec.structs.replace(self.record, position=self.position)
        batch.put_group(self.record)

    def give_back(self, entry: InboxEntry) -> None:
        """An entry has come back (and is in the group's private stream)."""
        returned = self.returned
        if self.returned_loaded:
            if not returned or _log_offset(returned[-1]) <= _log_offset(entry):
                returned.append(entry)
            else:
                insort(returned, entry, key=_log_offset)
        self.start()

    def _choose(self, message: Message) -> int:
        return self._chooser.choose(self.members, topic=message.topic, publisher=message.publisher)

    def _give_unrecorded(self, message: Message) -> None:
        """QoS 0, or not recorded: to whoever is there, with no promise."""
        index = self._choose(message)
        if index == NOBODY:
            self._services.metrics.messages_dropped_queue_full += 1
            return
        member = self.members[index]
        sub = member.sub
        member.session.deliver(
            message,
            min(sub.qos, message.qos),
            sub.retain_as_published and message.retain,
            (sub.identifier,) if sub.identifier else (),
        )

    def _give(self, member: GroupMember, message: Message) -> None:
        """Give a recorded message to a member; the position has moved past it."""
        services = self._services
        services.turn.dirty_group(self)
        session = member.session
        sub = member.sub
        qos = min(sub.qos, message.qos)
        retain = sub.retain_as_published and message.retain
        identifiers = (sub.identifier,) if sub.identifier else ()
        if not qos:
            session.give_qos0(message, retain, identifiers)
            return
        entry = services.inbox.give(
            session,
            message,
            qos=qos,
            retain=retain,
            identifiers=identifiers,
            group_key=self.key,
        )
        session.shares[entry.offset] = entry
        if not session.durable and qos == 1:
            services.committer.batch.put_group_entry(self.key, entry)
        services.turn.schedule()

    async def _run(self) -> None:
        services = self._services
        try:
            await self._load_returned()
            while self.members and (self.lagging or self.returned):
                if not any(member.is_available for member in self.members):
                    await services.room.wait_any([m.session for m in self.members])
                    continue
                services.turn.now_us = services.clock.now_us()
                if self.returned:
                    self._give_returned()
                else:
                    await self._page()
        except StorageError as error:
            services.read_failed(error, group=self.key)
            services.scheduler.call_later(RETRY_US, self.start)
        finally:
            self._catching_up = False

    async def _load_returned(self) -> None:
        if self.returned_loaded:
            return
        entries = await self._services.database.read_group_entries(self.key, limit=RETURNED_PAGE)
        outstanding = {offset for member in self.members for offset in member.session.shares}
        returned: list[InboxEntry] = []
        while entries:
            returned.extend(e for e in entries if e.offset not in outstanding)
            if len(entries) < RETURNED_PAGE:
                break
            entries = await self._services.database.read_group_entries(
                self.key, limit=RETURNED_PAGE, after_offset=entries[-1].offset
            )
        self.returned = deque(sorted(returned, key=_log_offset))
        self.returned_loaded = True

    def _give_returned(self) -> None:
        services = self._services
        while self.returned:
            entry = self.returned[0]
            message = entry.message
            assert message is not None
            index = self._choose(message)
            if index == NOBODY:
                return
            self.returned.popleft()
            services.committer.batch.delete_group_entry(self.key, entry.offset)
            self._give(self.members[index], message)

    async def _page(self) -> None:
        services = self._services
        fence = services.dispatcher.offset
        after = self.position
        through = fence
        messages: list[Message] = []
        if after < fence:
            begun_us = services.clock.monotonic_us()
            page = await services.database.read(
                [self.filter],
                after_offset=after,
                until_offset=fence,
                limit=services.session_config.feed_chunk,
                bytes_max=services.session_config.outbound_buffer_bytes,
            )
            elapsed_us = services.clock.monotonic_us() - begun_us
            services.metrics.storage_read_seconds.observe(elapsed_us)
            messages = page.messages
            through = page.through_offset
        if not self.lagging or self.position != after:
            return
        for message in messages:
            if message.qos:
                index = self._choose(message)
                if index == NOBODY:
                    services.turn.schedule()
                    return
                self.position = message.offset
                self._give(self.members[index], message)
            else:
                self.position = message.offset
        self.position = through
        if through >= services.dispatcher.offset:
            self.lagging = False
        services.turn.schedule()


@final
class Shares:
    """All groups of the broker.

    Args:
        services: the parts of the broker.
        config: the strategy of new groups.
    """

    def __init__(self, services: Services, config: SharedConfig) -> None:
        self._services = services
        self._config = config
        self.groups: dict[str, SharedGroup] = {}

    async def load(self) -> None:
        """Read the groups at start; none has a connected member yet."""
        for record in await self._services.database.groups():
            self.groups[record.key] = self._group(record)
        self._services.metrics.shared_groups = len(self.groups)

    async def reload(self) -> None:
        """The store is there again: what the groups had in memory may be ahead of it.

        No group has a member then: their sessions were let go when the store failed.
        """
        records = {record.key: record for record in await self._services.database.groups()}
        for key, group in list(self.groups.items()):
            record = records.get(key)
            if record is None:
                del self.groups[key]
                self._services.metrics.shared_groups -= 1
            else:
                group.reload(record)

    def join(self, session: LiveSession, sub: Subscription, *, replay_us: int = -1) -> None:
        """A connected session is a member from now on; the first one ever sets the start."""
        services = self._services
        key = sub.group_key
        group = self.groups.get(key)
        if group is None:
            position = services.dispatcher.offset
            if replay_us >= 0:
                position = min(max(0, replay_us - 1), position)
            record = GroupRecord(sub.group, sub.filter, position, services.turn.now_us)
            group = self._group(record)
            group.returned_loaded = True
            self.groups[key] = group
            services.committer.batch.put_group(record)
            services.metrics.shared_groups += 1
        if session.durable:
            services.committer.batch.put_group_member(key, session.client_id)
        member = GroupMember(session, sub)
        for index, existing in enumerate(group.members):
            if existing.session is session:
                group.members[index] = member
                return
        group.members.append(member)
        session.groups[key] = group
        services.metrics.shared_subscriptions += 1
        if len(group.members) == 1:
            services.router.put_group(group)
            services.spawn(functools.partial(self._reclaim_offline, group), name="reclaim")

    def leave(self, session: LiveSession, sub: Subscription) -> None:
        """A connected session has unsubscribed. What was given to it stays with it."""
        group = session.groups.pop(sub.group_key, None)
        if group is None:
            return
        self._remove(group, session)
        if session.durable:
            self._services.committer.batch.delete_group_member(group.key, session.client_id)
            self._services.spawn(functools.partial(self._discard_if_empty, group), name="group")
        elif not group.members:
            self._services.spawn(functools.partial(self._discard_if_empty, group), name="group")

    def left(self, session: LiveSession, *, ends: bool) -> None:
        """A session's connection is gone; its session is kept, or ends with it."""
        services = self._services
        groups = list(session.groups.values())
        session.groups = {}
        for group in groups:
            self._remove(group, session)
        if not services.committer.writable:
            return
        # What waits with DUP may have been sent before a crash.
        sent = {d.offset for d in session.outbound.inflight.values()}
        sent.update(d.offset for d in session.outbound.pending if d.dup)
        for offset, entry in list(session.shares.items()):
            share = self.groups.get(entry.group_key)
            if share is None or entry.message is None:
                continue
            was_sent = offset in sent
            if was_sent and not ends and (session.taken_over or not share.members):
                continue  # it may come back and acknowledge
            if was_sent and entry.qos == 2:
                continue
            self._return(session, share, entry)
        session.shares = {}
        if ends:
            for group in groups:
                if session.durable:
                    services.committer.batch.delete_group_member(group.key, session.client_id)
                services.spawn(functools.partial(self._discard_if_empty, group), name="group")

    def settled(self, session: LiveSession, offset: int) -> None:
        """A member has settled what a group gave it."""
        entry = session.shares.pop(offset, None)
        if entry is not None and not session.durable and entry.qos == 1:
            services = self._services
            if services.committer.writable:
                services.committer.batch.delete_group_entry(entry.group_key, offset)
                services.turn.schedule()
        if session.room_wanted:
            session.pump()

    async def reclaim(self, stored: StoredSession, *, ends: bool) -> None:
        """Take back what an offline session holds of its groups.

        Args:
            stored: the session, not connected.
            ends: the session is being discarded; else only QoS 1 entries are taken, each
                leaving a tombstone for its serial number.
        """
        services = self._services
        client_id = stored.record.client_id
        keys = {sub.group_key for sub in stored.subscriptions if sub.group}
        after = stored.cursor.offset
        while True:
            entries = await services.database.read_inbox(
                client_id,
                after_offset=after,
                until_offset=services.database.last_offset,
                limit=RETURNED_PAGE,
            )
            for entry in entries:
                after = entry.offset
                group = self.groups.get(entry.group_key)
                if group is None or entry.message is None or entry.qos != 1:
                    continue
                services.committer.batch.put_group_entry(group.key, entry)
                if not ends:
                    services.committer.batch.put_inbox(
                        client_id, _tombstone(entry), epoch=stored.record.epoch
                    )
                group.give_back(entry)
            if len(entries) < RETURNED_PAGE:
                break
        if ends:
            for key in keys:
                group = self.groups.get(key)
                if group is not None:
                    services.committer.batch.delete_group_member(key, client_id)
                    services.spawn(functools.partial(self._discard_if_empty, group), name="group")

    def _return(self, session: LiveSession, group: SharedGroup, entry: InboxEntry) -> None:
        """Give an unsettled entry of a session back to its group."""
        batch = self._services.committer.batch
        if session.durable:
            batch.put_inbox(session.client_id, _tombstone(entry), epoch=session.record.epoch)
        if session.durable or entry.qos == 2:
            batch.put_group_entry(group.key, entry)
        group.give_back(entry)

    async def _reclaim_offline(self, group: SharedGroup) -> None:
        """The first connected member gets what offline members hold unacknowledged."""
        services = self._services
        for client_id in await services.database.group_members(group.key):
            if services.registry.is_busy(client_id):
                continue
            await services.registry.acquire(client_id)
            try:
                if client_id not in services.registry.live and services.committer.writable:
                    stored = await services.database.open_session(client_id)
                    if stored is not None:
                        await self.reclaim(stored, ends=False)
                        services.turn.run()
            finally:
                services.registry.release(client_id)

    async def _discard_if_empty(self, group: SharedGroup) -> None:
        """A group without any member, connected or durable, is forgotten."""
        services = self._services
        if group.members or not services.committer.writable:
            return
        services.turn.run()  # members that leave in the open batch
        members = await services.database.group_members(group.key)
        if members or group.members or self.groups.get(group.key) is not group:
            return
        del self.groups[group.key]
        services.metrics.shared_groups -= 1
        services.committer.batch.discard_group(group.key)
        services.turn.schedule()

    def _remove(self, group: SharedGroup, session: LiveSession) -> None:
        services = self._services
        before = len(group.members)
        group.members = [m for m in group.members if m.session is not session]
        services.metrics.shared_subscriptions -= before - len(group.members)
        if before and not group.members:
            services.router.remove_group(group)
            if not group.lagging:
                group.lagging = True
                group.position = max(group.position, services.dispatcher.offset)
                services.turn.dirty_group(group)

    def _group(self, record: GroupRecord) -> SharedGroup:
        return SharedGroup(
            self._services,
            record,
            make_chooser(self._config.strategy, self._services.random.randrange),
        )


def _log_offset(entry: InboxEntry) -> int:
    """Where an entry's message stands in the log; its own offset tells when it was given."""
    message = entry.message
    return entry.offset if message is None else message.offset


def _tombstone(entry: InboxEntry) -> InboxEntry:
    return InboxEntry(
        entry.offset, None, qos=entry.qos, group_key=entry.group_key, serial=entry.serial
    )
