"""Which durable sessions want a message: the subscriptions of all of them, in memory.

Only ordinary subscriptions that hold now are in it: not those of groups, not ended ones, not
those that are still fed. What it decides is what a queue *shows* of a delivery; how a message is
delivered in the end is decided when the session reads its queue (``session.interest``), so an
entry too many is harmless and one too few is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, final

from perdure.model import Message, Subscription
from perdure.topic.matching import matches
from perdure.topic.shapes import FilterIndex

_Key: TypeAlias = tuple[int, str]


@final
class Delivery:
    """How a session's queue is to show a message."""

    __slots__ = ("client_id", "identifiers", "qos", "retain")

    def __init__(
        self, client_id: str, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> None:
        self.client_id = client_id
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers


@final
class Interests:
    """The subscriptions of all durable sessions that hold now."""

    def __init__(self) -> None:
        self._index: FilterIndex[dict[str, dict[_Key, Subscription]]] = FilterIndex()
        self._filters: dict[str, dict[_Key, str]] = {}

    def __len__(self) -> int:
        return sum(len(kept) for kept in self._filters.values())

    def put(self, client_id: str, sub: Subscription) -> bool:
        """Create or replace a subscription; returns whether it holds from now on."""
        self.remove(client_id, sub)
        if sub.group or sub.feed is not None or sub.until_offset or not sub.qos:
            return False
        key = (sub.since_offset, sub.name)
        clients = self._index.get(sub.filter)
        if clients is None:
            clients = {}
            self._index.put(sub.filter, clients)
        clients.setdefault(client_id, {})[key] = sub
        self._filters.setdefault(client_id, {})[key] = sub.filter
        return True

    def remove(self, client_id: str, sub: Subscription) -> None:
        """Forget a subscription, by name and beginning."""
        kept = self._filters.get(client_id)
        if kept is None:
            return
        key = (sub.since_offset, sub.name)
        topic_filter = kept.pop(key, None)
        if topic_filter is None:
            return
        if not kept:
            del self._filters[client_id]
        self._take_out(client_id, topic_filter, key)

    def discard(self, client_id: str) -> None:
        """Forget a session."""
        for key, topic_filter in self._filters.pop(client_id, {}).items():
            self._take_out(client_id, topic_filter, key)

    def deliveries(self, message: Message) -> list[Delivery]:
        """Who is to get a message with QoS 1 or 2, each session once."""
        audiences = self._index.match(message.topic)
        if not audiences:
            return []
        if len(audiences) == 1:
            found: Iterable[tuple[str, Iterable[Subscription]]] = (
                (client_id, subs.values()) for client_id, subs in audiences[0].items()
            )
        else:
            together: dict[str, list[Subscription]] = {}
            for clients in audiences:
                for client_id, subs in clients.items():
                    together.setdefault(client_id, []).extend(subs.values())
            found = together.items()
        deliveries: list[Delivery] = []
        for client_id, wanted in found:
            delivery = _combine(client_id, wanted, message)
            if delivery is not None:
                deliveries.append(delivery)
        return deliveries

    def _take_out(self, client_id: str, topic_filter: str, key: _Key) -> None:
        clients = self._index.get(topic_filter)
        assert clients is not None
        subs = clients[client_id]
        del subs[key]
        if not subs:
            del clients[client_id]
            if not clients:
                self._index.remove(topic_filter)


def wants(client_id: str, sub: Subscription, message: Message) -> bool:
    """Whether a subscription that has just begun is owed a message recorded before it."""
    return (
        message.offset > sub.since_offset
        and min(message.qos, sub.qos) > 0
        and not (sub.no_local and message.publisher == client_id)
        and matches(sub.filter, message.topic)
    )


def _combine(client_id: str, subs: Iterable[Subscription], message: Message) -> Delivery | None:
    """One delivery for overlapping subscriptions [MQTT-3.3.4-2] [MQTT-3.3.4-3]."""
    qos = 0
    retain = False
    identifiers: list[int] = []
    for sub in subs:
        if sub.no_local and message.publisher == client_id:
            continue
        qos = max(qos, min(message.qos, sub.qos))
        retain = retain or (sub.retain_as_published and message.retain)
        if sub.identifier:
            identifiers.append(sub.identifier)
    return Delivery(client_id, qos, retain, tuple(identifiers)) if qos else None
