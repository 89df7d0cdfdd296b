"""Stored content filters of a running broker: kept, changed, and what that does to subscriptions.

A change counts from one offset: the dispatcher's fence at that moment. Connected sessions and
groups have the new filter before anything else is handed out. A stored session that is not
connected has it when it is opened (``lifecycle``) or when it is visited here, whichever comes
first, from the same offset. A filter that somebody subscribes with is not deleted.

Where there are other nodes each does the same when it reads the change in the log, with what is
connected to it; stored sessions are visited by the node that was asked. Of two changes that cross
the later one in the log counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.broker.commit.waiters import LEVEL_OS
from perdure.broker.dispatch.items import OffsetAdvance
from perdure.content.stored import (
    StoredFilter,
    changed,
    check_id,
    check_text,
    from_message,
    to_message,
)
from perdure.errors import (
    FilterInUse,
    MqttError,
    StorageConflict,
    StorageError,
    StorageUnavailable,
)
from perdure.limits import STORED_FILTERS_MAX
from perdure.model.reserved import FILTERS_PREFIX
from perdure.storage.retained_pages import all_retained

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.sessions.subscription_changes import SubscriptionChanges
    from perdure.broker.shared.subscriptions import SharedSubscriptions
    from perdure.model import Message


DUTY: Final = "filters"
"""What one of several nodes does (``storage.peers``)."""

USERS_SHOWN: Final = 3
"""Client identifiers that a refusal names."""


@final
class _Returned:
    """Takes note that the log has a filter's record, in the order of the log.

    Args:
        written: the filters whose records are on their way, and how many.
        name: of the filter.
    """

    def __init__(self, written: dict[str, int], name: str) -> None:
        self._written = written
        self._name = name

    def committed(self) -> None:
        """It is in the log."""
        left = self._written.pop(self._name) - 1
        if left:
            self._written[self._name] = left

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """What the log has is read again."""
        self.committed()

    def broke(self, error: Exception) -> None:
        """Taking note does not fail."""
        raise error


@final
class StoredFilters:
    """Keeps the filters.

    Args:
        core: what every part stands on.
        changes, registry, shared_subscriptions: what else it uses.
    """

    def __init__(
        self,
        core: BrokerCore,
        *,
        changes: SubscriptionChanges,
        registry: Registry,
        shared_subscriptions: SharedSubscriptions,
    ) -> None:
        self._core = core
        self._changes: SubscriptionChanges = changes
        self._registry: Registry = registry
        self._shared_subscriptions: SharedSubscriptions = shared_subscriptions
        self._busy = ""
        """The filter that is being changed or deleted."""
        self._settling: set[str] = set()
        """Filters for which stored sessions are visited here."""
        self._written: dict[str, int] = {}
        """Filters whose records are on their way to the log, and how many."""

    async def load(self) -> None:
        """Read them at start; a change that a crash has cut short goes on."""
        core = self._core
        async for message in all_retained(core.database, FILTERS_PREFIX + "+"):
            name, stored = from_message(message)
            core.stored_filters[name] = stored
        self.go_on()

    def go_on(self) -> None:
        """Visit stored sessions for changes that were cut short: by a crash here, or of the node
        that was asked."""
        core = self._core
        if core.peers is not None and not core.peers.owns(DUTY):
            return
        for name, stored in core.stored_filters.items():
            if not stored.settled and name not in self._settling:
                self._settle_later(name)

    def heard(self, message: Message) -> None:
        """Another node has stored a filter."""
        name, stored = from_message(message)
        if name in self._written:
            return  # the change of this node is later in the log
        core = self._core
        existing = core.stored_filters.get(name)
        core.stored_filters[name] = stored
        if existing is not None and existing.where != stored.where:
            core.pipeline.now_us = core.clock.now_us()
            self._change_connected(name, stored)

    def forgotten(self, topic: str) -> None:
        """Another node has deleted a filter, which nobody had."""
        name = topic.removeprefix(FILTERS_PREFIX)
        if name not in self._written:
            self._core.stored_filters.pop(name, None)

    async def put(self, name: str, text: str) -> int:
        """Store a filter, or change it for all who subscribe with it.

        Returns:
            How many subscriptions of connected clients, and groups, have changed.

        Raises:
            ConfigError: the id or the filter cannot be used.
            FilterInUse: there are too many.
            StorageConflict: a change of a filter is under way.
        """
        core = self._core
        where = check_text(text, core.limits_config.content_filter_bytes_max)
        existing = core.stored_filters.get(check_id(name))
        if existing is None and len(core.stored_filters) >= STORED_FILTERS_MAX:
            raise FilterInUse(f"there are {STORED_FILTERS_MAX} stored filters already: delete one")
        await self._begin(name)
        try:
            if existing is not None and existing.where == where:
                return 0
            await core.pipeline.settled()
            core.pipeline.now_us = core.clock.now_us()
            stored = StoredFilter(
                where,
                core.dispatcher.offset,
                core.pipeline.wall_us(),
                settled=existing is None,
            )
            core.stored_filters[name] = stored
            self._write(name, stored)
            count = self._change_connected(name, stored)
            core.log.info("filter.stored", id=name, changed=count)
            await core.pipeline.committed()
            await core.committer.sync_now()
        finally:
            self._busy = ""
        if existing is not None:
            self._settle_later(name)
        return count

    async def delete(self, name: str) -> bool:
        """Forget a filter that nobody subscribes with.

        Returns:
            Whether there was one.

        Raises:
            FilterInUse: somebody does.
            StorageConflict: a change of a filter is under way.
        """
        core = self._core
        stored = core.stored_filters.get(name)
        if stored is None:
            return False
        await self._begin(name)
        # Nobody can subscribe with it while its users are looked for.
        del core.stored_filters[name]
        try:
            users = await self._users(name)
            if users:
                core.stored_filters[name] = stored
                shown = ", ".join(users[:USERS_SHOWN])
                more = f" and {len(users) - USERS_SHOWN} more" if len(users) > USERS_SHOWN else ""
                raise FilterInUse(
                    f"{shown}{more} subscribe with the content filter {name!r}",
                    hint="have them unsubscribe, or discard their sessions; "
                    "`perdure filters put` changes it for all of them",
                )
            core.committer.batch.delete_retained(FILTERS_PREFIX + name)
            core.log.info("filter.deleted", id=name)
            await core.pipeline.committed()
            await core.committer.sync_now()
        except BaseException:
            core.stored_filters.setdefault(name, stored)
            raise
        finally:
            self._busy = ""
        return True

    async def _begin(self, name: str) -> None:
        core = self._core
        if not core.committer.writable:
            raise StorageUnavailable("the store has failed and has not recovered yet")
        stored = core.stored_filters.get(name)
        if self._busy or (stored is not None and not stored.settled):
            raise StorageConflict(
                f"a change of the content filter {self._busy or name!r} is under way: try again"
            )
        self._busy = name

    def _write(self, name: str, stored: StoredFilter) -> None:
        core = self._core
        message = to_message(name, stored)
        core.committer.batch.place(message)
        core.committer.batch.put_retained(message)
        core.pipeline.dispatch_placed(OffsetAdvance(message))
        self._written[name] = self._written.get(name, 0) + 1
        core.committer.wait(_Returned(self._written, name), LEVEL_OS)

    def _change_connected(self, name: str, stored: StoredFilter) -> int:
        count = 0
        for group in self._shared_subscriptions.groups.values():
            if group.record.where_id == name:
                group.change_where(stored.where, stored.since_offset)
                count += 1
        for session in list(self._registry.live.values()):
            for sub in [each for each in session.subs.values() if each.where_id == name]:
                count += 1
                try:
                    self._changes.change_where(session, sub, stored.where)
                except MqttError as error:
                    # It remembers too many that have ended; it has the change when it is back.
                    session.connection.close(error.reason_code)
                    break
        return count

    def _settle_later(self, name: str) -> None:
        self._settling.add(name)

        async def settle() -> None:
            await self._settle(name)
            self._settling.discard(name)

        self._core.spawn(settle, name="filter")

    async def _settle(self, name: str) -> None:
        """Give every stored session that is not connected the filter as it is now."""
        core = self._core
        count = 0
        async for record in core.database.sessions():
            if not record.subscription_count:
                continue
            count += await self._visit(record.client_id, name)
            await core.yield_to_loop()
        await core.pipeline.committed()
        stored = core.stored_filters.get(name)
        if stored is not None and core.committer.writable:
            stored = msgspec.structs.replace(stored, settled=True)
            core.stored_filters[name] = stored
            self._write(name, stored)
            await core.pipeline.committed()
        core.log.info("filter.settled", id=name, sessions=count)

    async def _visit(self, client_id: str, name: str) -> bool:
        core = self._core
        await self._registry.acquire(client_id)
        try:
            if client_id in self._registry.live:
                return False
            await core.committer.sequenced()
            session = await core.database.open_session(client_id)
            stored = core.stored_filters.get(name)
            if session is None or stored is None:
                return False
            if core.peers is not None and session.record.connected:
                return False  # its node does it, or whoever has it next
            found = False
            for sub in session.subscriptions:
                if sub.where_id == name:
                    for each in changed(sub, stored):
                        core.committer.batch.put_subscription(
                            client_id, each, epoch=session.record.epoch
                        )
                        found = True
            if found:
                await core.pipeline.committed()
            return found
        finally:
            self._registry.release(client_id)

    async def _users(self, name: str) -> list[str]:
        """Client identifiers of all who subscribe with a filter, connected or stored."""
        core = self._core
        users: dict[str, None] = {}
        await core.pipeline.committed()
        async for record in core.database.sessions():
            if record.subscription_count and record.client_id not in self._registry.live:
                session = await core.database.open_session(record.client_id)
                if session is not None and any(
                    sub.where_id == name and not sub.until_offset for sub in session.subscriptions
                ):
                    users[record.client_id] = None
                await core.yield_to_loop()
        for client_id, live in self._registry.live.items():
            if any(sub.where_id == name for sub in live.subs.values()):
                users[client_id] = None
        return list(users)
