"""Which durable sessions want a message: the subscriptions of all of them, in memory.

Only ordinary subscriptions that hold now are in it: not those of groups, not ended ones, not
those that are still backfilled. What it decides is what a queue *shows* of a delivery; how a
message is delivered in the end is decided when the session reads its queue (``session.pending``),
so an entry too many is harmless and one too few is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, final

from perdure.content import Evaluation, are_filtered, fulfils
from perdure.model import DeliveryOptions, Message, Subscription, combine, holds
from perdure.topic.matching import matches
from perdure.topic.shapes import FilterIndex

_Key: TypeAlias = tuple[int, str]


@final
class DurableSubscriptions:
    """The subscriptions of all durable sessions that hold now."""

    def __init__(self) -> None:
        self._index: FilterIndex[dict[str, dict[_Key, Subscription]]] = FilterIndex()
        self._filters: dict[str, dict[_Key, str]] = {}
        self._evaluation = Evaluation()

    def __len__(self) -> int:
        return sum(len(kept) for kept in self._filters.values())

    def put(self, client_id: str, sub: Subscription) -> bool:
        """Create or replace a subscription; returns whether it holds from now on."""
        self.remove(client_id, sub)
        if sub.group or sub.backfill is not None or sub.until_offset or not sub.qos:
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

    def deliveries(self, message: Message) -> list[tuple[str, DeliveryOptions]]:
        """Who is to get a message with QoS 1 or 2, each session once, and how."""
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
        deliveries: list[tuple[str, DeliveryOptions]] = []
        for client_id, matching in found:
            wanted = list(matching)
            if are_filtered(wanted):
                wanted = self._evaluation.fulfilled(wanted, message)
            options = combine(wanted, message, client_id)
            if options is not None and options.qos:
                deliveries.append((client_id, options))
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
    if not holds(sub, message.offset) or not matches(sub.filter, message.topic):
        return False
    options = combine([sub], message, client_id)
    return options is not None and options.qos > 0 and fulfils(sub, message)
