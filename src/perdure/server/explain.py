"""Why a message on a topic is, or is not, delivered to a session.

Follows the way of a message: session, subscription, rights, message, record, limits, delivery. The
database is only read; what is in memory comes as ``LiveView``, and what a running broker decides
by as ``Rules``. The verdict is about the message that was asked for, or one like the last that is
recorded on the topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from perdure.admin.records.explain import ANY, Explanation, Finding, What
from perdure.admin.records.sessions import LiveView
from perdure.config.units import format_time
from perdure.content import fulfils
from perdure.model import (
    Message,
    SessionRecord,
    StoredSession,
    Subscription,
)
from perdure.server.explain_record import addressed, newest, of_this_kind
from perdure.server.explain_way import Asked, best_way
from perdure.server.inspect import Stored, deadline, state_of
from perdure.topic.matching import intersects, matches
from perdure.topic.names import validate_topic_name

if TYPE_CHECKING:
    from perdure.server.rules import Rules

NEAR_MISSES_MAX: Final = 3
"""Subscriptions named when none matches."""


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
    client_id = stored.record.client_id
    # What it publishes itself comes by no subscription that asks for no local messages.
    heard = [sub for sub in matching if not (sub.no_local and message.publisher == client_id)]
    fulfilled, content = _explain_content(heard, page)
    asked = Asked(
        database=database,
        stored=stored,
        topic=topic,
        now_us=now_us,
        live=live,
        rules=rules,
        is_any=what == ANY,
        online=online,
        page=page,
        message=message,
        inbox=await addressed(database, stored, topic, now_us),
    )
    findings.append(_explain_subscriptions(current, matching, topic, rules))
    if matching:
        publisher = await database.open_session(message.publisher) if message.publisher else None
        way = await best_way(asked, fulfilled or heard or matching)
        plain = [sub for sub in heard if not sub.where]
        if content and not page and plain:
            # It may be that those which want it whatever is in it do as well.
            surely = await best_way(asked, plain)
            if surely.rank() <= way.rank():
                way, content = surely, []
        findings += [
            *way.subscription,
            *content,
            *_explain_rights(topic, message, rules, publisher),
            *way.rest,
        ]
    return _concluded(stored.record.client_id, topic, findings)


def _concluded(client_id: str, topic: str, findings: list[Finding]) -> Explanation:
    # An offline client is the last reason: whatever else is in the way stays so when it is back.
    order = sorted((f for f in findings if not f.ok), key=lambda finding: finding.code == "offline")
    verdict, reason = "delivered", "nothing is in the way: messages on this topic are delivered"
    shared = next((f for f in findings if f.code == "shared_with_others"), None)
    content = next((f for f in findings if f.code == "content_decides"), None)
    if order:
        verdict, reason = order[0].code, order[0].detail
        nothing = next((f for f in findings if f.code == "nothing_recorded"), None)
        if verdict == "offline" and content is not None:
            reason = f"{reason}; {content.detail}"
        elif verdict == "offline" and nothing is not None:
            reason = f"{reason}; {nothing.detail}"
    elif content is not None:
        verdict, reason = content.code, content.detail
    elif shared is not None:
        verdict, reason = "shared", shared.detail
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
    rules: Rules | None,
) -> Finding:
    refused = ""
    if rules is not None and not rules.may_subscribe(topic):
        refused = "; the ACL does not let the client subscribe to the topic"
    if not current:
        text = f"the session has no subscription{refused}"
        return Finding("subscription", False, "no_subscription", text)
    if not matching:
        near = _near_misses(current, topic)
        also = f"; close to it: {', '.join(near)}{refused}" if near else refused
        text = f"none of its {len(current)} subscriptions matches the topic{also}"
        return Finding("subscription", False, "no_match", text)
    best = max(sub.qos for sub in matching)
    names = ", ".join(sub.name for sub in matching)
    return Finding("subscription", True, "match", f"matched by {names} with QoS {best}")


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
    heard: Sequence[Subscription], page: Sequence[Message]
) -> tuple[list[Subscription], list[Finding]]:
    """Which subscriptions want the newest message on the topic by its content, and in words."""
    texts = ", ".join(dict.fromkeys(sub.where for sub in heard if sub.where))
    if not texts:
        return list(heard), []
    if not page:
        text = f"it depends on what is in a message, and none is recorded: {texts}"
        return list(heard), [Finding("content", True, "content_decides", text)]
    fulfilled = [sub for sub in heard if fulfils(sub, page[-1])]
    if fulfilled:
        text = "the last message on the topic fulfils the content filter"
        return fulfilled, [Finding("content", True, "fulfilled", text)]
    text = f"the last message on the topic does not fulfil the content filter {texts}"
    return [], [Finding("content", False, "filtered", text)]


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
