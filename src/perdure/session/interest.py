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

_FAR: Final = 2**62 - 1
"""No offset in use is near it, and the compiled form compares it as it compares small numbers."""


@final
class Wanted:
    """How one message is to be delivered to one session."""

    __slots__ = ("identifiers", "qos", "retain")

    def __init__(self, qos: int, retain: bool, identifiers: tuple[int, ...]) -> None:
        self.qos: int = qos
        self.retain: bool = retain
        self.identifiers: tuple[int, ...] = identifiers


def combine(subs: Iterable[Subscription], message: Message, client_id: str) -> Wanted | None:
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
    return Wanted(qos, retain, tuple(identifiers))


def holds(sub: Subscription, offset: int) -> bool:
    """Whether a subscription is part of the session's order at an offset of the log."""
    return (
        sub.since_offset < offset
        and sub.feed is None
        and (not sub.until_offset or offset <= sub.until_offset)
    )


@final
class Interest:
    """The ordinary subscriptions of a session, current and ended, asked for old messages.

    Args:
        client_id: the session's client.
        subs: subscriptions without shared ones.
    """

    __slots__ = (
        "_after",
        "_client_id",
        "_for_all",
        "_found",
        "_index",
        "_qos",
        "_retain",
        "_subs",
        "_topic",
        "_until",
        "_wanted",
    )

    def __init__(self, client_id: str, subs: Iterable[Subscription]) -> None:
        # What was answered last, which mostly holds for the next message too: the subscriptions
        # of a topic that hold in (after, until], and how a message of a QoS and RETAIN flag is
        # delivered for them, if that does not depend on the publisher.
        self._topic: str = ""
        self._after: int = 0
        self._until: int = 0
        self._found: list[Subscription] = []
        self._for_all: bool = False
        self._qos: int = -1
        self._retain: bool = False
        self._wanted: Wanted | None = None
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

    def wants(self, message: Message) -> Wanted | None:
        """How a recorded message is delivered; None or QoS 0 = it takes no serial number."""
        offset = message.offset
        if message.topic != self._topic or not self._after < offset <= self._until:
            self._find(message.topic, offset)
        elif message.qos == self._qos and message.retain == self._retain and self._for_all:
            return self._wanted
        self._qos = message.qos
        self._retain = message.retain
        self._wanted = combine(self._found, message, self._client_id) if self._found else None
        return self._wanted

    def _find(self, topic: str, offset: int) -> None:
        """The subscriptions that match a topic and hold at an offset, and around it."""
        if self._index is None:
            matching = [s for s in self._subs if s.filter == topic or matches(s.filter, topic)]
        else:
            matching = [s for same in self._index.match(topic) for s in same]
        self._topic = topic
        self._after, self._until = -1, _FAR
        self._found = [s for s in matching if holds(s, offset)]
        self._for_all = not any(s.no_local for s in self._found)
        for sub in matching:
            # A subscription holds after the one and up to the other (``holds``).
            for edge in (sub.since_offset, sub.until_offset or _FAR):
                if edge < offset:
                    self._after = max(self._after, edge)
                else:
                    self._until = min(self._until, edge)
