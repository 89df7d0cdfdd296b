"""Why a message on a topic is, or is not, delivered to a session.

Follows the way of a message: session, subscription, record, delivery. The database is only read;
what is in memory comes as ``LiveView``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import msgspec

from perdure.config.units import format_time
from perdure.model import SessionRecord, StoredSession, Subscription
from perdure.server.inspect import LiveView, Stored, state_of, unacknowledged
from perdure.topic.matching import intersects, matches
from perdure.topic.names import validate_topic_name

EXPLAIN_MESSAGES_MAX: Final = 1000
"""Messages looked at to explain one topic."""

EXPLAIN_BYTES_MAX: Final = 16 * 1024 * 1024
"""Payload bytes read for it."""

NEAR_MISSES_MAX: Final = 3
"""Subscriptions named when none matches."""


@final
class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at on a message's way.

    Attributes:
        check: session, subscription, record or delivery.
        ok: nothing in the way here.
        code: stable word for programs.
        detail: a sentence.
    """

    check: str
    ok: bool
    code: str
    detail: str


@final
class Explanation(msgspec.Struct, frozen=True):
    """Why a message on a topic is, or is not, delivered to a session.

    Attributes:
        client_id, topic: what was asked.
        verdict: code of the first finding that is in the way, or ``delivered``.
        reason: its sentence.
        findings: all, in the order of a message's way.
    """

    client_id: str
    topic: str
    verdict: str
    reason: str
    findings: list[Finding]


async def explain(
    database: Stored,
    client_id: str,
    topic: str,
    now_us: int,
    *,
    running: bool,
    live: LiveView | None = None,
) -> Explanation | None:
    """Follow a message on ``topic`` to a session; None if there is no such session.

    Raises:
        MqttError: ``topic`` is no topic name.
    """
    stored = await database.open_session(client_id)
    if stored is None:
        return None
    return await explain_session(database, stored, topic, now_us, running=running, live=live)


async def explain_session(
    database: Stored,
    stored: StoredSession,
    topic: str,
    now_us: int,
    *,
    running: bool,
    live: LiveView | None = None,
) -> Explanation:
    """The same for a session that was read, or that is in memory.

    Raises:
        MqttError: ``topic`` is no topic name.
    """
    validate_topic_name(topic, levels_max=65_536)
    findings = [_explain_session(stored.record, now_us, running=running)]
    current = [sub for sub in stored.subscriptions if not sub.until_offset]
    matching = [sub for sub in current if matches(sub.filter, topic)]
    findings += _explain_subscriptions(current, matching, topic, online=findings[0].ok)
    ordinary = [sub for sub in matching if sub.qos and not sub.group]
    if matching:
        inbox = await _explain_inbox(database, stored, topic)
        if inbox.code == "addressed" or any(sub.group for sub in matching):
            findings.append(inbox)
        if ordinary:
            record = await _explain_record(database, stored, ordinary, topic, now_us)
            if record.ok or inbox.code != "addressed":
                findings.append(record)
        findings.append(_explain_delivery(stored, live))
    # An offline client is the last reason: whatever else is in the way stays so when it is back.
    order = sorted((f for f in findings if not f.ok), key=lambda finding: finding.code == "offline")
    verdict, reason = "delivered", "nothing is in the way: messages on this topic are delivered"
    if order:
        verdict, reason = order[0].code, order[0].detail
    return Explanation(stored.record.client_id, topic, verdict, reason, findings)


def _explain_session(record: SessionRecord, now_us: int, *, running: bool) -> Finding:
    state = state_of(record, now_us, running=running)
    since = format_time(record.changed_at_us)
    if state == "connected":
        return Finding("session", True, "connected", f"connected since {since}")
    if state == "expired":
        text = f"the session expired at {format_time(record.expires_at_us)} and is about to go"
        return Finding("session", False, "expired", text)
    until = format_time(record.expires_at_us)
    kept = f"until {until}" if until else "for ever"
    text = f"the client is offline since {since}; its session is kept {kept}"
    return Finding("session", False, "offline", text)


def _explain_subscriptions(
    current: Sequence[Subscription],
    matching: Sequence[Subscription],
    topic: str,
    *,
    online: bool,
) -> list[Finding]:
    if not current:
        text = "the session has no subscription"
        return [Finding("subscription", False, "no_subscription", text)]
    if not matching:
        near = _near_misses(current, topic)
        also = f"; close to it: {', '.join(near)}" if near else ""
        text = f"none of its {len(current)} subscriptions matches the topic{also}"
        return [Finding("subscription", False, "no_match", text)]
    best = max(sub.qos for sub in matching)
    names = ", ".join(sub.name for sub in matching)
    found = [Finding("subscription", True, "match", f"matched by {names} with QoS {best}")]
    if all(sub.group for sub in matching):
        text = "the subscription is shared: each message goes to one member of the group only"
        found.append(Finding("subscription", True, "shared", text))
    elif best == 0:
        text = "subscribed with QoS 0: what comes while the client is offline is not kept for it"
        found.append(Finding("subscription", online, "qos0", text))
    fed = [sub for sub in matching if sub.feed is not None]
    if fed:
        text = f"{fed[0].name} is still given older messages; new ones follow after them"
        found.append(Finding("subscription", True, "feeding", text))
    return found


def _near_misses(current: Sequence[Subscription], topic: str) -> list[str]:
    """Filters that would match but for a usual slip: case, a slash at the end, ``$``."""
    wanted = topic.casefold().strip("/")
    found = []
    for sub in current:
        other = sub.filter.casefold().strip("/")
        same_but_for_case = matches(other, wanted) if wanted else False
        if same_but_for_case or intersects(sub.filter, f"{topic}/#"):
            found.append(sub.name)
        elif topic.startswith("$") and sub.filter[:1] in {"+", "#"}:
            found.append(f"{sub.name} (a leading wildcard does not match $-topics)")
    return found[:NEAR_MISSES_MAX]


async def _explain_record(
    database: Stored,
    stored: StoredSession,
    matching: Sequence[Subscription],
    topic: str,
    now_us: int,
) -> Finding:
    """What the log has for the session on this topic."""
    cursor = stored.cursor
    last = database.last_offset
    page = await database.read(
        [topic],
        after_offset=cursor.offset,
        until_offset=last,
        limit=EXPLAIN_MESSAGES_MAX,
        bytes_max=EXPLAIN_BYTES_MAX,
    )
    if not page.messages:
        seen = await database.count([topic], after_offset=0, until_offset=last, limit=1)
        if not seen:
            text = "no message on this topic is recorded: none was published with QoS 1 or 2"
            return Finding("record", False, "nothing_recorded", text)
        text = "every recorded message on this topic was delivered, or is older than the session"
        return Finding("record", True, "settled", text)
    since = min(sub.since_offset for sub in matching)
    reasons = {"before_subscription": 0, "no_local": 0, "message_expired": 0, "owed": 0}
    for message in page.messages:
        if message.offset <= since:
            reasons["before_subscription"] += 1
        elif all(sub.no_local for sub in matching) and (
            message.publisher == stored.record.client_id
        ):
            reasons["no_local"] += 1
        elif message.expires_at_us and message.expires_at_us <= now_us:
            reasons["message_expired"] += 1
        else:
            reasons["owed"] += 1
    if reasons["owed"]:
        more = " or more" if len(page.messages) == EXPLAIN_MESSAGES_MAX else ""
        oldest = format_time(page.messages[0].published_at_us)
        text = f"{reasons['owed']}{more} not yet acknowledged on this topic, since {oldest}"
        return Finding("record", True, "owed", text)
    words = {
        "before_subscription": "published before the subscription was made",
        "no_local": "published by the client itself, which asked for no local messages",
        "message_expired": "past their message expiry",
    }
    code = max(words, key=lambda word: reasons[word])
    text = f"{reasons[code]} recorded on this topic, {words[code]}"
    return Finding("record", False, code, text)


async def _explain_inbox(database: Stored, stored: StoredSession, topic: str) -> Finding:
    """What the session's private stream has: shares of a group, what a subscription is fed, and
    what was carried over from a dropped generation."""
    entries = await database.read_inbox(
        stored.record.client_id,
        after_offset=stored.cursor.offset,
        until_offset=database.last_offset,
        limit=EXPLAIN_MESSAGES_MAX,
    )
    count = sum(1 for e in entries if e.message is not None and e.message.topic == topic)
    text = f"{count} on this topic are addressed to the session and not yet acknowledged"
    return Finding("record", True, "addressed" if count else "none_addressed", text)


def _explain_delivery(stored: StoredSession, live: LiveView | None) -> Finding:
    """What is in the way between the log and the socket."""
    waiting = unacknowledged(stored) if live is None else live.inflight
    if live is None:
        text = f"{waiting} sent and not acknowledged by the client"
        return Finding("delivery", True, "unacknowledged" if waiting else "idle", text)
    if live.paused:
        text = "the client does not read: its socket is full"
        return Finding("delivery", False, "socket_full", text)
    if live.inflight >= live.inflight_max:
        text = f"the window is full: {live.inflight} sent and not acknowledged by the client"
        return Finding("delivery", False, "window_full", text)
    if live.catching_up:
        return Finding("delivery", True, "catching_up", "the session is reading the log")
    text = f"{waiting} of {live.inflight_max} in flight, {live.pending} waiting"
    return Finding("delivery", True, "flowing", text)
