"""Lagging sessions: reading from the log and the private stream until the live flow is reached.

What is read, in which order, and which of it the session gets, is for ``session.pending`` to say.

The fence is ``dispatcher.offset``: what is recorded up to it was handed to every live session, so
a session whose position has come there is live from then on: no gap, no repeat, no overtaking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.broker.delivery.pending import rows_of
from perdure.errors import StorageError
from perdure.model import InboxEntry
from perdure.mqtt.reason_codes import UNSPECIFIED_ERROR
from perdure.session.pending import PendingMessages
from perdure.session.pending_pages import PendingPage, read_page
from perdure.session.subscriptions import SessionSubscriptions

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.delivery.pending_limits import PendingLimits
    from perdure.broker.delivery.window_waiters import WindowWaiters


TURN_US: Final = 4_000
"""Time in a turn for further pages, of all sessions together; each has one page in any case."""

PAGE_MAX: Final = 1_024
"""Messages of one page at most, for a client that takes so many at once: some 2 ms."""


@final
class CatchUp:
    """One task for each lagging session."""

    def __init__(
        self, core: BrokerCore, *, pending_limits: PendingLimits, window_waiters: WindowWaiters
    ) -> None:
        self._core = core
        self._pending_limits: PendingLimits = pending_limits
        self._window_waiters: WindowWaiters = window_waiters
        self._turn: int = 0
        """The turn in which pages were read last."""
        self._until_us: int = 0
        """Up to when further pages are read in it, monotonic."""

    def start(self, session: LiveSession) -> None:
        """Begin to read for a lagging session, unless that goes on already."""
        if not session.catching_up:
            session.catching_up = True
            self._core.scheduler.spawn(self._run(session), name="catch-up")

    async def _run(self, session: LiveSession) -> None:
        core = self._core
        subscriptions: SessionSubscriptions | None = None
        version = -1
        try:
            await self._pending_limits.measure(session)
            while session.is_open and session.lagging:
                await self._window_waiters.wait(session)
                if not session.is_open:
                    return
                if subscriptions is None or version != session.subs_version:
                    if core.committer.sequences_late:
                        # What is sent goes by subscriptions that the log has.
                        await core.pipeline.committed()
                        if not session.is_open:
                            return
                    version = session.subs_version
                    subscriptions = SessionSubscriptions(
                        session.client_id, [*session.subs.values(), *session.ended]
                    )
                core.pipeline.now_us = core.clock.now_us()
                await self._step(session, subscriptions)
                if session.lagging and not self._goes_on(session):
                    await core.yield_to_loop()
        except StorageError as error:
            # The client comes again for what it is owed; others may be able to read theirs.
            core.read_failed(error, client_id=session.client_id)
            if session.is_open:
                session.connection.storage_lost(UNSPECIFIED_ERROR)
        except Exception as error:  # noqa: BLE001 - it costs the one session
            session.failed(error, "catch-up")
        finally:
            session.catching_up = False

    def _goes_on(self, session: LiveSession) -> bool:
        """Whether a session that has had its page may have another one in this turn."""
        pipeline = self._core.pipeline
        now_us = self._core.clock.monotonic_us()
        if pipeline.number != self._turn:
            self._turn = pipeline.number
            self._until_us = now_us + TURN_US
        return now_us < self._until_us and session.has_room()

    async def _step(self, session: LiveSession, subscriptions: SessionSubscriptions) -> None:
        """Read and offer one page; the session is live when there is no more."""
        core = self._core
        fence = core.dispatcher.offset
        after = session.position
        begun_us = core.clock.monotonic_us()
        chunk = min(core.session_config.feed_chunk, session.pending_most())
        page = await read_page(
            rows_of(core.database, session.client_id, durable=session.durable),
            subscriptions,
            durable=session.durable,
            after=after,
            until=fence,
            chunk=max(chunk, min(session.outbound.catch_up_left(), PAGE_MAX)),
            bytes_max=core.session_config.outbound_buffer_bytes,
        )
        if page.of_log:
            elapsed_us = core.clock.monotonic_us() - begun_us
            core.metrics.storage_read_seconds.observe(elapsed_us)
        if not session.is_open or session.position != after or session.stands_still:
            return
        sent = session.outbound.sent_serial
        self._offer(session, subscriptions, page)
        sent = session.outbound.sent_serial - sent
        session.position = page.through
        if page.through >= core.dispatcher.offset:
            session.lagging = False
            session.outbound.lift(page.through)
            self._window_waiters.notify(session)
        if sent > 0:
            core.pipeline.admission.served(session, sent)
            if page.messages:
                core.pipeline.replayed(page.messages)
        core.pipeline.schedule()

    def _offer(
        self, session: LiveSession, subscriptions: SessionSubscriptions, page: PendingPage
    ) -> None:
        limits = self._pending_limits
        limited = limits.may_drop(session)
        pending = PendingMessages(subscriptions, session.outbound.next_serial - 1)
        pending.page(page.messages, page.entries)
        while pending.advance():
            message, options = pending.message, pending.options
            if message is None or options is None:
                assert pending.entry is not None
                self._offer_entry(session, pending.entry)
                continue
            if limited:
                if limits.drops(session, message):
                    continue
            elif (
                options.qos == 1
                and not options.retain
                and not message.expires_at_us
                and not session.outbound.pending
            ):
                room = session.room_to_send(message, catches_up=True)
                if room > 1:
                    self._offer_run(session, pending, options.identifiers, room)
                    continue
            session.offer(message, options.qos, options.retain, options.identifiers, message.offset)

    def _offer_run(
        self,
        session: LiveSession,
        pending: PendingMessages,
        identifiers: tuple[int, ...],
        room: int,
    ) -> None:
        """Offer messages that follow each other and can be sent alike as one step."""
        run = pending.run(room)
        taken = 1
        while taken < len(run) and session.may_have(run[taken]):
            taken += 1
        # What comes after the connection is congested, or may not be had, is offered one by one.
        offered = session.deliver_run(run if taken == len(run) else run[:taken], identifiers)
        pending.give_back(len(run) - offered)

    def _offer_entry(self, session: LiveSession, entry: InboxEntry) -> None:
        """Offer an entry of the private stream."""
        session.inbox_until = max(session.inbox_until, entry.offset)
        if entry.serial:
            session.outbound.pass_to(entry.serial)
        message = entry.message
        if message is None:
            # That of a group's entry says that the group has it back (``reclaim``), and any other
            # one that retention has taken it (``disk_budget``): the client is told of that.
            is_lost = not (entry.serial or entry.group_key)
            if is_lost and not session.outbound.was_settled(session.outbound.next_serial):
                session.drop_note += 1
            session.outbound.skip(entry.offset)
            session.moved()
            return
        if not entry.group_key and self._pending_limits.drops_entry(session, entry, message):
            return
        if entry.group_key and not session.outbound.was_settled(session.outbound.next_serial):
            runs = session.group_runs
            # Those that were dispatched while it was behind are there.
            if not runs or runs[-1][-1].offset < entry.offset:
                session.hold_given([entry])
        session.offer(
            message, entry.qos, entry.retain, entry.identifiers, entry.offset, entry.group_key
        )
