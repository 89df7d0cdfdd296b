"""The disk budget: what happens when the data directory has come to its bound.

``refuse``: QoS 1 and 2 publishes are turned away until there is room again. ``drop_oldest``: the
oldest generation goes although sessions and groups may be owed something in it. What is lost is
counted for each session, in the metrics and in the log, and a client is told with the next message
that it gets (``pending_limits.DROPPED_PROPERTY``).

Of several nodes one may drop what another one has still. A client may come to either, so it is lost
on all: each gives up, and counts, what is for it to send (``asked``).

A lost message leaves a *tombstone* in the private stream of each session that was owed it: an
entry without a message, at the same offset, which keeps its serial number taken. Invariant: no
other message gets the packet identifier of a lost one, and an exchange past its PUBREC is
completed all the same (trap 13).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.broker.retention.asked import Ask, ask_nobody
from perdure.broker.retention.dropping import (
    make_durable,
    owed_pages,
    visit_session,
)
from perdure.broker.retention.group_carry import lose_of_group
from perdure.broker.retention.pipeline_holds import PipelineHolds
from perdure.model import InboxEntry, Message, StoredSession
from perdure.session.pending import DeliveryProgress, without_payload
from perdure.storage.contract import GenerationInfo

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.delivery.window_waiters import WindowWaiters
    from perdure.broker.publish.path import PublishPath
    from perdure.broker.shared.subscriptions import SharedSubscriptions
    from perdure.config.schema import RetentionConfig

GENERATIONS_MIN: Final = 8
"""With ``drop_oldest`` a generation takes at most this part of the budget: so there is one to drop
in time, and dropping it costs a part of the past and not all of it."""

OTHERS_US: Final = 2_000_000
"""Time for other nodes to give up what their clients are owed of a generation that goes."""


def generation_bytes_max(config: RetentionConfig) -> int:
    """Size at which a new generation is begun."""
    if config.disk_bytes_max and config.disk_policy == "drop_oldest":
        return min(config.generation_bytes, config.disk_bytes_max // GENERATIONS_MIN)
    return config.generation_bytes


@final
class DiskBudget:
    """Keeps the data directory within ``retention.disk_bytes_max``.

    Args:
        core: what every part stands on.
        holds: what pipelines lose is told to it.
        ask: asks the other nodes.
        publish_path, registry, shared_subscriptions, window_waiters: what else it uses.
    """

    def __init__(
        self,
        core: BrokerCore,
        holds: PipelineHolds | None = None,
        *,
        ask: Ask = ask_nobody,
        publish_path: PublishPath,
        registry: Registry,
        shared_subscriptions: SharedSubscriptions,
        window_waiters: WindowWaiters,
    ) -> None:
        self._core = core
        self._ask = ask
        self._publish_path: PublishPath = publish_path
        self._registry: Registry = registry
        self._shared_subscriptions: SharedSubscriptions = shared_subscriptions
        self._window_waiters: WindowWaiters = window_waiters
        self._holds = holds or PipelineHolds(core)
        self._is_over: bool = False
        """The log says that it is over, and not yet that it is not any more."""
        self.over: str = ""
        """What there is too much of, for people; empty = there is room."""

    async def keep(self, config: RetentionConfig) -> None:
        """Refuse publishes, or drop the oldest generations, as long as there is too much."""
        core = self._core
        budget = config.disk_bytes_max
        used = core.database.disk_bytes() if budget else 0
        dropped = 0
        if config.disk_policy == "drop_oldest":
            self._holds.look(config)
            while used > budget and len(core.database.generations()) > 1:
                info = core.database.generations()[0]
                await self.drop(info)
                # Not measured again: its files may be deleted a little later, and another
                # generation must not go for that.
                used -= info.bytes
                dropped += 1
        over = used > budget
        self._publish_path.disk_full = over and config.disk_policy == "refuse"
        self.over = ""
        if over:
            self.over = f"{used} bytes of data, retention.disk_bytes_max is {budget}"
        if over and not dropped and not self._is_over:
            self._is_over = True
            core.log.error(
                "disk.full",
                budget_bytes=budget,
                used_bytes=used,
                policy=config.disk_policy,
                hint="raise retention.disk_bytes_max (live), or lower retention.time_s or bytes",
            )
        elif self._is_over and not over:
            self._is_over = False
            core.log.info("disk.recovered", budget_bytes=budget, used_bytes=used)

    async def drop(self, info: GenerationInfo) -> int:
        """Drop a generation although something in it may be owed.

        Returns:
            Messages lost, each counted once for each session or group that was owed it.
        """
        core = self._core
        failures = core.committer.failure_count
        await self._ask_others(info)
        lost = losers = 0
        if core.database.capabilities.queues is None:
            async for record in core.database.sessions():
                count = await self._lost_by(record.client_id, info)
                lost += count
                losers += count > 0
        await make_durable(core, failures)
        await self._holds.dropped(info, "retention.disk_bytes_max")
        lost += await self._lost_by_groups(info)
        core.database.drop_generation(info.generation)
        core.metrics.messages_dropped_retention += lost
        core.log.warning(
            "generation.dropped",
            generation=info.generation,
            messages=info.message_count,
            bytes=info.bytes,
            lost=lost,
            sessions=losers,
            reason="disk budget",
        )
        return lost

    async def give_up(self, span: GenerationInfo) -> None:
        """Give up what clients that are connected here, and groups that are served here, are owed
        of what another node is about to drop.

        Args:
            span: all that this node has of it, as if it were a generation.
        """
        core = self._core
        lost = losers = 0
        for client_id in list(self._registry.live):
            if client_id in self._registry.live:
                count = await self._lost_by(client_id, span)
                lost += count
                losers += count > 0
        lost += await self._lost_by_groups(span)
        core.metrics.messages_dropped_retention += lost
        if lost:
            core.log.warning(
                "generation.given_up",
                until_offset=span.until_offset - 1,
                lost=lost,
                sessions=losers,
                reason="another node's disk budget",
            )

    async def _ask_others(self, info: GenerationInfo) -> None:
        """Have the nodes that clients are connected to give up what is about to be dropped, and
        leave them some time; what is owed then all the same is lost as they may have sent it."""
        peers = self._core.peers
        if peers is None or len(peers.nodes()) < 2:
            return
        self._ask(info.until_offset - 1, gives_up=True)
        gate = self._core.scheduler.gate()
        self._core.scheduler.call_later(OTHERS_US, gate.open)
        await gate

    async def _lost_by(self, client_id: str, info: GenerationInfo) -> int:
        put_tombstones = functools.partial(self._put_tombstones, client_id, info)
        return await visit_session(self._core, self._registry, client_id, put_tombstones)

    async def _lost_by_groups(self, info: GenerationInfo) -> int:
        """Move groups behind a generation, and count what they have not given out of it."""
        lost = 0
        for group in self._shared_subscriptions.each_group():
            count = await lose_of_group(self._core, group, info)
            if count:
                self._core.log.warning(
                    "group.lost_messages", group=group.key, lost=count, reason="disk budget"
                )
            lost += count
        return lost

    async def _put_tombstones(
        self, client_id: str, info: GenerationInfo, live: LiveSession | None
    ) -> int:
        """Put tombstones for what a session is owed from a generation; how many it loses.

        One that reads from the log stands still meanwhile: what it would be given were counted as
        lost, or given in part.
        """
        if live is None:
            lost = None
            while lost is None:  # else another node had it meanwhile, and it counts for nothing
                lost = await self._replace(client_id, info, None)
            return lost
        live.stands_still = True
        try:
            return await self._replace(client_id, info, live) or 0
        finally:
            live.stands_still = False
            self._window_waiters.notify(live)

    async def _replace(
        self, client_id: str, info: GenerationInfo, live: LiveSession | None
    ) -> int | None:
        """``_put_tombstones``; None = the session has another owner than the one that was read."""
        core = self._core
        stored = await core.database.open_session(client_id)
        if stored is None or stored.cursor.offset >= info.until_offset - 1:
            return 0
        lost = await self._fill(stored, info, held_through=_held_through(live, info))
        if live is not None and not live.is_open and not live.record.expiry_s:
            return 0  # it has ended meanwhile
        if lost:
            record = stored.record if live is None else live.record
            record = msgspec.structs.replace(record, dropped_count=record.dropped_count + lost)
            if live is not None:
                live.record = record
            core.committer.batch.put_session(record)
        if live is not None:
            live.inbox_until = max(live.inbox_until, info.until_offset - 1)
        await core.pipeline.committed()
        if core.peers is not None:
            found = await core.database.open_session(client_id)
            if found is not None and found.record.epoch != stored.record.epoch:
                return None
        return lost

    async def _fill(self, stored: StoredSession, info: GenerationInfo, *, held_through: int) -> int:
        """Put a tombstone for each message of the log that a session is owed up to the end of a
        generation, and count those that its client will not get."""
        core = self._core
        record = stored.record
        progress = DeliveryProgress(stored.cursor, record.cut_offset)
        lost = 0
        async for page in owed_pages(core, stored, info):
            for each in page:
                if each.entry is not None:
                    continue  # it stays
                assert each.message is not None
                kept: Message | None = None
                qos = each.qos
                if progress.is_released(each):
                    kept, qos = without_payload(each.message), 2
                elif not progress.is_settled(each) and each.offset > held_through:
                    lost += 1
                entry = InboxEntry(
                    each.offset, kept, qos=qos, retain=each.retain, identifiers=each.identifiers
                )
                core.committer.batch.put_inbox(record.client_id, entry, epoch=record.epoch)
            await core.pipeline.committed()
            await core.yield_to_loop()
        return lost


def _held_through(live: LiveSession | None, info: GenerationInfo) -> int:
    """Up to where a session has its messages in memory; its client gets those all the same."""
    if live is None:
        return 0
    return live.position if live.lagging else info.until_offset
