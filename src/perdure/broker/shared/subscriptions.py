"""Shared subscriptions: the groups of the broker, who belongs to them, and what comes back.

A member's unsettled messages pass to another when its session ends, or when its connection goes
while another member is connected; not when it is taken over, since it is back already (trap 39).
QoS 2 messages that were sent stay with the session they were sent to, and end with it
[MQTT-4.8.2-4] [MQTT-4.8.2-5]. How a group gives messages out is in ``group``.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, final

from perdure.broker.shared.group import GroupMember, SharedGroup
from perdure.model import GroupRecord, InboxEntry, StoredSession, Subscription
from perdure.topic.shared import make_chooser

if TYPE_CHECKING:
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.services import Services
    from perdure.config.schema import SharedConfig

RECLAIM_PAGE: Final = 256
"""Entries of a private stream that are looked through at once."""


@final
class SharedSubscriptions:
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
            record = GroupRecord(sub.group, sub.filter, position, services.pipeline.wall_us())
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
        group.use([*group.members, member])
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
        for offset, entry in list(session.group_entries.items()):
            share = self.groups.get(entry.group_key)
            if share is None or entry.message is None:
                continue
            was_sent = offset in sent
            if was_sent and not ends and (session.taken_over or not share.members):
                continue  # it may come back and acknowledge
            if was_sent and entry.qos == 2:
                continue
            self._return(session, share, entry)
        for entry in session.given.values():
            share = self.groups.get(entry.group_key)
            if share is not None:
                self._return(session, share, entry)
        session.group_entries = {}
        session.given = {}
        if ends:
            for group in groups:
                if session.durable:
                    services.committer.batch.delete_group_member(group.key, session.client_id)
                services.spawn(functools.partial(self._discard_if_empty, group), name="group")

    def settled(self, session: LiveSession, offset: int) -> None:
        """A member has settled what a group gave it."""
        entry = session.group_entries.pop(offset, None)
        if entry is not None and not session.durable and entry.qos == 1:
            services = self._services
            if services.committer.writable:
                services.committer.batch.delete_group_entry(entry.group_key, entry)
                services.pipeline.schedule()
        if session.has_waiters:
            session.pump()

    def refused(self, session: LiveSession, offset: int) -> bool:
        """A member may not have any more what its group gave it, and was not sent it.

        Returns:
            Whether it went back to the group.
        """
        entry = session.group_entries.pop(offset, None)
        group = self.groups.get(entry.group_key) if entry is not None else None
        if entry is None or entry.message is None or group is None:
            return False
        if not self._services.committer.writable:
            return False
        self._return(session, group, entry)
        return True

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
                limit=RECLAIM_PAGE,
            )
            for entry in entries:
                after = entry.offset
                group = self.groups.get(entry.group_key)
                if group is None or entry.message is None or entry.qos != 1:
                    continue
                services.committer.batch.put_group_entry(group.key, entry)
                if not ends:
                    services.committer.batch.bury_inbox(client_id, entry, epoch=stored.record.epoch)
                group.give_back(entry)
            if len(entries) < RECLAIM_PAGE:
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
            batch.bury_inbox(session.client_id, entry, epoch=session.record.epoch)
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
                    await services.committer.sequenced()
                    stored = await services.database.open_session(client_id)
                    if stored is not None:
                        await self.reclaim(stored, ends=False)
                        await services.pipeline.committed()
            finally:
                services.registry.release(client_id)

    async def _discard_if_empty(self, group: SharedGroup) -> None:
        """A group without any member, connected or durable, is forgotten."""
        services = self._services
        if group.members or not services.committer.writable:
            return
        await services.pipeline.committed()  # members that leave in the open batch
        members = await services.database.group_members(group.key)
        if members or group.members or self.groups.get(group.key) is not group:
            return
        del self.groups[group.key]
        services.metrics.shared_groups -= 1
        services.committer.batch.discard_group(group.key)
        services.pipeline.schedule()

    def _remove(self, group: SharedGroup, session: LiveSession) -> None:
        services = self._services
        before = len(group.members)
        group.use([m for m in group.members if m.session is not session])
        services.metrics.shared_subscriptions -= before - len(group.members)
        if before and not group.members:
            services.router.remove_group(group)
            if not group.lagging:
                group.lagging = True
                group.position = max(group.position, services.dispatcher.offset)
                services.pipeline.dirty_group(group)

    def _group(self, record: GroupRecord) -> SharedGroup:
        return SharedGroup(
            self._services,
            record,
            make_chooser(self._config.strategy, self._services.random.randrange),
        )
