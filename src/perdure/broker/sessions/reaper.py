"""What is due: delayed wills, expired sessions, expired retained messages.

Deadlines are in the store's index, so they survive a restart and cost no memory; one timer stands
for the earliest. They are in steady time (``clock.SteadyClock``): a wall clock that is set moves
none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.broker.core import RETRY_US
from perdure.broker.runtime.scheduler import Timer
from perdure.errors import StorageError
from perdure.session.expiry import expires_at_us
from perdure.session.will import will_due_us
from perdure.storage.batch import Batch

if TYPE_CHECKING:
    from perdure.broker.access.ban_enforcer import BanEnforcer
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.registry import Registry
    from perdure.broker.sessions.claims import Claims
    from perdure.broker.sessions.counts import SessionCounts
    from perdure.broker.sessions.lifecycle import SessionLifecycle
    from perdure.broker.sessions.wills import WillPublisher
    from perdure.model import SessionRecord

DUTY: Final = "deadlines"
"""What one of several nodes does (``storage.peers``)."""
DUE_PAGE: Final = 32
"""Sessions handled in one turn of the loop: some 3 ms."""
DUE_BYTES: Final = 256 * 1024
"""Bytes of wills published in one turn; one is published in any case."""
CUT_PAGE: Final = 256
"""Sessions put offline in one write, at start."""
FAILED_US: Final = 60_000_000
"""How long a session waits whose expiry or will has failed as nobody expected."""
DELAY_MAX_US: Final = 86_400_000_000
"""Longest timer."""


@final
class Reaper:
    """Ends what has expired and publishes delayed wills."""

    def __init__(
        self,
        core: BrokerCore,
        *,
        ban_enforcer: BanEnforcer,
        claims: Claims,
        registry: Registry,
        session_counts: SessionCounts,
        sessions: SessionLifecycle,
        wills: WillPublisher,
    ) -> None:
        self._core = core
        self._ban_enforcer: BanEnforcer = ban_enforcer
        self._claims: Claims = claims
        self._registry: Registry = registry
        self._session_counts: SessionCounts = session_counts
        self._sessions: SessionLifecycle = sessions
        self._wills: WillPublisher = wills
        sessions.deadlines = self
        self._timer: Timer | None = None
        self._at_us: int = 0
        self._running: bool = False
        self.stopped: bool = False

    def note(self, deadline_us: int) -> None:
        """A session has a deadline; 0 = none."""
        if not deadline_us or self.stopped:
            return
        if self._timer is not None:
            if self._at_us <= deadline_us:
                return
            self._timer.cancel()
        self._at_us = deadline_us
        core = self._core
        delay_us = min(max(0, deadline_us - core.clock.now_us()), DELAY_MAX_US)
        self._timer = core.scheduler.call_later(delay_us, self._due)

    def stop(self) -> None:
        """Handle nothing more."""
        self.stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        if not self._running and not self.stopped:
            self._running = True
            self._core.scheduler.spawn(self.run(), name="reaper")

    async def run(self) -> None:
        """Handle all that is due, then set the timer for what is next.

        Of several nodes one does it; another begins when that one is gone.
        """
        core = self._core
        if core.peers is not None and not core.peers.owns(DUTY):
            self._running = False
            return
        failed: set[str] = set()
        try:
            while not self.stopped:
                if not core.committer.writable:
                    self.note(core.clock.now_us() + RETRY_US)
                    return
                now_us = core.clock.now_us()
                due = await core.database.due_sessions(now_us, limit=DUE_PAGE)
                if all(record.client_id in failed for record in due):
                    break
                published_bytes = 0
                for record in due:
                    if record.client_id in failed:
                        continue
                    await self._try(record.client_id, failed)
                    published_bytes += 0 if record.will is None else len(record.will.payload)
                    if published_bytes >= DUE_BYTES:
                        break
                core.committer.log_sync.large_bytes += published_bytes
                await core.pipeline.committed()
                await core.yield_to_loop()
            next_us = await core.database.next_deadline_us()
        except StorageError as error:
            core.read_failed(error, task="reaper")
            next_us = core.clock.now_us() + RETRY_US
        finally:
            self._running = False
        if failed and next_us:
            next_us = max(next_us, core.clock.now_us() + FAILED_US)
        self.note(next_us)

    async def _try(self, client_id: str, failed: set[str]) -> None:
        """Handle one session; one that fails as nobody expected does not keep the others."""
        try:
            await self._handle(client_id)
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 - it is about one session
            self._core.unexpected_errors.report(error, "expiry", client_id=client_id)
            failed.add(client_id)

    async def _handle(self, client_id: str) -> None:
        core = self._core
        await self._registry.acquire(client_id)
        try:
            if client_id in self._registry.live:
                return
            await core.committer.sequenced()
            stored = await core.database.open_session(client_id)
            if stored is None:
                return
            record = stored.record
            now_us = core.clock.now_us()
            core.pipeline.now_us = now_us
            if not record.deadline_us or record.deadline_us > now_us:
                return
            if core.peers is not None:
                stored = await self._claims.take(record)
                if stored is None:
                    return  # its client has come back, or another node was first or is next
                record = stored.record
            if record.expires_at_us and record.expires_at_us <= now_us:
                core.log.info("session.expired", client_id=client_id)
                await self._sessions.discard(stored, expired=True)
            elif record.will_at_us and record.will_at_us <= now_us:
                self._publish_will(record)
        finally:
            self._claims.settle(client_id)
            self._registry.release(client_id)

    def _publish_will(self, record: SessionRecord) -> None:
        core = self._core
        assert record.will is not None
        self._wills.publish(record)
        core.committer.batch.put_session(msgspec.structs.replace(record, will=None, will_at_us=0))

    async def cut_connections(self) -> None:
        """At start, or when the store is there again: sessions that the store takes for connected
        and that nobody holds are offline.

        Wills fall due and expiry starts now, as after any lost connection. Sessions are counted on
        the way: nobody has counted what the last process, or a store that failed, has left.
        """
        core = self._core
        offline = 0
        tally = self._session_counts
        tally.clear()
        for session in self._registry.live.values():
            tally.added(session.record.username)
        now_us = core.clock.now_us()
        core.pipeline.now_us = now_us
        last_offset = core.database.last_offset
        cut: list[SessionRecord] = []
        async for record in core.database.sessions():
            if record.client_id not in self._registry.live:
                offline += 1
                tally.found(record)
                self._ban_enforcer.found(record)
            if record.connected and not self._registry.is_busy(record.client_id):
                cut.append(record)
                if len(cut) >= CUT_PAGE:
                    await _put_cut(core, cut, now_us=now_us, cut_offset=last_offset)
                    cut = []
        await _put_cut(core, cut, now_us=now_us, cut_offset=last_offset)
        core.metrics.sessions_offline = offline


async def _put_cut(
    core: BrokerCore, records: list[SessionRecord], *, now_us: int, cut_offset: int
) -> None:
    batch = Batch()
    for record in records:
        will = record.will
        batch.put_session(
            msgspec.structs.replace(
                record,
                connected=False,
                changed_at_us=core.pipeline.wall_us(),
                will_at_us=will_due_us(will, disconnected_at_us=now_us, expiry_s=record.expiry_s)
                if will is not None
                else 0,
                expires_at_us=expires_at_us(now_us, record.expiry_s),
                cut_offset=cut_offset,
            )
        )
    if records:
        await core.committer.submit_aside(batch, core.pipeline.wall_us())
