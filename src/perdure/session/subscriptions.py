"""What a session wants of a message: which of its subscriptions match, and how it is delivered.

The same function decides for live delivery and for catching up from the log, so that both count
the same messages in the same order: that is what makes serial numbers repeatable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from perdure.model import Message, Subscription
from perdure.topic.matching import matches
from perdure.topic.shapes import FilterIndex

NAIVE_MAX: Final = 8
"""Subscriptions up to which asking each filter beats building an index."""

_ANSWERS_MAX: Final = 1_024
"""Topics whose subscriptions are remembered while a session catches up."""

_FAR: Final = 2**62 - 1
"""No offset in use is near it, and the compiled form compares it as it compares small numbers."""


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
        None if nothing is wanted (all no-local).
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
        and sub.feed is None
        and (not sub.until_offset or offset <= sub.until_offset)
    )


@final
class _Answer:
    """What was found for one topic, which mostly holds for its next message too.

    Attributes:
        after, until: the subscriptions hold in ``(after, until]``.
        found: those that match.
        for_all: what is delivered does not depend on the publisher.
        qos, retain: of the message that ``wanted`` is for; QoS -1 = of none.
        wanted: how it is delivered.
    """

    __slots__ = ("after", "for_all", "found", "qos", "retain", "until", "wanted")

    def __init__(self, found: list[Subscription], after: int, until: int) -> None:
        self.after: int = after
        self.until: int = until
        self.found: list[Subscription] = found
        self.for_all: bool = not any(sub.no_local for sub in found)
        self.qos: int = -1
        self.retain: bool = False
        self.wanted: DeliveryOptions | None = None


@final
class SessionSubscriptions:
    """The ordinary subscriptions of a session, current and ended, asked for old messages.

    Args:
        client_id: the session's client.
        subs: subscriptions without shared ones.
    """

    __slots__ = ("_answers", "_client_id", "_index", "_subs")

    def __init__(self, client_id: str, subs: Iterable[Subscription]) -> None:
        self._answers: dict[str, _Answer] = {}
        self._client_id: str = client_id
        self._subs: list[Subscription] = [sub for sub in subs if not sub.group]
        self._index: FilterIndex[list[Subscription]] | None = None
        if len(self._subs) > NAIVE_MAX:
            index: FilterIndex[list[Subscription]] = FilterIndex()
            for sub in self._subs:
                same = index.get(sub.filter)
                if same is None:
                    index.put(sub.filter, [sub])
                else:
                    same.append(sub)
            self._index = index

    def filters(self, after_offset: int) -> list[str]:
        """Filters that can have matched after an offset with QoS 1 or 2, each once."""
        wanted: dict[str, None] = {}
        for sub in self._subs:
            if sub.qos and sub.feed is None:
                if sub.until_offset and sub.until_offset <= after_offset:
                    continue
                wanted[sub.filter] = None
        return list(wanted)

    def wants(self, message: Message) -> DeliveryOptions | None:
        """How a recorded message is delivered; None or QoS 0 = it takes no serial number."""
        offset = message.offset
        answer = self._answers.get(message.topic)
        if answer is None or not answer.after < offset <= answer.until:
            answer = self._find(message.topic, offset)
        elif message.qos == answer.qos and message.retain == answer.retain and answer.for_all:
            return answer.wanted
        answer.qos = message.qos
        answer.retain = message.retain
        found = answer.found
        answer.wanted = combine(found, message, self._client_id) if found else None
        return answer.wanted

    def _find(self, topic: str, offset: int) -> _Answer:
        """The subscriptions that match a topic and hold at an offset, and around it."""
        if self._index is None:
            matching = [s for s in self._subs if s.filter == topic or matches(s.filter, topic)]
        else:
            matching = [s for same in self._index.match(topic) for s in same]
        after, until = -1, _FAR
        for sub in matching:
            # A subscription holds after the one and up to the other (``holds``).
            for edge in (sub.since_offset, sub.until_offset or _FAR):
                if edge < offset:
                    after = max(after, edge)
                else:
                    until = min(until, edge)
        answer = _Answer([s for s in matching if holds(s, offset)], after, until)
        if len(self._answers) >= _ANSWERS_MAX:
            self._answers.clear()
        self._answers[topic] = answer
        return answer
