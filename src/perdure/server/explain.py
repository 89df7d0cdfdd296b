"""Why a message on a topic is, or is not, delivered to a session.

Follows the way of a message: session, subscription, rights, message, record, limits, delivery. The
database is only read; what is in memory comes as ``LiveView``, and what a running broker decides
by as ``Rules``. The verdict is about the message that was asked for, or one like the last that is
recorded on the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.admin.records.explain import ANY, Explanation, Finding, What
from perdure.admin.records.sessions import LiveView
from perdure.config.units import format_time
from perdure.content import fulfils
from perdure.model import Message, SessionRecord, StoredSession, Subscription, combine
from perdure.server.explain_record import (
    addressed,
    backlog,
    newest,
    of_this_kind,
    recorded,
)
from perdure.server.inspect import (
    Stored,
    deadline,
    held_subscription,
    state_of,
    unacknowledged,
)
from perdure.session.head import unacknowledged_head
from perdure.session.pending_pages import oldest_pending
from perdure.topic.matching import intersects, matches
from perdure.topic.names import validate_topic_name

if TYPE_CHECKING:
    from perdure.server.rules import Rules

NEAR_MISSES_MAX: Final = 3
"""Subscriptions named when none matches."""

MEMBERS_NAMED_MAX: Final = 3


async def explain(
    database: Stored,
    client_id: str,
    topic: str,
    now_us: int,
    *,
    running: bool,
    live: LiveView | None = None,
    what: What = ANY,
) -> Explanation | None:
    """Follow a message on ``topic`` to a session; None if there is no such session.

    Raises:
        MqttError: ``topic`` is no topic name.
    """
    stored = await database.open_session(client_id)
    if stored is None:
        return None
    return await explain_session(
        database, stored, topic, now_us, running=running, live=live, what=what
    )


async def explain_session(
    database: Stored,
    stored: StoredSession,
    topic: str,
    now_us: int,
    *,
    running: bool,
    live: LiveView | None = None,
    rules: Rules | None = None,
    what: What = ANY,
    skew_us: int = 0,
) -> Explanation:
    """Explain a session that was read, or that is in memory.

    Args:
        database: where it is.
        stored: the session.
        topic: asked for.
        now_us: steady time; without a broker that tells it, wall time.
        running: see ``state_of``.
        live: what memory knows of it.
        rules: of a running broker.
        what: the message.
        skew_us: what the wall clock is ahead of steady time.

    Raises:
        MqttError: ``topic`` is no topic name.
    """
    validate_topic_name(topic, levels_max=65_536)
    findings = [_explain_session(stored.record, now_us, running=running, skew_us=skew_us)]
    online = findings[0].ok
    if rules is not None and rules.ban():
        text = f"the client is banned ({rules.ban()}) and cannot connect"
        findings.append(Finding("session", False, "banned", text))
    current = [sub for sub in stored.subscriptions if not sub.until_offset]
    matching = [sub for sub in current if matches(sub.filter, topic)]
    page = await newest(database, topic)
    message = of_this_kind(
        page, topic, publisher=what.publisher, qos=what.qos, size=what.size, now_us=now_us
    )
    findings += _explain_subscriptions(current, matching, topic, message, rules, online=online)
    if any(sub.where for sub in matching):
        fulfilled, finding = _explain_content(matching, page)
        findings.append(finding)
        matching = fulfilled or matching
    if matching:
        publisher = await database.open_session(message.publisher) if message.publisher else None
        findings += _explain_rights(topic, message, rules, publisher)
        findings += _explain_message(stored, matching, message, rules, online=online)
        inbox = await addressed(database, stored, topic)
        if inbox.code == "addressed" or any(sub.group for sub in matching):
            findings.append(inbox)
        if any(sub.qos and not sub.group for sub in matching):
            found = await recorded(database, stored, matching, page, topic, now_us)
            if what != ANY and not found.ok:
                # What became of others says nothing of a message that is yet to be published.
                found = msgspec.structs.replace(found, ok=True)
            if found.ok or inbox.code != "addressed":
                findings.append(found)
        if rules is not None and (not online or (live is not None and live.catching_up)):
            findings += await backlog(database, stored, topic, message, rules)
        findings.append(_explain_delivery(stored, live))
        findings += await _explain_head(database, stored)
    return _concluded(stored.record.client_id, topic, findings)


def _concluded(client_id: str, topic: str, findings: list[Finding]) -> Explanation:
    # An offline client is the last reason: whatever else is in the way stays so when it is back.
    order = sorted((f for f in findings if not f.ok), key=lambda finding: finding.code == "offline")
    verdict, reason = "delivered", "nothing is in the way: messages on this topic are delivered"
    uncertain = next((f for f in findings if f.code == "shared_with_others"), None)
    if order:
        verdict, reason = order[0].code, order[0].detail
        nothing = next((f for f in findings if f.code == "nothing_recorded"), None)
        if verdict == "offline" and nothing is not None:
            reason = f"{reason}; {nothing.detail}"
    elif uncertain is not None:
        verdict, reason = "shared", uncertain.detail
    return Explanation(client_id, topic, verdict, reason, findings)


def _explain_session(record: SessionRecord, now_us: int, *, running: bool, skew_us: int) -> Finding:
    state = state_of(record, now_us, running=running)
    since = format_time(record.changed_at_us)
    until = deadline(record.expires_at_us, skew_us)
    if state == "connected":
        return Finding("session", True, "connected", f"connected since {since}")
    if state == "expired":
        text = f"the session expired at {until} and is about to go"
        return Finding("session", False, "expired", text)
    kept = f"until {until}" if until else "for ever"
    text = f"the client is offline since {since}; its session is kept {kept}"
    return Finding("session", False, "offline", text)


def _explain_subscriptions(
    current: Sequence[Subscription],
    matching: Sequence[Subscription],
    topic: str,
    message: Message,
    rules: Rules | None,
    *,
    online: bool,
) -> list[Finding]:
    refused = ""
    if rules is not None and not rules.may_subscribe(topic):
        refused = "; the ACL does not let the client subscribe to the topic"
    if not current:
        text = f"the session has no subscription{refused}"
        return [Finding("subscription", False, "no_subscription", text)]
    if not matching:
        near = _near_misses(current, topic)
        also = f"; close to it: {', '.join(near)}{refused}" if near else refused
        text = f"none of its {len(current)} subscriptions matches the topic{also}"
        return [Finding("subscription", False, "no_match", text)]
    best = max(sub.qos for sub in matching)
    names = ", ".join(sub.name for sub in matching)
    found = [Finding("subscription", True, "match", f"matched by {names} with QoS {best}")]
    own = [sub for sub in matching if not sub.group]
    waits = any(sub.qos for sub in own)
    if not own or (len(own) < len(matching) and not online and not waits):
        # A group's messages wait in the log, whatever the QoS of its members.
        shared = [sub for sub in matching if sub.group]
        found += _explain_group(shared, message, rules, online=online)
    elif not waits:
        text = "subscribed with QoS 0: what comes while the client is offline is not kept for it"
        found.append(Finding("subscription", online, "qos0", text))
    backfilled = [sub for sub in matching if sub.backfill is not None]
    if backfilled:
        found.append(_explain_backfill(backfilled[0], rules))
    return found


def _explain_backfill(sub: Subscription, rules: Rules | None) -> Finding:
    """What a subscription is given before the message."""
    held = held_subscription(sub, seam=0 if rules is None else rules.seam)
    if rules is None or held.backfilling != "archived":
        text = f"{sub.name} is still given older messages; new ones follow after them"
        return Finding("subscription", True, "backfilling", text)
    text = (
        f"{sub.name} is still given older messages, of the archive behind offset "
        f"{held.given_offset} ({held.given_at}); those of the log and new ones follow after them"
    )
    if rules.archive_problem:
        text += f"; it waits, for the archive is away: {rules.archive_problem}"
    return Finding("subscription", not rules.archive_problem, "in_archive", text)


def _explain_group(
    matching: Sequence[Subscription],
    message: Message,
    rules: Rules | None,
    *,
    online: bool,
) -> list[Finding]:
    """Nothing but these shared subscriptions brings the message to the client."""
    text = "the subscription is shared: each message goes to one member of the group only"
    found = [Finding("subscription", True, "shared", text)]
    if rules is None:
        return found
    others = [rules.others(sub.group_key, message) for sub in matching]
    if not online and all(able or unable for able, unable in others):
        names = _names(name for able, _ in others for name in able)
        if names:
            text = f"the client is offline, and the group's messages go to {names}"
            found.append(Finding("subscription", False, "shared_elsewhere", text))
        else:
            names = _names(name for _, unable in others for name in unable)
            text = f"the client is offline, and passed over is what no connected member ({names})"
            text += " may read or has room for in its Maximum Packet Size"
            found.append(Finding("subscription", False, "passed_over", text))
    elif online and all(able for able, _ in others):  # else it is the only one of a group
        names = _names(name for able, _ in others for name in able)
        text = f"one member of the group gets it: this client, or {names}"
        found.append(Finding("subscription", True, "shared_with_others", text))
    return found


def _names(members: Iterable[str]) -> str:
    """Some client identifiers of many."""
    names = sorted(set(members))
    also = "" if len(names) <= MEMBERS_NAMED_MAX else f" and {len(names) - MEMBERS_NAMED_MAX} more"
    return f"{', '.join(names[:MEMBERS_NAMED_MAX])}{also}"


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


def _explain_content(
    matching: Sequence[Subscription], page: Sequence[Message]
) -> tuple[list[Subscription], Finding]:
    """Which subscriptions want the newest message on the topic by its content, and in words."""
    texts = ", ".join(dict.fromkeys(sub.where for sub in matching if sub.where))
    if not page:
        text = f"it depends on what is in a message: {texts}"
        return list(matching), Finding("content", True, "content_decides", text)
    fulfilled = [sub for sub in matching if fulfils(sub, page[-1])]
    if fulfilled:
        text = "the last message on the topic fulfils the content filter"
        return fulfilled, Finding("content", True, "fulfilled", text)
    text = f"the last message on the topic does not fulfil the content filter {texts}"
    return [], Finding("content", False, "filtered", text)


def _explain_rights(
    topic: str, message: Message, rules: Rules | None, stored: StoredSession | None
) -> list[Finding]:
    """Whether the publisher, whose session is ``stored``, and the client may have the topic."""
    if rules is None:
        text = "the ACL, bans and limits are those of a running broker: none runs"
        return [Finding("rights", True, "not_checked", text)]
    publisher = message.publisher
    found = []
    unfit = rules.unfit(message)
    if unfit:
        found.append(
            Finding("rights", False, "publish_refused", f"no client can publish it: {unfit}")
        )
    record = None if stored is None else stored.record
    if publisher and not rules.may_publish(publisher, topic, record):
        text = f"the ACL does not let {publisher} publish to this topic"
        found.append(Finding("rights", False, "publish_denied", text))
    if publisher and rules.mutes(publisher):
        text = f"the publisher {publisher} is banned: what it has published is not delivered"
        found.append(Finding("rights", False, "publisher_banned", text))
    elif not rules.may_get(topic, publisher):
        text = "the ACL does not let the client read this topic"
        found.append(Finding("rights", False, "acl_denied", text))
    return found or [Finding("rights", True, "allowed", "the client may read this topic")]


def _explain_message(
    stored: StoredSession,
    matching: Sequence[Subscription],
    message: Message,
    rules: Rules | None,
    *,
    online: bool,
) -> list[Finding]:
    """What of the message itself, and the options of the subscriptions, is in the way."""
    options = combine(matching, message, stored.record.client_id)
    if options is None:
        text = "published by the client itself, which asked for no local messages"
        return [Finding("message", False, "no_local", text)]
    found = []
    # A group's messages wait in the log, whatever the QoS of its members.
    waits = not online and any(sub.qos or sub.group for sub in matching)
    if waits and not message.qos:
        text = "published with QoS 0: that is not kept for a client that is offline"
        found.append(Finding("message", False, "qos0", text))
    elif options.qos < message.qos:
        text = f"published with QoS {message.qos}, delivered with QoS {options.qos}"
        found.append(Finding("message", True, "downgraded", text))
    if rules is None:
        return found
    if waits and message.qos and not rules.is_recorded(message):
        text = "the topic is not recorded (storage.record): nothing is kept for who is offline"
        found.append(Finding("message", False, "not_recorded", text))
    if rules.refusal(message):
        text = "the store takes no messages now: publishers are refused"
        found.append(Finding("message", False, "storage_refuses", text))
    size, limit = rules.excess(message, options.qos, options.retain, options.identifiers)
    if limit:
        text = f"the PUBLISH has {size} bytes; the client takes packets of up to {limit}"
        found.append(Finding("message", False, "too_large", text))
    if not options.qos and online and rules.is_congested():
        text = "QoS 0 is dropped now: the client does not read fast enough"
        found.append(Finding("message", False, "congested", text))
    return found


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


async def _explain_head(database: Stored, stored: StoredSession) -> list[Finding]:
    """A message that stays unacknowledged while others behind it are done."""
    head = unacknowledged_head(stored.cursor)
    if head is None or not (head.is_blocking or head.settled_after):
        return []
    oldest = await oldest_pending(database, stored, until=database.last_offset)
    message = None if oldest is None else oldest.message
    what = "" if message is None else f", on {message.topic}"
    since = "" if message is None else f", owed since {format_time(message.published_at_us)}"
    text = (
        f"packet identifier {head.packet_id} (serial {head.serial}{what}{since}) awaits "
        f"{head.awaits}; {head.sent_after} were sent after it, {head.settled_after} of them are "
        "acknowledged"
    )
    if head.is_blocking:
        text += (
            "; no identifier is left, so nothing more is sent until the client acknowledges it: "
            "let it connect again, when it is sent once more, or discard the session"
        )
    return [Finding("delivery", not head.is_blocking, "head_unacknowledged", text)]
