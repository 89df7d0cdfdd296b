"""The log's age and size: new generations, dropped generations, and what is saved before.

A generation is dropped when it is older than ``retention.time_s``, or the oldest one when the log
is larger than ``retention.bytes``. What an unexpired session or a group has still to get from it
is first carried over to its private stream, with its own offsets, so that order holds and a month
offline costs only what is pending.

Of several nodes each has generations of its own, and a client may come to any of them. So one stays
as well while a session that is connected to another node, or a group that another node serves, has
to get something from it that is not in a private stream: that node puts it there when it drops its
own. Nodes may wait for each other so: each carries over all that is its own before it waits.

Only the disk budget with the policy ``drop_oldest`` drops a generation without all of that
(``disk_budget``).
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.broker.dispatch.items import OffsetAdvance
from perdure.broker.retention.disk_budget import DiskBudget, generation_bytes_max
from perdure.broker.retention.dropping import (
    CARRY_PAGE,
    is_owed,
    make_durable,
    owed_to_group,
    visit_session,
)
from perdure.broker.retention.group_carry import carry_group, is_served_elsewhere
from perdure.broker.retention.pipeline_holds import PipelineHolds
from perdure.content import fulfils
from perdure.errors import StorageConflict, StorageError
from perdure.model import InboxEntry, StoredSession, combine
from perdure.session.pending import PendingMessages
from perdure.session.pending_pages import read_pages
from perdure.session.subscriptions import SessionSubscriptions
from perdure.storage.contract import GenerationInfo

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.backfill import Backfill
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.delivery.window_waiters import WindowWaiters
    from perdure.broker.publish.path import PublishPath
    from perdure.broker.shared.subscriptions import SharedSubscriptions
    from perdure.config.schema import RetentionConfig

DUTY: Final = "retention"
"""What one of several nodes does for all: to carry over backfills, and to sweep. The rest is
written alike by each that does it, to the same places."""


@final
class Retention:
    """Keeps the log within its bounds.

    Args:
        core: what every part stands on.
        config: the bounds; may be replaced at run time.
        backfill, publish_path, registry, shared_subscriptions, window_waiters: what else it uses.
    """

    def __init__(
        self,
        core: BrokerCore,
        config: RetentionConfig,
        *,
        backfill: Backfill,
        publish_path: PublishPath,
        registry: Registry,
        shared_subscriptions: SharedSubscriptions,
        window_waiters: WindowWaiters,
    ) -> None:
        self._core = core
        self._backfill: Backfill = backfill
        self._registry: Registry = registry
        self._shared_subscriptions: SharedSubscriptions = shared_subscriptions
        self.config = config
        self._running: bool = False
        self._stopped: bool = False
        self.holds = PipelineHolds(core)
        """Who the log waits for."""
        self._waits: StorageConflict | None = None
        """What another node has still to carry over of the generation that is to go."""
        self._budget = DiskBudget(
            core,
            self.holds,
            publish_path=publish_path,
            registry=registry,
            shared_subscriptions=shared_subscriptions,
            window_waiters=window_waiters,
        )

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopped = True

    def start(self) -> None:
        """Look at age and size every ``check_interval_s``."""
        self._core.scheduler.call_later(self.config.check_interval_s * 1_000_000, self._tick)

    async def look_at_disk(self) -> None:
        """Keep the disk budget from the first message on (at start)."""
        try:
            await self._budget.keep(self.config)
        except StorageError as error:
            self._core.log.error("retention.failed", error=error.message, code=error.code)

    @property
    def disk_over(self) -> str:
        """What the disk budget cannot hold, for people; empty = it does."""
        return self._budget.over

    def _tick(self) -> None:
        if self._stopped:
            return
        if not self._running:
            self._core.scheduler.spawn(self.check(), name="retention")
        self.start()

    async def check(self) -> None:
        """Rotate and drop what is due now."""
        core = self._core
        if self._running or not core.committer.writable:
            return
        self._running = True
        try:
            now_us = core.clock.now_us()
            self.holds.look(self.config)
            self._rotate_if_due(now_us)
            for info in self._due(now_us):
                try:
                    await self.drop(info)
                except StorageConflict as error:
                    core.log.info(
                        "generation.kept", generation=info.generation, reason=error.message
                    )
                    break
            await self._budget.keep(self.config)
            if core.peers is None or core.peers.owns(DUTY):
                await core.database.sweep_retained(now_us, limit=10_000)
        except StorageError as error:
            core.log.error("retention.failed", error=error.message, code=error.code)
            if core.database.has_failed and core.committer.writable:
                # No commit has met this failure, and none may be acknowledged behind it.
                core.committer.lost(error)
        finally:
            self._running = False

    def held_by(self, info: GenerationInfo) -> str:
        """The pipeline that has most to read of what ended with a generation; empty = none."""
        self.holds.look(self.config)
        return self.holds.waits_for(info)

    async def drop_now(self, info: GenerationInfo) -> int:
        """``drop`` for an operator, while nothing else is dropped.

        Raises:
            StorageConflict: something is, or as ``drop``.
        """
        if self._running:
            raise StorageConflict("retention is at work just now")
        self._running = True
        try:
            return await self.drop(info)
        finally:
            self._running = False

    async def drop(self, info: GenerationInfo) -> int:
        """Carry over what is still owed from a generation, then drop it.

        Returns:
            Messages carried over.

        Raises:
            StorageConflict: other nodes have still to carry over what is owed from it.
        """
        core = self._core
        self._waits = None
        failures = core.committer.failure_count
        carried = 0
        async for record in core.database.sessions():
            client_id = record.client_id
            carry = functools.partial(self._carry_session, client_id, info)
            carried += await visit_session(core, self._registry, client_id, carry)
        for key in list(self._shared_subscriptions.groups):
            group = self._shared_subscriptions.groups.get(key)
            if group is not None:
                carried += await carry_group(core, group, info)
                if is_served_elsewhere(core, group) and await owed_to_group(core, group, info):
                    self._wait_for(group.record.node, f"it serves the group {key}")
        await make_durable(core, failures)
        waits: StorageConflict | None = self._waits
        if waits is not None:
            raise waits
        await self.holds.dropped(info, "retention.bytes")
        core.database.drop_generation(info.generation)
        core.log.info(
            "generation.dropped",
            generation=info.generation,
            messages=info.message_count,
            bytes=info.bytes,
            carried=carried,
        )
        return carried

    def _rotate_if_due(self, now_us: int) -> None:
        core = self._core
        current = core.database.generations()[-1]
        age_us = now_us - self._begun_us(current)
        if not current.message_count:
            return
        if (
            age_us >= self.config.generation_time_s * 1_000_000
            or current.bytes >= generation_bytes_max(self.config)
        ):
            info = core.database.rotate(core.clock.wall_us())
            core.log.info("generation.added", generation=info.generation)

    def _due(self, now_us: int) -> list[GenerationInfo]:
        """Generations beyond the bounds, oldest first; never the current one."""
        config = self.config
        generations = self._core.database.generations()
        total = sum(info.bytes for info in generations)
        due: list[GenerationInfo] = []
        held: list[GenerationInfo] = []
        for info, successor in itertools.pairwise(generations):
            age_us = now_us - self._begun_us(successor)
            too_old = config.time_s > 0 and age_us >= config.time_s * 1_000_000
            too_big = config.bytes > 0 and total > config.bytes
            if not too_old and not too_big:
                break
            if not too_big and (held or self.holds.waits_for(info)):
                held.append(info)
                continue
            due.append(info)
            total -= info.bytes
        self.holds.held(held)
        return due

    def _begun_us(self, info: GenerationInfo) -> int:
        """Steady time at which a generation was begun. Offsets do not tell it: after a clock that
        was ahead they stay ahead."""
        return self._core.clock.steady_at(info.created_at_us, info.since_offset)

    async def _carry_session(
        self, client_id: str, info: GenerationInfo, live: LiveSession | None
    ) -> int:
        core = self._core
        backfilled = 0
        if live is not None:
            await self._backfill.pass_offset(live, info.until_offset - 1)
        stored = await core.database.open_session(client_id)
        if stored is None:
            return 0
        peers, epoch = core.peers, stored.record.epoch
        if peers is not None and live is None and stored.record.connected:
            await self._look_elsewhere(stored, info)
            return 0
        if live is None:
            if peers is None or peers.owns(DUTY):
                backfilled = await self._carry_backfills(stored, info)
            elif self._is_fed(stored, info):
                self._wait_for("that carries over replays", f"{client_id} is away")
        has_queues = core.database.capabilities.queues is not None
        if stored.cursor.offset >= info.until_offset - 1 or has_queues:
            # What the session is owed besides is done, or in a queue of its own.
            return backfilled
        if peers is not None and not await is_owed(core, stored, info):
            return backfilled  # another node has carried it over, or this one before it waited
        carried = await self._carry(stored, live, info)
        if peers is not None:
            stored = await core.database.open_session(client_id)
            if stored is not None and stored.record.epoch != epoch:
                # Its client has come to another node: what was put counts for nothing.
                await self._look_elsewhere(stored, info)
        return backfilled + carried

    async def _look_elsewhere(self, stored: StoredSession, info: GenerationInfo) -> None:
        """Wait with a generation that a session of another node needs."""
        is_behind = stored.cursor.offset < info.until_offset - 1
        if self._is_fed(stored, info) or (is_behind and await is_owed(self._core, stored, info)):
            record = stored.record
            self._wait_for(record.node, f"{record.client_id} is connected there")

    def _is_fed(self, stored: StoredSession, info: GenerationInfo) -> bool:
        """Whether a backfill of a session has still to give something from a generation."""
        until = info.until_offset - 1
        return any(
            sub.backfill is not None
            and sub.backfill.after_offset < until
            and not self._backfill.stands_in_archive(sub.backfill)
            for sub in stored.subscriptions
        )

    def _wait_for(self, node: str, why: str) -> None:
        self._waits = StorageConflict(
            f"node {node} has still to carry over what is owed from it: {why}",
            hint="it does when it drops what it has itself from that time",
        )

    async def _carry(
        self, stored: StoredSession, live: LiveSession | None, info: GenerationInfo
    ) -> int:
        """Copy what a session is owed from a generation to its private stream.

        Every owed message gets an entry at its own offset, settled ones too: each has a serial
        number that must stay taken.
        """
        core = self._core
        client_id = stored.record.client_id
        subscriptions = SessionSubscriptions(client_id, stored.subscriptions)
        until = info.until_offset - 1
        pages = read_pages(
            core.database,
            subscriptions,
            durable=False,  # what is in its private stream stays there
            after=max(stored.cursor.offset, info.since_offset - 1),
            until=until,
            chunk=CARRY_PAGE,
            bytes_max=0,
        )
        pending = PendingMessages(subscriptions, 0)
        count = 0
        async for page in pages:
            for each in pending.page(page.messages, page.entries):
                assert each.message is not None
                core.committer.batch.put_inbox(
                    client_id,
                    InboxEntry(
                        each.offset,
                        each.message,
                        qos=each.qos,
                        retain=each.retain,
                        identifiers=each.identifiers,
                    ),
                    epoch=stored.record.epoch,
                )
                count += 1
            await core.pipeline.committed()
            await core.yield_to_loop()
        if live is not None:
            live.inbox_until = max(live.inbox_until, until)
        return count

    async def _carry_backfills(self, stored: StoredSession, info: GenerationInfo) -> int:
        """What backfills of an offline session have still to give from a generation, put behind all
        that is in its private stream already."""
        core = self._core
        client_id, epoch = stored.record.client_id, stored.record.epoch
        until = info.until_offset - 1
        count = 0
        for sub in stored.subscriptions:
            progress = self._backfill.passed_on(sub, until)
            while progress is not None and progress.after_offset < until:
                page = await core.database.read(
                    [sub.filter],
                    after_offset=progress.after_offset,
                    until_offset=until,
                    limit=CARRY_PAGE,
                )
                batch = core.committer.batch
                for message in page.messages:
                    options = combine([sub], message, client_id)
                    if options is None or not options.qos or not fulfils(sub, message):
                        continue
                    entry = InboxEntry(
                        0,
                        message,
                        qos=options.qos,
                        retain=options.retain,
                        identifiers=options.identifiers,
                    )
                    batch.place(entry)
                    batch.put_inbox(client_id, entry, epoch=epoch)
                    # A session that comes back reads up to the fence, so that must pass it.
                    core.pipeline.dispatch_placed(OffsetAdvance(entry))
                    count += 1
                progress = msgspec.structs.replace(progress, after_offset=page.through_offset)
                batch.put_subscription(
                    client_id, msgspec.structs.replace(sub, backfill=progress), epoch=epoch
                )
                await core.pipeline.committed()
                await core.yield_to_loop()
        return count
