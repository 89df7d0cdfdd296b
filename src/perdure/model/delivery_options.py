"""What subscriptions make of one message: whether it is delivered, and how.

The only statement of it: the dispatch decides by it on live messages, the enumeration of pending
messages (``session.pending``) on those of the log, a store that keeps queues on what it puts into
them, and a check on who may miss something.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from perdure.model.message import Message
from perdure.model.subscription import Subscription


@final
class DeliveryOptions:
    """How one message is to be delivered to one session."""

    __slots__ = ("identifiers", "qos", "retain")

    def __init__(self, qos: int, retain: bool, identifiers: tuple[int, ...]) -> None:
        self.qos: int = qos
        self.retain: bool = retain
        self.identifiers: tuple[int, ...] = identifiers


def combine(
    subs: Iterable[Subscription], message: Message, client_id: str
) -> DeliveryOptions | None:
    """One delivery for all matching subscriptions of a session.

    Overlapping subscriptions give one copy with the highest QoS and every subscription
    identifier [MQTT-3.3.4-2] [MQTT-3.3.4-3].

    Args:
        subs: subscriptions whose filter matches and which hold for the message.
        message: the message.
        client_id: the session's client, for no-local.

    Returns:
        None if nothing is delivered (all no-local).
    """
    qos = -1
    retain = False
    identifiers: list[int] = []
    for sub in subs:
        if sub.no_local and message.publisher == client_id:
            continue
        granted = min(message.qos, sub.qos)
        if granted > qos:
            qos = granted
        if sub.retain_as_published and message.retain:
            retain = True
        if sub.identifier:
            identifiers.append(sub.identifier)
    if qos < 0:
        return None
    if len(identifiers) > 1:
        # The same order whoever has found the subscriptions, and however many there are by then:
        # a message that is sent again is as it was [MQTT-4.4.0-1].
        identifiers.sort()
    return DeliveryOptions(qos, retain, tuple(identifiers))


def holds(sub: Subscription, offset: int) -> bool:
    """Whether a subscription is part of the session's order at an offset of the log."""
    return (
        sub.since_offset < offset
        and sub.backfill is None
        and (not sub.until_offset or offset <= sub.until_offset)
    )


def holds_within(sub: Subscription, *, after: int, until: int) -> bool:
    """Whether a subscription gives its session QoS 1 and 2 messages of ``(after, until]``, be it
    in the session's order or through its backfill."""
    if not sub.qos or after >= until:
        return False
    if sub.backfill is not None:
        return sub.backfill.after_offset < until
    return sub.since_offset < until and (not sub.until_offset or after < sub.until_offset)
