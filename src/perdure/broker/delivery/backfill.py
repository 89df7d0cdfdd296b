"""Feeds: what a new subscription is given before it joins the live flow.

Stages of a backfill (``model.BackfillProgress``)::

    retained --> recorded messages after an offset --> joining --> live

* *retained*: the retained messages that match, in pages.
* *recorded*: the log from the backfill's offset, in pages; for a replay this is all of the
  past, after a long retained stage it is what was published meanwhile. What the log has dropped
  comes from an archive, if there is one (``BrokerCore.past``): a backfill *stands in the archive*
  while its offset is below the log's begin.
* *joining*: the log's end is reached. Messages given so far went into the private stream and may
  still stand in the dispatch queue, so a message that would overtake them there is put behind
  them as another entry (``reached``); when the last one has passed, the subscription is live.

Each page is one commit with the new state of the backfill, so a crash repeats and loses nothing.
Messages of QoS 0 are sent at once and never repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import msgspec

from perdure.broker.runtime.scheduler import run_eagerly
from perdure.errors import StorageError
from perdure.model import BackfillProgress, Message, Subscription, combine
from perdure.mqtt.reason_codes import UNSPECIFIED_ERROR
from perdure.topic.names import is_wildcard

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.inbox import Inbox
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.delivery.window_waiters import WindowWaiters

SCAN_FACTOR: Final = 8
"""Retained topics looked at for each one that a page may return."""

NO_ARCHIVE_HINT: Final = "no archive is set here (pipeline.tables.place): each node needs its own"

AT_ONCE: Final = 4
"""Backfills that read a page in one turn by themselves; of more, some have a step of each turn."""


class SysTopicValues(Protocol):
    """Retained messages that live in memory: ``$SYS``."""

    def retained(self, topic_filter: str) -> list[Message]:
        """The current values whose topic matches a filter."""
        ...


@final
class Backfill:
    """Runs the backfills of connected sessions."""

    def __init__(
        self, core: BrokerCore, *, inbox: Inbox, sys: SysTopicValues, window_waiters: WindowWaiters
    ) -> None:
        self._core = core
        self._inbox: Inbox = inbox
        self._sys: SysTopicValues = sys
        self._window_waiters: WindowWaiters = window_waiters
        self._running: set[tuple[LiveSession, str]] = set()
        """Sessions and subscriptions that are given what they want."""
        self._begun_before: set[tuple[LiveSession, str]] = set()
        """Those of them that an earlier connection was given some of, which no progress tells if
        a crash has taken that."""

    async def may_have_retained(self, topic_filter: str) -> bool:
        """Whether a retained message can match a filter: certain for one without wildcards.

        What is in the open batch does not count: it has not been handed out yet, so a subscription
        that is made now gets it with the live flow.
        """
        core = self._core
        if topic_filter.startswith("$SYS"):
            return True
        if not core.database.retained_count:
            return False
        if is_wildcard(topic_filter):
            return True
        return await core.database.get_retained(topic_filter) is not None

    def start(self, session: LiveSession, name: str) -> None:
        """Run the rest of a subscription's backfill; one that runs goes on with what there is now.

        A client may subscribe again and again before it has what it asked for first.
        """
        if (session, name) not in self._running:
            run_eagerly(self._core.scheduler, self._run(session, name), name="backfill")

    def resume(self, session: LiveSession, name: str) -> None:
        """As ``start``, for one that an earlier connection has begun."""
        if session.record.cut_offset:
            self._begun_before.add((session, name))
        self.start(session, name)

    async def pass_offset(self, session: LiveSession, offset: int) -> None:
        """Give all that backfills have up to an offset of the log, which is to be dropped, whether
        the client has room or not: it is read from the private stream when there is."""
        core = self._core
        for name in list(session.subs):
            while session.is_open:
                sub = session.subs.get(name)
                if sub is None or name in session.joining:
                    break
                progress = self.passed_on(session.client_id, sub, offset)
                if progress is None:
                    break
                session.fall_behind(core.dispatcher.offset)
                core.pipeline.now_us = core.clock.now_us()
                if progress is not sub.backfill:
                    self._put(session, sub, progress)
                if progress.retained:
                    await self._retained_page(session, name)
                else:
                    await self._recorded_page(session, name)
                await core.pipeline.committed()
                await core.yield_to_loop()

    def stands_in_archive(self, progress: BackfillProgress) -> bool:
        """Whether the next page of recorded messages is the archive's."""
        return progress.after_offset < self._core.seam()

    def passed_on(self, client_id: str, sub: Subscription, offset: int) -> BackfillProgress | None:
        """From where a backfill has to be given what the log has up to an offset, which is to be
        dropped; None = from nowhere.

        One that stands in the archive gets it from there: else it would have to leave out the rest
        of the archive. It does so where the archive is not known to have what the session is owed
        since it has subscribed.
        """
        progress = sub.backfill
        if progress is None or progress.after_offset >= offset:
            return None
        if not self.stands_in_archive(progress):
            return self._without_archive(client_id, sub, progress)
        core = self._core
        assert core.past is not None
        is_past = offset <= sub.since_offset
        if is_past or core.past.has(sub.filter, offset, last_offset=core.database.last_offset):
            return None
        hint = "the archive is not known to have what retention drops: retention.keep_for"
        return self._cut_short(client_id, sub, progress, hint=hint)

    def _cut_short(
        self, client_id: str, sub: Subscription, progress: BackfillProgress, *, hint: str
    ) -> BackfillProgress:
        """Say that a backfill leaves out what there is up to the log's begin; what follows."""
        core = self._core
        before = core.before_log()
        core.metrics.replays_cut_short += 1
        core.log.warning(
            "replay.cut_short",
            client_id=client_id,
            filter=sub.filter,
            after_offset=progress.after_offset,
            until_offset=before,
            hint=hint,
        )
        return msgspec.structs.replace(progress, after_offset=before)

    def _without_archive(
        self, client_id: str, sub: Subscription, progress: BackfillProgress
    ) -> BackfillProgress:
        """How a backfill goes on that needs an archive and finds none: another node has one, or
        there was one before. Any other is as it was."""
        if progress.after_offset >= self._core.before_log():
            return progress
        return self._cut_short(client_id, sub, progress, hint=NO_ARCHIVE_HINT)

    def join_all(self, session: LiveSession) -> None:
        """All that the backfills gave has been dispatched: what was joining is live."""
        for name in session.joining:
            self._make_live(session, session.subs[name], since_offset=session.inbox_until)
        session.joining.clear()

    def reached(
        self, session: LiveSession, sub: Subscription, message: Message
    ) -> Subscription | None:
        """A dispatched message matches a subscription that is still backfilled.

        Returns:
            The subscription if it is live from this message on; None if the message comes to
            the session in another way.
        """
        name = sub.name
        if name not in session.joining:
            return None
        if not session.inbox_queued:
            session.joining.pop(name, None)
            return self._make_live(session, sub, since_offset=message.offset - 1)
        self._give(session, sub, message, retained=False)
        self._put(session, sub, BackfillProgress(False, "", 0, message.offset))
        return None

    async def _run(self, session: LiveSession, name: str) -> None:
        self._running.add((session, name))
        try:
            await self._feed(session, name)
        except StorageError as error:
            # The backfill goes on from what is stored when the client comes again.
            self._core.read_failed(error, client_id=session.client_id)
            if session.is_open:
                session.connection.storage_lost(UNSPECIFIED_ERROR)
        except Exception as error:  # noqa: BLE001 - it costs the one session
            session.failed(error, "backfill")
        finally:
            self._running.discard((session, name))
            self._begun_before.discard((session, name))

    async def _feed(self, session: LiveSession, name: str) -> None:
        core = self._core
        while session.is_open:
            sub = session.subs.get(name)
            if sub is None or sub.backfill is None or name in session.joining:
                return
            await self._window_waiters.wait_live(session)
            if session.backfilling > 1 or len(self._running) > AT_ONCE:
                # The backfills of thousands of filters would each read a page in this turn, and so
                # would those of many sessions.
                await core.turn_budget.step(session)
            if not session.is_open or session.subs.get(name) is not sub:
                continue
            core.pipeline.now_us = core.clock.now_us()
            if sub.backfill.retained:
                await self._retained_page(session, name)
            elif self.stands_in_archive(sub.backfill):
                await self._archived_page(session, name)
            else:
                progress = self._without_archive(session.client_id, sub, sub.backfill)
                if progress is not sub.backfill:
                    self._put(session, sub, progress)
                await self._recorded_page(session, name)
            core.pipeline.schedule()
            await core.yield_to_loop()

    async def _retained_page(self, session: LiveSession, name: str) -> None:
        core = self._core
        sub = session.subs[name]
        progress = sub.backfill
        assert progress is not None
        chunk = core.session_config.feed_chunk
        page = await core.database.read_retained(
            sub.filter,
            after_topic=progress.retained_after,
            limit=chunk,
            scan_max=chunk * SCAN_FACTOR,
        )
        if not session.is_open or session.subs.get(name) is not sub:
            return
        if not progress.retained_after:
            for message in self._sys.retained(sub.filter):
                self._give(session, sub, message, retained=True)
        for message in page.messages:
            # One that was published since comes otherwise: a recorded one in the next stage, one
            # of QoS 0 has been dispatched.
            if message.offset <= (
                progress.after_offset if message.qos else progress.retained_until
            ):
                self._give(session, sub, message, retained=True)
        if page.next_after is not None:
            following = BackfillProgress(
                True, page.next_after, progress.retained_until, progress.after_offset
            )
        else:
            following = BackfillProgress(False, "", 0, progress.after_offset)
        self._put(session, sub, following)

    async def _archived_page(self, session: LiveSession, name: str) -> None:
        core = self._core
        sub = session.subs[name]
        progress = sub.backfill
        assert progress is not None
        assert core.past is not None

        def is_wanted() -> bool:
            return session.is_open and session.subs.get(name) is sub

        page = await core.past.read(
            session.client_id,
            sub.filter,
            after_offset=progress.after_offset,
            # It may have more, and what the log has comes from there.
            until_offset=core.seam(),
            is_wanted=is_wanted,
        )
        if page is None or not is_wanted():
            return
        core.pipeline.now_us = core.clock.now_us()
        for message in page.messages:
            self._give(session, sub, message, retained=False)
        self._put(session, sub, BackfillProgress(False, "", 0, page.through_offset))

    async def _recorded_page(self, session: LiveSession, name: str) -> None:
        core = self._core
        sub = session.subs[name]
        progress = sub.backfill
        assert progress is not None
        fence = core.dispatcher.offset
        if progress.after_offset < fence:
            begun_us = core.clock.monotonic_us()
            page = await core.database.read(
                [sub.filter],
                after_offset=progress.after_offset,
                until_offset=fence,
                limit=core.session_config.feed_chunk,
                bytes_max=core.session_config.outbound_buffer_bytes,
            )
            elapsed_us = core.clock.monotonic_us() - begun_us
            core.metrics.storage_read_seconds.observe(elapsed_us)
            if not session.is_open or session.subs.get(name) is not sub:
                return
            if self.stands_in_archive(progress):
                return  # what was to be read was dropped meanwhile, perhaps before it was read
            for message in page.messages:
                self._give(session, sub, message, retained=False)
            if page.messages:
                core.pipeline.replayed(page.messages)
            self._put(session, sub, BackfillProgress(False, "", 0, page.through_offset))
            if page.through_offset < core.dispatcher.offset:
                return
        self._join(session, name)

    def _join(self, session: LiveSession, name: str) -> None:
        """The end of the log is reached: live now, or once what was given has been dispatched."""
        fence = self._core.dispatcher.offset
        if not session.inbox_queued:
            self._make_live(session, session.subs[name], since_offset=fence)
        else:
            session.joining[name] = None

    def _make_live(
        self, session: LiveSession, sub: Subscription, *, since_offset: int
    ) -> Subscription:
        core = self._core
        live = msgspec.structs.replace(sub, backfill=None, since_offset=since_offset)
        session.subs[sub.name] = live
        session.subs_version += 1
        session.backfilling -= 1
        core.router.put(session, live)
        if session.durable:
            batch = core.committer.batch
            epoch = session.record.epoch
            if sub.since_offset != since_offset:
                batch.delete_subscription(session.client_id, sub, epoch=epoch)
            batch.put_subscription(session.client_id, live, epoch=epoch)
            if core.committer.sequences_late:
                # Messages that have their place already would be sent before this has: it reads
                # them from the log when it has.
                session.fall_behind(since_offset)
        core.pipeline.schedule()
        return live

    def _put(self, session: LiveSession, sub: Subscription, progress: BackfillProgress) -> None:
        """Keep how far a backfill has come, in the batch of what it gave."""
        core = self._core
        following = msgspec.structs.replace(sub, backfill=progress)
        session.subs[sub.name] = following
        core.router.put(session, following)
        if session.durable:
            core.committer.batch.put_subscription(
                session.client_id, following, epoch=session.record.epoch
            )

    def _give(
        self, session: LiveSession, sub: Subscription, message: Message, *, retained: bool
    ) -> None:
        core = self._core
        now_us = core.pipeline.now_us
        if message.expires_at_us and message.expires_at_us <= now_us:
            return
        if sub.where and not core.router.evaluation.holds(sub.where, message):
            return
        options = combine([sub], message, session.client_id)
        if options is None:
            return
        authorizer = core.authorizer
        if not authorizer.allow_all and not authorizer.deliver(
            session.identity, message.topic, message.publisher
        ):
            return
        # [MQTT-3.3.1-8] retained on subscribe: RETAIN 1; [MQTT-3.3.1-12] else as published
        # only if the subscription says so.
        retain = retained or options.retain
        identifiers = options.identifiers
        if options.qos:
            begun_before = (session, sub.name) in self._begun_before
            self._inbox.give(
                session,
                message,
                qos=options.qos,
                retain=retain,
                identifiers=identifiers,
                # [MQTT-3.3.1-1] What a page gave is sent before the store has it for certain.
                again=begun_before and message.offset <= session.record.cut_offset,
            )
        else:
            session.give_qos0(message, retain, identifiers)
