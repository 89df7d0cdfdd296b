"""What the log, the private stream and the limits of a session say of messages on a topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from perdure.admin.records.explain import Finding
from perdure.broker.delivery.pending_limits import excess
from perdure.config.units import format_time
from perdure.model import Message, StoredSession, Subscription
from perdure.server.inspect import Stored
from perdure.session.pending import DeliveryProgress, PendingMessage, PendingMessages
from perdure.session.pending_pages import read_page
from perdure.session.subscriptions import SessionSubscriptions

if TYPE_CHECKING:
    from perdure.server.rules import Rules

EXPLAIN_MESSAGES_MAX: Final = 1000
"""Messages looked at to explain one topic."""

EXPLAIN_BYTES_MAX: Final = 16 * 1024 * 1024
"""Payload bytes read for it."""

BACKLOG_MAX: Final = 10_000
"""Messages of a session's backlog that are looked at to apply its limits."""

_BACK_US: Final = (1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000)
"""How far back the newest messages are looked for, before all of the log is read."""


async def newest(database: Stored, topic: str) -> list[Message]:
    """The newest recorded messages on a topic, in the log's order; an offset is a time."""
    last = database.last_offset
    for back_us in (*_BACK_US, last):
        page = await database.read(
            [topic],
            after_offset=max(0, last - back_us),
            until_offset=last,
            limit=EXPLAIN_MESSAGES_MAX,
            bytes_max=EXPLAIN_BYTES_MAX,
        )
        if page.messages:
            return page.messages
    return []


def of_this_kind(
    page: Sequence[Message],
    topic: str,
    *,
    publisher: str | None,
    qos: int | None,
    size: int | None,
    now_us: int,
) -> Message:
    """A message that is published now: as the newest one, but for what is given."""
    last = page[-1] if page else Message(topic, b"", 1)
    return Message(
        topic,
        last.payload if size is None else bytes(size),
        last.qos if qos is None else qos,
        last.retain,
        last.publisher if publisher is None else publisher,
        last.properties,
        last.expires_at_us,
        now_us,
    )


async def recorded(
    database: Stored,
    stored: StoredSession,
    matching: Sequence[Subscription],
    page: Sequence[Message],
    topic: str,
    now_us: int,
) -> Finding:
    """What the log has for the session on this topic.

    Args:
        database: where the log is.
        stored: the session.
        matching: its subscriptions that match.
        page: the newest messages on the topic.
        topic: the topic.
        now_us: wall time.
    """
    if not page:
        text = "no message on this topic is recorded: none was published with QoS 1 or 2"
        return Finding("record", True, "nothing_recorded", text)
    cursor = stored.cursor
    since = min(sub.since_offset for sub in matching)
    backfilling = any(sub.backfill is not None for sub in matching)
    last = page[-1]
    if last.offset <= since and last.offset > cursor.offset and not backfilling:
        text = "the last recorded message was published before the subscription was made"
        return Finding("record", False, "before_subscription", text)
    if last.offset <= min(since, stored.record.created_at_us) and not backfilling:
        text = "the last recorded message was published before the session was made"
        return Finding("record", False, "before_subscription", text)
    subscriptions = SessionSubscriptions(stored.record.client_id, stored.subscriptions)
    pending = PendingMessages(subscriptions, 0)
    beyond = [message for message in page if message.offset > cursor.offset]
    owed = [each.message for each in pending.page(beyond, []) if each.message is not None]
    fresh = [m for m in owed if not m.expires_at_us or m.expires_at_us > now_us]
    if (owed and not fresh) or 0 < last.expires_at_us <= now_us:
        # What was sent before its time was over is owed after it as well.
        expired, fresh = await _by_expiry(database, stored, topic, now_us)
        if expired and not fresh:
            text = f"{len(expired)} recorded on this topic, past their message expiry"
            return Finding("record", False, "message_expired", text)
        if expired and expired[-1].offset == last.offset:
            text = "the last recorded message is past its message expiry"
            return Finding("record", False, "message_expired", text)
    if fresh:
        more = " or more" if len(page) == EXPLAIN_MESSAGES_MAX else ""
        oldest = format_time(fresh[0].published_at_us)
        text = f"{len(fresh)}{more} not yet acknowledged on this topic, since {oldest}"
        return Finding("record", True, "owed", text)
    text = "every recorded message on this topic was delivered, dropped, or not for the session"
    return Finding("record", True, "settled", text)


async def addressed(database: Stored, stored: StoredSession, topic: str, now_us: int) -> Finding:
    """What the session's private stream has: shares of a group, what a backfill gave, and
    what was carried over from a dropped generation."""
    entries = await database.read_inbox(
        stored.record.client_id,
        after_offset=stored.cursor.offset,
        until_offset=database.last_offset,
        limit=EXPLAIN_MESSAGES_MAX,
    )
    here = [e.message for e in entries if e.message is not None and e.message.topic == topic]
    text = f"{len(here)} on this topic are addressed to the session and not yet acknowledged"
    if here and all(0 < message.expires_at_us <= now_us for message in here):
        _, fresh = await _by_expiry(database, stored, topic, now_us)
        if not fresh:
            text = f"{len(here)} on this topic are addressed to the session, past their expiry"
            return Finding("record", False, "message_expired", text)
    return Finding("record", True, "addressed" if here else "none_addressed", text)


def larger_than_queue(message: Message, rules: Rules) -> list[Finding]:
    """That a message alone is more than ``session.pending_bytes_max``."""
    bytes_max = rules.limits.pending_bytes_max
    if not 0 < bytes_max < len(message.payload):
        return []
    text = f"larger than session.pending_bytes_max ({bytes_max} bytes)"
    return [Finding("limits", False, "queue_full", text)]


async def backlog(
    database: Stored, stored: StoredSession, topic: str, rules: Rules
) -> list[Finding]:
    """What limits drop of the session's backlog when it is read, the oldest first.

    Args:
        database: where the log is.
        stored: the session.
        topic: asked for.
        rules: of the broker, with ``session.pending_*_max``.
    """
    limits = rules.limits
    if not (limits.pending_messages_max or limits.pending_bytes_max or limits.pending_age_max_s):
        return []
    owed = await _backlog_of(database, stored)
    dropped = owed[: excess([len(m.payload) for m in owed], limits)]
    kept = owed[len(dropped) :]
    old = [m for m in kept if rules.is_too_old(m)]
    here = sum(1 for m in owed if m.topic == topic)
    lost = sum(1 for m in dropped if m.topic == topic)
    too_old = sum(1 for m in old if m.topic == topic)
    found = []
    if dropped:
        text = f"the {len(dropped)} oldest of {len(owed)} owed messages are dropped when the client"
        text += f" comes back (session.pending_*_max), {lost} of {here} on this topic"
        found.append(Finding("limits", not here or lost < here, "queue_full", text))
    if old:
        text = f"{len(old)} owed messages are older than session.pending_age_max_s and are dropped,"
        text += f" {too_old} of {here} on this topic"
        found.append(Finding("limits", not here or lost + too_old < here, "too_old", text))
    return found


async def _backlog_of(database: Stored, stored: StoredSession) -> list[Message]:
    """The owed messages of the log that were not sent yet, oldest first."""
    progress = DeliveryProgress(stored.cursor, stored.record.cut_offset)
    return [
        each.message
        for each in await _pending_of(database, stored)
        if each.entry is None and each.message is not None and not progress.was_sent(each)
    ]


async def _by_expiry(
    database: Stored, stored: StoredSession, topic: str, now_us: int
) -> tuple[list[Message], list[Message]]:
    """What is owed on a topic: past its message expiry, and all else; each oldest first."""
    progress = DeliveryProgress(stored.cursor, stored.record.cut_offset)
    expired: list[Message] = []
    fresh: list[Message] = []
    for each in await _pending_of(database, stored):
        message = each.message
        if message is not None and message.topic == topic and not progress.is_settled(each):
            (expired if progress.is_past(each, now_us) else fresh).append(message)
    return expired, fresh


async def _pending_of(database: Stored, stored: StoredSession) -> list[PendingMessage]:
    """What is owed, of log and private stream; of ``BACKLOG_MAX`` that are looked at."""
    cursor = stored.cursor
    subscriptions = SessionSubscriptions(stored.record.client_id, stored.subscriptions)
    page = await read_page(
        database,
        subscriptions,
        durable=True,
        after=cursor.offset,
        until=database.last_offset,
        chunk=BACKLOG_MAX,
        bytes_max=EXPLAIN_BYTES_MAX,
    )
    return list(PendingMessages(subscriptions, cursor.serial).page(page.messages, page.entries))
