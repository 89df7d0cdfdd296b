"""The log's age and size: new generations, dropped generations, and what is saved before.

A generation is dropped when it is older than ``retention.time_s``, or the oldest one when the log
is larger than ``retention.bytes``. What an unexpired session or a group has still to get from it
is first carried over to its private stream, with its own offsets, so that order holds and a month
offline costs only what is pending.

Of several nodes each has generations of its own, and a client may come to any of them. So one stays
as well while a session that is connected to another node, or a group that another node serves, has
to get something from it that is not in a private stream: that node puts it there when it drops its
own, or when it is asked to (``asked``), which it is at each look. Nodes may wait for each other so:
each carries over all that is its own before it waits.

Only the disk budget with the policy ``drop_oldest`` drops a generation without all of that
(``disk_budget``).
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, final

import msgspec

from perdure.broker.retention.asked import Asked, Request, Tell
from perdure.broker.retention.disk_budget import DiskBudget, generation_bytes_max
from perdure.broker.retention.dropping import (
    make_durable,
    owed_to_group,
    visit_session,
)
from perdure.broker.retention.group_carry import carry_group, is_served_elsewhere
from perdure.broker.retention.pipeline_holds import PipelineHolds
from perdure.broker.retention.session_carry import DUTY, SessionCarry
from perdure.errors import StorageConflict, StorageError
from perdure.storage.contract import GenerationInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.backfill import Backfill
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.delivery.window_waiters import WindowWaiters
    from perdure.broker.publish.path import PublishPath
    from perdure.broker.shared.subscriptions import SharedSubscriptions
    from perdure.config.schema import RetentionConfig
    from perdure.model import SessionRecord


@final
class Retention:
    """Keeps the log within its bounds.

    Args:
        core: what every part stands on.
        config: the bounds; may be replaced at run time.
        tell: tells the other nodes.
        backfill, publish_path, registry, shared_subscriptions, window_waiters: what else it uses.

    Attributes:
        asked: what other nodes want of this one.
    """

    def __init__(
        self,
        core: BrokerCore,
        config: RetentionConfig,
        *,
        tell: Tell,
        backfill: Backfill,
        publish_path: PublishPath,
        registry: Registry,
        shared_subscriptions: SharedSubscriptions,
        window_waiters: WindowWaiters,
    ) -> None:
        self._core = core
        self._registry: Registry = registry
        self._shared_subscriptions: SharedSubscriptions = shared_subscriptions
        self.config = config
        self._running: bool = False
        self._stopped: bool = False
        self._kept: int = 0
        """The generation that had to wait for other nodes at the last look; 0 = none had."""
        self.holds = PipelineHolds(core)
        """Who the log waits for."""
        self._sessions = SessionCarry(core, backfill)
        self.asked = Asked(core, tell, self._do_for_others)
        self._budget = DiskBudget(
            core,
            self.holds,
            ask=self.asked.ask,
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
            await self._drop_all(self._due(now_us))
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

    async def _drop_all(self, due: list[GenerationInfo]) -> None:
        """Drop generations, oldest first, up to one that has to wait for other nodes."""
        core = self._core
        core.metrics.retention_waiting_generations = 0
        for number, info in enumerate(due):
            try:
                await self.drop(info)
            except StorageConflict as error:
                core.metrics.retention_waiting_generations = len(due) - number
                # At the next look what was asked for should have been done.
                tell = core.log.warning if info.generation == self._kept else core.log.info
                tell("generation.kept", generation=info.generation, reason=error.message)
                self._kept = info.generation
                return
        self._kept = 0

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
        self._sessions.waits = None
        failures = core.committer.failure_count
        carried = await self._carry_over(info, lambda _: True)
        for group in self._shared_subscriptions.each_group():
            if is_served_elsewhere(core, group) and await owed_to_group(core, group, info):
                self._sessions.wait_for(group.record.node, f"it serves the group {group.key}")
        await make_durable(core, failures)
        waits: StorageConflict | None = self._sessions.waits
        if waits is not None:
            self.asked.ask(info.until_offset - 1, gives_up=False)
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

    async def _do_for_others(self, request: Request) -> None:
        """Do what another node has asked for, which is about to drop what comes up to an offset."""
        core = self._core
        generations = core.database.generations()
        span = msgspec.structs.replace(
            generations[0],
            until_offset=request.until_offset + 1,
            message_count=sum(info.message_count for info in generations),
        )
        if span.since_offset >= span.until_offset or not core.committer.writable:
            return
        try:
            if request.gives_up:
                await self._budget.give_up(span)
            else:
                await self._carry_for_others(span)
        except StorageError as error:
            core.log.error("retention.failed", error=error.message, code=error.code)

    async def _carry_for_others(self, span: GenerationInfo) -> None:
        """Carry over what clients that are connected here, and groups that are served here, are
        owed of what another node is about to drop; and replays of who is away, if that is for this
        node."""
        core = self._core
        assert core.peers is not None
        live, has_duty = self._registry.live, core.peers.owns(DUTY)
        carried = await self._carry_over(
            span,
            lambda record: record.client_id in live or (has_duty and not record.connected),
        )
        core.log.info(
            "generation.carried_over", until_offset=span.until_offset - 1, carried=carried
        )

    async def _carry_over(
        self, info: GenerationInfo, is_looked_at: Callable[[SessionRecord], bool]
    ) -> int:
        """Put what sessions and groups are owed of a generation into their private streams, as far
        as that is for this node; how many messages."""
        core = self._core
        carried = 0
        async for record in core.database.sessions():
            if is_looked_at(record):
                client_id = record.client_id
                carry = functools.partial(self._sessions.carry, client_id, info)
                carried += await visit_session(core, self._registry, client_id, carry)
        for group in self._shared_subscriptions.each_group():
            carried += await carry_group(core, group, info)
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
