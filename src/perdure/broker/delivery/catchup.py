"""Lagging sessions: reading from the log and the private stream until the live flow is reached.

In a database that keeps a queue for each durable session, the queue is read in place of the log:
it holds at least the messages that the session is owed, and ``SessionSubscriptions`` decides on
each of them as it does on those of the log, so the order and the serial numbers are the same.

The fence is ``dispatcher.offset``: what is recorded up to it was handed to every live session, so
a session whose position has come there is live from then on: no gap, no repeat, no overtaking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.broker.delivery.pending import PendingPage, merged, read_page
from perdure.errors import StorageError
from perdure.model import InboxEntry, Message
from perdure.mqtt.reason_codes import UNSPECIFIED_ERROR
from perdure.session.subscriptions import SessionSubscriptions

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.delivery.pending_limits import PendingLimits
    from perdure.broker.delivery.window_waiters import WindowWaiters


TURN_US: Final = 4_000
"""Time in a turn for further pages, of all sessions together; each has one page in any case."""

PAGE_MAX: Final = 4_096
"""Messages of one page at most, for a client that takes so many at once."""


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
        interest: SessionSubscriptions | None = None
        version = -1
        try:
            await self._pending_limits.measure(session)
            while session.is_open and session.lagging:
                await self._window_waiters.wait(session)
                if not session.is_open:
                    return
                if interest is None or version != session.subs_version:
                    if core.committer.sequences_late:
                        # What is sent goes by subscriptions that the log has.
                        await core.pipeline.committed()
                        if not session.is_open:
                            return
                    version = session.subs_version
                    interest = SessionSubscriptions(
                        session.client_id, [*session.subs.values(), *session.ended]
                    )
                core.pipeline.now_us = core.clock.now_us()
                await self._step(session, interest)
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

    async def _step(self, session: LiveSession, interest: SessionSubscriptions) -> None:
        """Read and offer one page; the session is live when there is no more."""
        core = self._core
        fence = core.dispatcher.offset
        after = session.position
        filters = interest.filters(after)
        begun_us = core.clock.monotonic_us()
        chunk = core.session_config.feed_chunk
        page = await read_page(
            core.database,
            session.client_id,
            filters,
            durable=session.durable,
            after=after,
            fence=fence,
            chunk=max(chunk, min(session.outbound.window_left(), PAGE_MAX)),
            bytes_max=core.session_config.outbound_buffer_bytes,
        )
        if filters and fence > after:
            elapsed_us = core.clock.monotonic_us() - begun_us
            core.metrics.storage_read_seconds.observe(elapsed_us)
        if not session.is_open or session.position != after:
            return
        sent = session.outbound.sent_serial
        self._offer(session, interest, page)
        sent = session.outbound.sent_serial - sent
        session.position = page.through
        if page.through >= core.dispatcher.offset:
            session.lagging = False
            session.outbound.lift(page.through)
            self._window_waiters.notify(session)
        if sent > 0:
            core.pipeline.admission.served(session, sent)
        core.pipeline.schedule()

    def _offer(
        self, session: LiveSession, interest: SessionSubscriptions, page: PendingPage
    ) -> None:
        limited = self._pending_limits.may_drop(session)
        if not page.entries:
            if limited:
                for message in page.messages:
                    self._offer_message(session, interest, message, limited)
            else:
                self._offer_runs(session, interest, page.messages)
            return
        for item in merged(page.messages, page.entries):
            if isinstance(item, InboxEntry):
                self._offer_entry(session, item)
            else:
                self._offer_message(session, interest, item, limited)

    def _offer_runs(
        self, session: LiveSession, interest: SessionSubscriptions, messages: list[Message]
    ) -> None:
        """Offer messages of the log: what follows each other and can be sent alike is one step."""
        at = 0
        while at < len(messages):
            message = messages[at]
            at += 1
            wanted = interest.wants(message)
            if wanted is None or not wanted.qos:
                continue
            room = 0
            if wanted.qos == 1 and not wanted.retain and not message.expires_at_us:
                room = session.room_to_send(message)
            if room < 2:
                session.offer(
                    message, wanted.qos, wanted.retain, wanted.identifiers, message.offset
                )
                continue
            run = [message]
            while len(run) < room and at < len(messages):
                following = messages[at]
                if following.expires_at_us:
                    break
                same = interest.wants(following)
                if (
                    same is None
                    or same.qos != 1
                    or same.retain
                    or same.identifiers != wanted.identifiers
                    or not session.may_have(following)
                ):
                    break
                run.append(following)
                at += 1
            # What comes after the connection is congested is offered again, one by one.
            at -= len(run) - session.deliver_run(run, wanted.identifiers)

    def _offer_message(
        self, session: LiveSession, interest: SessionSubscriptions, message: Message, limited: bool
    ) -> None:
        wanted = interest.wants(message)
        if wanted is None or not wanted.qos:
            return
        if limited and self._pending_limits.drops(session, message):
            return
        session.offer(message, wanted.qos, wanted.retain, wanted.identifiers, message.offset)

    def _offer_entry(self, session: LiveSession, entry: InboxEntry) -> None:
        session.inbox_until = max(session.inbox_until, entry.offset)
        if entry.serial:
            session.outbound.pass_to(entry.serial)
        message = entry.message
        if message is None:
            if not entry.serial and not session.outbound.was_settled(session.outbound.next_serial):
                # A tombstone (``disk_budget``): the client is told with the next message.
                session.drop_note += 1
            session.outbound.skip(entry.offset)
            session.moved()
            return
        if not entry.group_key and self._pending_limits.drops_entry(session, entry, message):
            return
        if entry.group_key and not session.outbound.was_settled(session.outbound.next_serial):
            session.group_entries[entry.offset] = entry
        session.offer(
            message, entry.qos, entry.retain, entry.identifiers, entry.offset, entry.group_key
        )
