"""All sessions of the cluster, looked through once in a while: counted, and let go where the node
that held them is gone.

A session's record says which incarnation of which node holds it. Where that is no member any more,
nobody holds it: one member (a duty) says so, with a claim that is refused if somebody has the
session by then. Its will and its expiry run from the log time at which the node was gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.broker.sessions.counts import Tally
from perdure.errors import StorageError
from perdure.session.expiry import expires_at_us
from perdure.session.will import will_due_us
from perdure.storage.peers import epoch_after

if TYPE_CHECKING:
    from perdure.broker.access.ban_enforcer import BanEnforcer
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.sessions.counts import SessionCounts
    from perdure.broker.sessions.lifecycle import Deadlines
    from perdure.broker.shared.subscriptions import SharedSubscriptions
    from perdure.model import SessionRecord

PAGE: Final = 256
"""Sessions that are looked at, and let go, in one turn."""

INTERVAL_US: Final = 60_000_000
"""Time between two surveys, at least: limits on sessions are so late about other nodes'."""

SHARE: Final = 50
"""One part of so many of the time is for surveys, at most."""

DUTY: Final = "sessions"


@final
class Survey:
    """Looks through all sessions.

    Args:
        core: what every part stands on.
        ban_enforcer, deadlines, registry, session_counts, shared_subscriptions: what else it uses.
    """

    def __init__(
        self,
        core: BrokerCore,
        *,
        ban_enforcer: BanEnforcer,
        deadlines: Deadlines,
        registry: Registry,
        session_counts: SessionCounts,
        shared_subscriptions: SharedSubscriptions,
    ) -> None:
        self._core = core
        self._ban_enforcer: BanEnforcer = ban_enforcer
        self._deadlines: Deadlines = deadlines
        self._registry: Registry = registry
        self._session_counts: SessionCounts = session_counts
        self._elsewhere = shared_subscriptions.elsewhere
        self._is_running = False
        self._is_wanted = False
        self.stopped = False

    def want(self) -> None:
        """Begin, or begin again when the one under way has ended."""
        self._is_wanted = True
        if not self._is_running and not self.stopped:
            self._is_running = True
            self._core.scheduler.spawn(self._run(), name="survey")

    async def _run(self) -> None:
        core = self._core
        begun_us = core.clock.monotonic_us()
        try:
            while self._is_wanted and not self.stopped:
                self._is_wanted = False
                begun_us = core.clock.monotonic_us()
                await self.run()
        except StorageError as error:
            core.read_failed(error, task="survey")
        finally:
            self._is_running = False
        took_us = core.clock.monotonic_us() - begun_us
        if not self.stopped:
            core.scheduler.call_later(max(INTERVAL_US, took_us * SHARE), self.want)

    async def run(self) -> None:
        """Go through all sessions."""
        core, peers = self._core, self._core.peers
        assert peers is not None
        tally = Tally()
        offline = 0
        seen = 0
        gone: list[SessionRecord] = []
        live = self._registry.live
        async for record in core.database.sessions():
            seen += 1
            tally.add(record, is_live=record.client_id in live)
            self._ban_enforcer.found(record)
            if not record.connected:
                offline += 1
            elif not peers.is_member(record.node, record.incarnation):
                gone.append(record)
            if seen % PAGE == 0:
                gone = await self._let_go(gone)
                await core.yield_to_loop()
                if self.stopped:
                    return
        await self._let_go(gone)
        self._session_counts.take(tally)
        core.metrics.sessions_offline = offline

    async def _let_go(self, records: list[SessionRecord]) -> list[SessionRecord]:
        """Say of sessions that nobody is connected; returns what is left to do, nothing."""
        core, peers = self._core, self._core.peers
        assert peers is not None
        if not records or not core.committer.writable or not peers.owns(DUTY):
            return []
        now_us = core.pipeline.now_us = core.clock.now_us()
        for record in records:
            if self._registry.is_busy(record.client_id):
                continue
            # Log time never goes back, and may be ahead for a while.
            at_us = min(peers.gone_at_us(record.node) or now_us, now_us)
            will = record.will
            cut = msgspec.structs.replace(
                record,
                epoch=epoch_after(peers, record.epoch),
                connected=False,
                changed_at_us=core.pipeline.wall_us(),
                will_at_us=will_due_us(will, disconnected_at_us=at_us, expiry_s=record.expiry_s)
                if will is not None
                else 0,
                expires_at_us=expires_at_us(at_us, record.expiry_s),
                cut_offset=core.database.last_offset,
            )
            core.committer.batch.claim_session(cut, seen=record.epoch)
            self._deadlines.note(cut.deadline_us)
        core.log.info("sessions.let_go", count=len(records))
        await core.pipeline.committed()
        if self._elsewhere is not None:
            for record in records:
                self._elsewhere.changed(record.client_id)
        return []
