"""A way on which a message comes to a session: its own subscriptions together bring one copy, and
each shared one that it is a member of may bring another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.admin.records.explain import Finding
from perdure.admin.records.sessions import LiveView
from perdure.config.units import format_time
from perdure.model import DeliveryOptions, Message, StoredSession, Subscription, combine
from perdure.server.explain_group import expired_ungiven, explain_group
from perdure.server.explain_record import backlog, larger_than_queue, recorded
from perdure.server.inspect import Stored, held_subscription, unacknowledged
from perdure.session.head import unacknowledged_head
from perdure.session.pending_pages import oldest_pending

if TYPE_CHECKING:
    from perdure.server.rules import Rules

LATER: Final = frozenset({"window_full", "socket_full", "head_unacknowledged", "in_archive"})
"""Codes of what holds a message up, after which it comes."""


@final
class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, and what is known of it.

    Attributes:
        database, stored, topic, now_us, live, rules: see ``explain_session``.
        is_any: no message was described: the fate of the last recorded one counts as well.
        online: the client is connected.
        page: the newest recorded messages on the topic.
        message: the one in question.
        inbox: what is addressed to the session alone.
    """

    database: Stored
    stored: StoredSession
    topic: str
    now_us: int
    live: LiveView | None
    rules: Rules | None
    is_any: bool
    online: bool
    page: Sequence[Message]
    message: Message
    inbox: Finding


@final
class Way(msgspec.Struct, frozen=True):
    """What was found on one way.

    Attributes:
        subscription: of its subscriptions.
        rest: of the message, the record, limits and delivery.
    """

    subscription: list[Finding]
    rest: list[Finding]

    def rank(self) -> int:
        """0 = the message comes by it, 1 = later, or perhaps, 2 = not."""
        codes = {finding.code for finding in (*self.subscription, *self.rest) if not finding.ok}
        if codes:
            return 1 if codes <= LATER else 2
        return int(any(finding.code == "shared_with_others" for finding in self.subscription))


async def best_way(asked: Asked, wanted: Sequence[Subscription]) -> Way:
    """The way on which a message gets furthest; the session's own, if others get no further.

    Args:
        asked: the question.
        wanted: subscriptions that match, one or more.
    """
    own = [sub for sub in wanted if not sub.group]
    ways = [own] if own else []
    ways += [[sub] for sub in wanted if sub.group]
    return min([await _follow(asked, way) for way in ways], key=Way.rank)


async def _follow(asked: Asked, subs: Sequence[Subscription]) -> Way:
    message, rules, live = asked.message, asked.rules, asked.live
    is_shared = bool(subs[0].group)
    options = combine(subs, message, asked.stored.record.client_id)
    found = _subscriptions(asked, subs)
    rest = _explain_message(asked, subs, options)
    inbox = asked.inbox
    if inbox.code != "none_addressed" or is_shared:
        rest.append(_of_what_is_asked(asked, inbox))
    if not is_shared and any(sub.qos for sub in subs):
        of_log = await recorded(
            asked.database, asked.stored, subs, asked.page, asked.topic, asked.now_us
        )
        of_log = _of_what_is_asked(asked, of_log)
        if of_log.ok or inbox.code != "addressed":
            rest.append(of_log)
    elif is_shared and asked.page and rules is not None and inbox.code == "none_addressed":
        ungiven = expired_ungiven(subs[0].group_key, asked.page[-1], rules, asked.now_us)
        rest += [_of_what_is_asked(asked, each) for each in ungiven]
    reads_log = not asked.online or (live is not None and live.catching_up)
    # What a backfill gives is of the private stream, which has no such limits.
    is_limited = not is_shared and all(sub.backfill is None for sub in subs)
    if rules is not None and is_limited and reads_log:
        limits = await backlog(asked.database, asked.stored, asked.topic, rules)
        rest += larger_than_queue(message, rules) or [
            _of_what_is_asked(asked, each) for each in limits
        ]
    # The window is for QoS 1 and 2; but a group waits for a member whatever the QoS of its
    # subscription, and if there are others, one of them may have room. What is recorded, QoS 0
    # too, comes behind all that a backfill gives before it.
    is_behind = message.qos > 0 if is_shared else all(sub.backfill is not None for sub in subs)
    is_behind = is_behind and (rules is None or rules.is_recorded(message))
    waits = (options is None or options.qos > 0 or is_behind) and not any(
        finding.code == "shared_with_others" for finding in found
    )
    rest.append(_explain_delivery(asked, waits=waits))
    rest += await _explain_head(asked, waits=waits)
    return Way(found, rest)


def _of_what_is_asked(asked: Asked, found: Finding) -> Finding:
    """What became of others says nothing of a message that is yet to be published."""
    return found if asked.is_any else msgspec.structs.replace(found, ok=True)


def _subscriptions(asked: Asked, subs: Sequence[Subscription]) -> list[Finding]:
    found = []
    backfilled = [sub for sub in subs if sub.backfill is not None]
    if subs[0].group:
        found += explain_group(subs[0], asked.message, asked.rules, online=asked.online)
    elif not any(sub.qos for sub in subs):
        text = "subscribed with QoS 0: what comes while the client is offline is not kept for it"
        # But a backfill goes on with what was recorded meanwhile.
        found.append(Finding("subscription", asked.online or bool(backfilled), "qos0", text))
    if backfilled:
        found.append(_explain_backfill(backfilled[0], asked.rules))
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


def _explain_message(
    asked: Asked, subs: Sequence[Subscription], options: DeliveryOptions | None
) -> list[Finding]:
    """What of the message itself, and the options of the subscriptions, is in the way."""
    if options is None:
        text = "published by the client itself, which asked for no local messages"
        return [Finding("message", False, "no_local", text)]
    message, rules, online = asked.message, asked.rules, asked.online
    found = []
    # A group's messages wait in the log, whatever the QoS of its members; so do a backfill's.
    waits = not online and any(sub.qos or sub.group or sub.backfill is not None for sub in subs)
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


def _explain_delivery(asked: Asked, *, waits: bool) -> Finding:
    """What is in the way between the log and the socket, if the message waits for room there."""
    stored, live = asked.stored, asked.live
    waiting = unacknowledged(stored) if live is None else live.inflight
    if live is None:
        text = f"{waiting} sent and not acknowledged by the client"
        return Finding("delivery", True, "unacknowledged" if waiting else "idle", text)
    if live.paused:
        text = "the client does not read: its socket is full"
        return Finding("delivery", not waits, "socket_full", text)
    if live.inflight >= live.inflight_max:
        text = f"the window is full: {live.inflight} sent and not acknowledged by the client"
        return Finding("delivery", not waits, "window_full", text)
    if live.catching_up:
        return Finding("delivery", True, "catching_up", "the session is reading the log")
    text = f"{waiting} of {live.inflight_max} in flight, {live.pending} waiting"
    return Finding("delivery", True, "flowing", text)


async def _explain_head(asked: Asked, *, waits: bool) -> list[Finding]:
    """A message that stays unacknowledged while others behind it are done."""
    database, stored = asked.database, asked.stored
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
    return [Finding("delivery", not (head.is_blocking and waits), "head_unacknowledged", text)]
