"""Shared subscriptions: the groups of the broker, who belongs to them, and what comes back.

A member's unsettled messages pass to another when its session ends, or when its connection goes
while another member is connected; not when it is taken over, since it is back already (trap 39).
QoS 2 messages that were sent stay with the session they were sent to, and end with it
[MQTT-4.8.2-4] [MQTT-4.8.2-5]. How a group gives messages out is in ``group``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.broker.delivery.live_session import GroupOwners, LiveSession
from perdure.broker.shared import runs
from perdure.broker.shared.elsewhere import MembersElsewhere
from perdure.broker.shared.group import SharedGroup
from perdure.broker.shared.member import LocalMember
from perdure.errors import StorageUnavailable
from perdure.model import GroupRecord, InboxEntry, StoredSession, Subscription
from perdure.session.pending_pages import settled_offsets
from perdure.storage.operations import PutGroupEntry
from perdure.storage.peers import epoch_after
from perdure.topic.shared import make_chooser

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.inbox import Inbox
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.delivery.window_waiters import WindowWaiters
    from perdure.config.schema import SharedConfig
    from perdure.storage.batch import Batch

RECLAIM_PAGE: Final = 256
"""Entries of a private stream that are looked through at once."""


@final
class SharedSubscriptions(GroupOwners):
    """All groups of the broker.

    Args:
        core: what every part stands on.
        config: the strategy of new groups.
        inbox, registry, window_waiters: what else it uses.
    """

    def __init__(
        self,
        core: BrokerCore,
        config: SharedConfig,
        *,
        inbox: Inbox,
        registry: Registry,
        window_waiters: WindowWaiters,
    ) -> None:
        self._core = core
        self._inbox: Inbox = inbox
        self._registry: Registry = registry
        self._window_waiters: WindowWaiters = window_waiters
        self._config = config
        self.groups: dict[str, SharedGroup] = {}
        self.elsewhere: MembersElsewhere | None = None
        """Members on other nodes, if there are any."""
        if core.peers is not None:
            self.elsewhere = MembersElsewhere(
                core, window_waiters=window_waiters, reclaim=self._reclaim_later
            )

    async def load(self) -> None:
        """Read the groups at start; none has a connected member yet."""
        for record in await self._core.database.groups():
            self.groups[record.key] = self._group(record)
        self._core.metrics.shared_groups = len(self.groups)

    async def reload(self) -> None:
        """The store is there again: what the groups had in memory may be ahead of it.

        No group has a member then: their sessions were let go when the store failed.
        """
        records = {record.key: record for record in await self._core.database.groups()}
        for key, group in list(self.groups.items()):
            record = records.get(key)
            if record is None:
                del self.groups[key]
                self._core.metrics.shared_groups -= 1
            else:
                group.reload(record)

    def join(self, session: LiveSession, sub: Subscription, *, replay_us: int = -1) -> None:
        """A connected session is a member from now on; the first one ever sets the start."""
        core = self._core
        key = sub.group_key
        group = self.groups.get(key)
        if group is None:
            position = core.dispatcher.offset
            if replay_us >= 0:
                before = core.database.capabilities.offset_before(replay_us)
                position = min(before, position)
            record = GroupRecord(
                sub.group,
                sub.filter,
                position,
                core.pipeline.wall_us(),
                where=sub.where,
                where_id=sub.where_id,
            )
            group = self._group(record)
            self.groups[key] = group
            if core.peers is None:
                core.committer.batch.put_group(record)
            else:
                group.serve()
                group.put(core.committer.batch)
            group.returned.is_loaded = True
            core.metrics.shared_groups += 1
        if session.durable:
            core.committer.batch.put_group_member(key, session.client_id)
        member = LocalMember(session, sub, is_alone=core.peers is None)
        for index, existing in enumerate(group.members):
            if existing.session is session:
                group.use([*group.members[:index], member, *group.members[index + 1 :]])
                return
        group.use([*group.members, member])
        session.groups[key] = group
        core.metrics.shared_subscriptions += 1
        if len(group.members) == 1:
            core.router.put_group(group)
            if core.peers is None:
                core.spawn(functools.partial(self._reclaim_offline, group), name="reclaim")

    def leave(self, session: LiveSession, sub: Subscription) -> None:
        """A connected session has unsubscribed. What was given to it stays with it."""
        group = self.groups.get(sub.group_key)
        if session.groups.pop(sub.group_key, None) is None or group is None:
            return
        self._remove(group, session)
        if session.durable:
            self._core.committer.batch.delete_group_member(group.key, session.client_id)
            self._core.spawn(functools.partial(self._discard_if_empty, group), name="group")
        elif not group.members:
            self._core.spawn(functools.partial(self._discard_if_empty, group), name="group")

    def left(self, session: LiveSession, *, ends: bool) -> None:
        """A session's connection is gone; its session is kept, or ends with it."""
        core = self._core
        groups = [self.groups[key] for key in session.groups if key in self.groups]
        elsewhere = {group.key for group in groups if group.has_elsewhere}
        session.groups = {}
        for group in groups:
            self._remove(group, session)
        if not core.committer.writable or session.fenced:
            return
        if not session.durable:
            runs.part(core.committer.batch, session, self.groups)
        if core.peers is not None and groups:
            core.committer.batch.return_unseen(
                session.client_id, core.database.last_offset, epoch=session.record.epoch
            )
        unsettled = runs.unsettled(session)
        sent: set[int] = set()
        if unsettled:
            # All that is in flight is looked at. What waits with DUP may have been sent before a
            # crash.
            sent.update(d.offset for d in session.outbound.inflight.values())
            sent.update(d.offset for d in session.outbound.pending if d.dup)
        for entry in unsettled:
            share = self.groups.get(entry.group_key)
            if share is None or entry.message is None:
                continue
            was_sent = entry.offset in sent
            has_others = bool(share.members) or entry.group_key in elsewhere
            if was_sent and not ends and (session.taken_over or not has_others):
                continue  # it may come back and acknowledge
            if was_sent and entry.qos == 2:
                continue
            self._return(session, share, entry)
        for entries in session.given.values():
            for entry in entries:
                share = self.groups.get(entry.group_key)
                if share is not None:
                    self._return(session, share, entry)
        session.group_runs = []
        session.given = {}
        if ends:
            for group in groups:
                if session.durable:
                    core.committer.batch.delete_group_member(group.key, session.client_id)
                core.spawn(functools.partial(self._discard_if_empty, group), name="group")

    def settled(self, session: LiveSession) -> None:
        """A member has settled some of what groups gave it."""
        given = session.group_runs
        if given and given[0][-1].offset <= session.outbound.acked_offset:
            runs.settle(self._core, session)
        if session.has_waiters:
            session.pump()

    def refused(self, session: LiveSession, offset: int) -> bool:
        """A member may not have any more what its group gave it, and was not sent it.

        Returns:
            Whether it went back to the group.
        """
        held = (entry for run in session.group_runs for entry in run if entry.offset == offset)
        entry = next(held, None)
        group = self.groups.get(entry.group_key) if entry is not None else None
        if entry is None or entry.message is None or group is None:
            return False
        if not self._core.committer.writable:
            return False
        if not session.durable:
            runs.part(self._core.committer.batch, session, self.groups, offset)
        self._return(session, group, entry)
        return True

    async def reclaim(self, stored: StoredSession, *, ends: bool) -> None:
        """Take back what an offline session holds of its groups.

        Several nodes may do so at once, each for a group of its own and all that the session holds:
        the first that claims the session has it, and what the others put back counts for nothing.

        Args:
            stored: the session, not connected.
            ends: the session is being discarded; else only QoS 1 entries are taken, each
                leaving a tombstone for its serial number.
        """
        core = self._core
        client_id = stored.record.client_id
        keys = {sub.group_key for sub in stored.subscriptions if sub.group}
        after, epoch = stored.cursor.offset, stored.record.epoch
        is_ours = ends or core.peers is None
        settled = await settled_offsets(core.database, stored, until=core.database.last_offset)
        while True:
            entries = await core.database.read_inbox(
                client_id,
                after_offset=after,
                until_offset=core.database.last_offset,
                limit=RECLAIM_PAGE,
            )
            for entry in entries:
                after = entry.offset
                group = self.groups.get(entry.group_key)
                if group is None or entry.message is None or entry.qos != 1:
                    continue
                if entry.offset in settled:
                    continue
                batch = core.committer.batch
                if not is_ours:
                    assert core.peers is not None
                    epoch = epoch_after(core.peers, stored.record.epoch)
                    record = msgspec.structs.replace(stored.record, epoch=epoch)
                    batch.claim_session(record, seen=stored.record.epoch)
                    is_ours = True
                batch.put_group_entry(group.key, entry, client_id=client_id, epoch=epoch)
                if not ends:
                    batch.put_tombstone(client_id, entry, epoch=epoch)
                group.give_back(entry)
            if len(entries) < RECLAIM_PAGE:
                break
            if not ends:
                await core.turn_budget.step(self)
        if ends:
            for key in keys:
                group = self.groups.get(key)
                if group is not None:
                    core.committer.batch.delete_group_member(key, client_id)
                    core.spawn(functools.partial(self._discard_if_empty, group), name="group")

    def _return(self, session: LiveSession, group: SharedGroup, entry: InboxEntry) -> None:
        """Give an unsettled entry of a session back to its group."""
        batch = self._core.committer.batch
        if session.durable:
            batch.put_tombstone(session.client_id, entry, epoch=session.record.epoch)
        if session.durable or entry.qos == 2:
            epoch = session.record.epoch
            # An ephemeral session may have no record, so nobody is asked who owns it.
            whose = session.client_id if session.durable else ""
            batch.put_group_entry(group.key, entry, client_id=whose, epoch=epoch)
        group.give_back(entry)

    async def _reclaim_offline(self, group: SharedGroup) -> None:
        """The first connected member gets what offline members hold unacknowledged."""
        for client_id in await self._core.database.group_members(group.key):
            if not self._registry.is_busy(client_id):
                await self._reclaim_of(client_id)

    async def _reclaim_of(self, client_id: str) -> None:
        """Take back what a session holds of its groups, if nobody has it.

        One session in a turn of the loop: many members may have gone at once.
        """
        core = self._core
        await core.turn_budget.step(self)
        await core.until_writable()
        await self._registry.acquire(client_id)
        try:
            if not core.committer.writable:
                raise StorageUnavailable("the store has failed meanwhile")  # tried again (spawn)
            if client_id not in self._registry.live:
                await core.committer.sequenced()
                stored = await core.database.open_session(client_id)
                held = core.peers is not None and stored is not None and stored.record.connected
                if stored is not None and not held:
                    await self.reclaim(stored, ends=False)
                    await core.pipeline.committed()
        finally:
            self._registry.release(client_id)

    def _reclaim_later(self, client_id: str) -> None:
        self._core.spawn(functools.partial(self._reclaim_of, client_id), name="reclaim")

    async def _discard_if_empty(self, group: SharedGroup) -> None:
        """A group without any member, connected or durable, is forgotten."""
        core = self._core
        await core.until_writable()
        if group.members:
            return
        await core.pipeline.committed()  # members that leave in the open batch
        members = await core.database.group_members(group.key)
        if members or group.members or self.groups.get(group.key) is not group:
            return
        del self.groups[group.key]
        core.metrics.shared_groups -= 1
        core.committer.batch.discard_group(group.key)
        core.pipeline.schedule()

    def _remove(self, group: SharedGroup, session: LiveSession) -> None:
        core = self._core
        before = len(group.members)
        group.use([m for m in group.members if m.session is not session])
        core.metrics.shared_subscriptions -= before - len(group.members)
        if before and not group.members:
            core.router.remove_group(group)
            if not group.lagging:
                group.lagging = True
                group.position = max(group.position, core.dispatcher.offset)
                core.cursors.group_moved(group)
            group.let_go()

    def each_group(self) -> Iterator[SharedGroup]:
        """All groups, for who waits between them: one that has ended meanwhile is left out."""
        for key in list(self.groups):
            group = self.groups.get(key)
            if group is not None:
                yield group

    # -- other nodes -----------------------------------------------------------------------

    def heard(self, record: GroupRecord) -> None:
        """Another node has written a group's record."""
        group = self.groups.get(record.key)
        if group is None:
            group = self.groups[record.key] = self._group(record)
            self._core.metrics.shared_groups += 1
        self._core.cursors.group_heard(group)
        group.reload(record)

    def discarded(self, group_key: str) -> None:
        """Another node has ended a group."""
        group = self.groups.get(group_key)
        if group is None:
            return
        if group.members:
            # They joined it here before this was read: the log has them, and no record.
            group.begin_anew()
            return
        del self.groups[group_key]
        self._core.metrics.shared_groups -= 1

    def came_back(self, group_key: str, entry: InboxEntry) -> None:
        """An entry is the group's again, as the log says."""
        group = self.groups.get(group_key)
        if group is not None:
            group.came_back(entry)

    def look(self) -> None:
        """A node is gone: its groups are to be had."""
        assert self.elsewhere is not None
        self.elsewhere.gone()
        for group in self.groups.values():
            group.start()

    def regrouped(self, batch: Batch) -> None:
        """In a batch of this node something that groups gave does not count (another node has given
        for them, or the member is elsewhere), or something has come back."""
        if batch.lost_groups or batch.returned:
            for session in self._registry.live.values():
                if not session.given:
                    continue
                session.given = {
                    key: entries
                    for key, entries in session.given.items()
                    if batch.gives(entries[0])
                }
                # What does not count takes no room in its window: a group may wait for that.
                self._window_waiters.notify(session)
            assert self.elsewhere is not None
            self.elsewhere.refused(batch.returned)
        for operation in batch.held():
            if isinstance(operation, PutGroupEntry):
                self.came_back(operation.group_key, operation.entry)
        if batch.lost_groups:
            read_again = functools.partial(self._read_again, batch.lost_groups)
            self._core.spawn(read_again, name="group")

    async def _read_again(self, group_keys: frozenset[str]) -> None:
        for record in await self._core.database.groups():
            if record.key in group_keys:
                self.heard(record)

    def _group(self, record: GroupRecord) -> SharedGroup:
        return SharedGroup(
            self._core,
            record,
            make_chooser(self._config.strategy, self._core.random.randrange),
            inbox=self._inbox,
            members_elsewhere=self.elsewhere,
            window_waiters=self._window_waiters,
        )
