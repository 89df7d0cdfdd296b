"""Limits on what waits for one session: by count, bytes and age.

A session's backlog is what the log holds beyond its cursor, so a limit is applied when the
session is about to read it: the oldest messages that were never sent are settled unsent. They are
counted, shown in the session's record, and the client is told with the next message
(MQTT 5.0: user property ``perdure-dropped``). What was sent and not acknowledged is never dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec

from perdure.broker.delivery.pending import rows_of
from perdure.config.schema import SessionConfig
from perdure.model import InboxEntry, Message
from perdure.session.pending import PendingMessages
from perdure.session.pending_pages import read_pages
from perdure.session.subscriptions import SessionSubscriptions

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.live_session import LiveSession


def excess(sizes: list[int], config: SessionConfig) -> int:
    """How many of the oldest messages of a backlog are too many.

    Args:
        sizes: payload bytes of each, oldest first.
        config: ``pending_messages_max`` and ``pending_bytes_max``; 0 = no bound.
    """
    drop = 0
    if config.pending_messages_max and len(sizes) > config.pending_messages_max:
        drop = len(sizes) - config.pending_messages_max
    if config.pending_bytes_max:
        total = sum(sizes[drop:])
        while drop < len(sizes) and total > config.pending_bytes_max:
            total -= sizes[drop]
            drop += 1
    return drop


def is_too_old(published_us: int, config: SessionConfig, now_us: int) -> bool:
    """Whether ``pending_age_max_s`` drops a message that was never sent."""
    age_s = config.pending_age_max_s
    return age_s > 0 and published_us + age_s * 1_000_000 < now_us


@final
class PendingLimits:
    """Applies ``session.pending_*_max``."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core

    async def measure(self, session: LiveSession) -> None:
        """Find how many of the oldest pending messages are too many, before they are read."""
        core = self._core
        config = core.session_config
        if not config.pending_messages_max and not config.pending_bytes_max:
            return
        subscriptions = SessionSubscriptions(
            session.client_id, [*session.subs.values(), *session.ended]
        )
        pages = read_pages(
            rows_of(core.database, session.client_id, durable=session.durable),
            subscriptions,
            durable=False,  # the private stream has no such limit
            after=session.position,
            until=core.dispatcher.offset,
            chunk=core.session_config.feed_chunk,
            bytes_max=0,
        )
        sizes: list[int] = []
        pending = PendingMessages(subscriptions, 0)
        async for page in pages:
            for each in pending.page(page.messages, page.entries):
                assert each.message is not None
                sizes.append(len(each.message.payload))
            await core.yield_to_loop()
            if not session.is_open:
                return
        session.to_drop = excess(sizes, config)

    def may_drop(self, session: LiveSession) -> bool:
        """Whether ``drops`` has to be asked for the messages that are read next."""
        return session.to_drop > 0 or self._core.session_config.pending_age_max_s > 0

    def drops(self, session: LiveSession, message: Message) -> bool:
        """Whether a limit drops the next message of a session's order; then it is settled."""
        outbound = session.outbound
        if outbound.was_sent(outbound.next_serial):
            if session.to_drop:
                session.to_drop -= 1
            return False
        if session.to_drop:
            session.to_drop -= 1
            self._core.metrics.messages_dropped_queue_full += 1
        elif self.is_old(message, self._core.pipeline.now_us):
            self._core.metrics.messages_dropped_expired += 1
        else:
            return False
        self._drop(session, message.offset)
        return True

    def drops_entry(self, session: LiveSession, entry: InboxEntry, message: Message) -> bool:
        """Whether a limit drops an entry of the private stream. Only age can: its own, as if
        its message had expired, or the broker's limit."""
        outbound = session.outbound
        if outbound.was_sent(outbound.next_serial):
            return False
        if 0 < entry.forget_at_us <= self._core.pipeline.now_us:
            self._core.metrics.messages_dropped_expired += 1
            outbound.skip(entry.offset)
            session.moved()
            return True
        if not self.is_old(message, self._core.pipeline.now_us):
            return False
        self._core.metrics.messages_dropped_expired += 1
        self._drop(session, entry.offset)
        return True

    def is_old(self, message: Message, now_us: int) -> bool:
        """Whether ``pending_age_max_s`` drops a message that was never sent; in steady time."""
        core = self._core
        config = core.session_config
        if not config.pending_age_max_s:
            return False
        published_us = message.published_at_us
        if not core.committer.steady_times:
            published_us = core.clock.steady_at(published_us, message.offset)
        return is_too_old(published_us, config, now_us)

    def _drop(self, session: LiveSession, offset: int) -> None:
        session.outbound.skip(offset)
        session.drop_note += 1
        session.record = msgspec.structs.replace(
            session.record, dropped_count=session.record.dropped_count + 1
        )
        session.moved()
