"""Which durable sessions want a message: the subscriptions of all of them, in memory.

Queues are fed by ordinary subscriptions: not by those of groups, nor those that are still
backfilled; those are kept for who asks who gets a topic. What it decides is what a queue *shows* of
a delivery; how a message is delivered in the end is decided when the session reads its queue
(``session.pending``), so an entry too many is harmless and one too few is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, final

from perdure.content import Evaluation, are_filtered, fulfils
from perdure.model import DeliveryOptions, Message, Subscription, combine, holds
from perdure.topic.matching import matches
from perdure.topic.shapes import FilterIndex

_Key: TypeAlias = tuple[int, str]


Clients: TypeAlias = dict[str, dict[_Key, Subscription]]
"""By client id: the subscriptions of one to one filter."""


@final
class _Kept:
    """Subscriptions by topic filter and by client."""

    def __init__(self) -> None:
        self.index: FilterIndex[Clients] = FilterIndex()
        self._filters: dict[str, dict[_Key, str]] = {}

    def __len__(self) -> int:
        return sum(len(kept) for kept in self._filters.values())

    def put(self, client_id: str, sub: Subscription) -> None:
        """Add one that is not there."""
        key = (sub.since_offset, sub.name)
        clients = self.index.get(sub.filter)
        if clients is None:
            clients = {}
            self.index.put(sub.filter, clients)
        clients.setdefault(client_id, {})[key] = sub
        self._filters.setdefault(client_id, {})[key] = sub.filter

    def remove(self, client_id: str, key: _Key) -> None:
        """Forget one, if it is there."""
        kept = self._filters.get(client_id)
        topic_filter = None if kept is None else kept.pop(key, None)
        if kept is None or topic_filter is None:
            return
        if not kept:
            del self._filters[client_id]
        self._take_out(client_id, topic_filter, key)

    def discard(self, client_id: str) -> None:
        """Forget a session."""
        for key, topic_filter in self._filters.pop(client_id, {}).items():
            self._take_out(client_id, topic_filter, key)

    def _take_out(self, client_id: str, topic_filter: str, key: _Key) -> None:
        clients = self.index.get(topic_filter)
        assert clients is not None
        subs = clients[client_id]
        del subs[key]
        if not subs:
            del clients[client_id]
            if not clients:
                self.index.remove(topic_filter)


@final
class DurableSubscriptions:
    """The subscriptions of all durable sessions that hold now."""

    def __init__(self) -> None:
        self._fed = _Kept()
        """Those that have messages queued."""
        self._others = _Kept()
        """Those of groups, of QoS 0, and those that are still backfilled."""
        self._evaluation = Evaluation()

    def __len__(self) -> int:
        return len(self._fed)

    def put(self, client_id: str, sub: Subscription) -> bool:
        """Create or replace a subscription; returns whether messages are queued for it from now
        on."""
        self.remove(client_id, sub)
        if sub.until_offset:
            return False
        feeds = not sub.group and sub.backfill is None and sub.qos > 0
        (self._fed if feeds else self._others).put(client_id, sub)
        return feeds

    def remove(self, client_id: str, sub: Subscription) -> None:
        """Forget a subscription, by name and beginning."""
        key = (sub.since_offset, sub.name)
        self._fed.remove(client_id, key)
        self._others.remove(client_id, key)

    def discard(self, client_id: str) -> None:
        """Forget a session."""
        self._fed.discard(client_id)
        self._others.discard(client_id)

    def subscribers(self, topic: str) -> list[Clients]:
        """All subscriptions that a topic matches, by filter; they change with the next ``put``."""
        return [*self._fed.index.match(topic), *self._others.index.match(topic)]

    def all(self) -> list[Clients]:
        """All subscriptions, by filter."""
        return [clients for kept in (self._fed, self._others) for _, clients in kept.index.items()]

    def deliveries(self, message: Message) -> list[tuple[str, DeliveryOptions]]:
        """Who is to get a message with QoS 1 or 2, each session once, and how."""
        audiences = self._fed.index.match(message.topic)
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
        deliveries: list[tuple[str, DeliveryOptions]] = []
        for client_id, matching in found:
            wanted = list(matching)
            if are_filtered(wanted):
                wanted = self._evaluation.fulfilled(wanted, message)
            options = combine(wanted, message, client_id)
            if options is not None and options.qos:
                deliveries.append((client_id, options))
        return deliveries


def wants(client_id: str, sub: Subscription, message: Message) -> bool:
    """Whether a subscription that has just begun is owed a message recorded before it."""
    if not holds(sub, message.offset) or not matches(sub.filter, message.topic):
        return False
    options = combine([sub], message, client_id)
    return options is not None and options.qos > 0 and fulfils(sub, message)
