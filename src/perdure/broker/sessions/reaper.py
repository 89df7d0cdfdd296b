"""What is due: delayed wills, expired sessions, expired retained messages.

Deadlines are in the store's index, so they survive a restart and cost no memory; one timer stands
for the earliest. They are in steady time (``clock.SteadyClock``): a wall clock that is set moves
none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.broker.runtime.scheduler import Timer
from perdure.broker.services import RETRY_US
from perdure.errors import StorageError
from perdure.session.expiry import expires_at_us
from perdure.session.will import will_due_us
from perdure.storage.batch import Batch

if TYPE_CHECKING:
    from perdure.broker.services import Services
    from perdure.model import SessionRecord

DUE_PAGE: Final = 256
"""Sessions handled in one go."""
FAILED_US: Final = 60_000_000
"""How long a session waits whose expiry or will has failed as nobody expected."""
DELAY_MAX_US: Final = 86_400_000_000
"""Longest timer."""


@final
class Reaper:
    """Ends what has expired and publishes delayed wills."""

    def __init__(self, services: Services) -> None:
        self._services = services
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
        services = self._services
        delay_us = min(max(0, deadline_us - services.clock.now_us()), DELAY_MAX_US)
        self._timer = services.scheduler.call_later(delay_us, self._due)

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
            self._services.scheduler.spawn(self.run(), name="reaper")

    async def run(self) -> None:
        """Handle all that is due, then set the timer for what is next."""
        services = self._services
        failed: set[str] = set()
        try:
            while not self.stopped:
                if not services.committer.writable:
                    self.note(services.clock.now_us() + RETRY_US)
                    return
                now_us = services.clock.now_us()
                due = await services.database.due_sessions(now_us, limit=DUE_PAGE)
                if all(record.client_id in failed for record in due):
                    break
                for record in due:
                    if record.client_id not in failed:
                        await self._try(record.client_id, failed)
                await services.pipeline.committed()
                await services.window_waiters.yield_to_loop()
            next_us = await services.database.next_deadline_us()
        except StorageError as error:
            services.read_failed(error, task="reaper")
            next_us = services.clock.now_us() + RETRY_US
        finally:
            self._running = False
        if failed and next_us:
            next_us = max(next_us, services.clock.now_us() + FAILED_US)
        self.note(next_us)

    async def _try(self, client_id: str, failed: set[str]) -> None:
        """Handle one session; one that fails as nobody expected does not keep the others."""
        try:
            await self._handle(client_id)
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 - it is about one session
            self._services.unexpected_errors.report(error, "expiry", client_id=client_id)
            failed.add(client_id)

    async def _handle(self, client_id: str) -> None:
        services = self._services
        await services.registry.acquire(client_id)
        try:
            if client_id in services.registry.live:
                return
            await services.committer.sequenced()
            stored = await services.database.open_session(client_id)
            if stored is None:
                return
            record = stored.record
            now_us = services.clock.now_us()
            services.pipeline.now_us = now_us
            if record.expires_at_us and record.expires_at_us <= now_us:
                services.log.info("session.expired", client_id=client_id)
                await services.sessions.discard(stored, expired=True)
            elif record.will_at_us and record.will_at_us <= now_us:
                self._publish_will(record)
        finally:
            services.registry.release(client_id)

    def _publish_will(self, record: SessionRecord) -> None:
        services = self._services
        assert record.will is not None
        services.sessions.publish_will(record)
        services.committer.batch.put_session(
            msgspec.structs.replace(record, will=None, will_at_us=0)
        )


async def cut_connections(services: Services) -> None:
    """At start, or when the store is there again: sessions that the store takes for connected
    and that nobody holds are offline.

    Wills fall due and expiry starts now, as after any lost connection. Sessions are counted on
    the way: nobody has counted what the last process, or a store that failed, has left.
    """
    offline = 0
    tally = services.session_counts
    tally.clear()
    for session in services.registry.live.values():
        tally.added(session.record.username)
    now_us = services.clock.now_us()
    services.pipeline.now_us = now_us
    last_offset = services.database.last_offset
    cut: list[SessionRecord] = []
    async for record in services.database.sessions():
        if record.client_id not in services.registry.live:
            offline += 1
            tally.found(record)
            services.ban_enforcer.found(record)
        if record.connected and not services.registry.is_busy(record.client_id):
            cut.append(record)
            if len(cut) >= DUE_PAGE:
                await _put_cut(services, cut, now_us=now_us, cut_offset=last_offset)
                cut = []
    await _put_cut(services, cut, now_us=now_us, cut_offset=last_offset)
    services.metrics.sessions_offline = offline


async def _put_cut(
    services: Services, records: list[SessionRecord], *, now_us: int, cut_offset: int
) -> None:
    batch = Batch()
    for record in records:
        will = record.will
        batch.put_session(
            msgspec.structs.replace(
                record,
                connected=False,
                changed_at_us=services.pipeline.wall_us(),
                will_at_us=will_due_us(will, disconnected_at_us=now_us, expiry_s=record.expiry_s)
                if will is not None
                else 0,
                expires_at_us=expires_at_us(now_us, record.expiry_s),
                cut_offset=cut_offset,
            )
        )
    if records:
        await services.committer.submit_aside(batch, services.pipeline.wall_us())
