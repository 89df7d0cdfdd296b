"""The subscriptions of a session, asked for messages of the log.

The same function (``model.combine``) decides for live delivery and for those that are pending, so
that both count the same messages in the same order: that is what makes serial numbers repeatable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from perdure.content import Evaluation, are_filtered
from perdure.model import DeliveryOptions, Message, Subscription, combine, holds, holds_within
from perdure.topic.any_filter import FEW
from perdure.topic.filter_set import FilterSet
from perdure.topic.matching import matches
from perdure.topic.shapes import FilterIndex

_CACHED_MAX: Final = 1_024
"""Topics whose subscriptions are remembered while a session catches up."""
_CACHED_LENGTH_MAX: Final = 512
"""Longer topics are not: they would be 64 MB for each such session."""

_FAR: Final = 2**62 - 1
"""No offset in use is near it, and the compiled form compares it as it compares small numbers."""


@final
class _CachedMatch:
    """What was found for one topic, which mostly holds for its next message too.

    Attributes:
        after, until: the subscriptions hold in ``(after, until]``.
        found: those that match.
        filtered: some have a content filter, so that each message is looked into.
        for_all: what is delivered depends on neither the publisher nor the content.
        qos, retain: of the message that ``options`` is for; QoS -1 = of none.
        options: how it is delivered.
    """

    __slots__ = ("after", "filtered", "for_all", "found", "options", "qos", "retain", "until")

    def __init__(self, found: list[Subscription], after: int, until: int) -> None:
        self.after: int = after
        self.until: int = until
        self.found: list[Subscription] = found
        self.filtered: bool = are_filtered(found)
        self.for_all: bool = not self.filtered and not any(sub.no_local for sub in found)
        self.qos: int = -1
        self.retain: bool = False
        self.options: DeliveryOptions | None = None


@final
class SessionSubscriptions:
    """The ordinary subscriptions of a session, current and ended, asked for old messages.

    Args:
        client_id: the session's client.
        subs: all of them; those of shared groups are left out.
    """

    __slots__ = (
        "_cached",
        "_evaluation",
        "_index",
        "_subs",
        "_wanted",
        "_wanted_after",
        "_wanted_until",
        "client_id",
    )

    def __init__(self, client_id: str, subs: Iterable[Subscription]) -> None:
        self._cached: dict[str, _CachedMatch] = {}
        self._evaluation: Evaluation = Evaluation()
        self.client_id: str = client_id
        self._subs: list[Subscription] = [sub for sub in subs if not sub.group]
        self._index: FilterIndex[list[Subscription]] | None = None
        self._wanted: FilterSet | None = None
        """What ``filters`` gave last, which holds after these offsets."""
        self._wanted_after: int = 0
        self._wanted_until: int = 0

    def filters(self, after_offset: int) -> FilterSet:
        """Filters that can have matched after an offset with QoS 1 or 2, each once."""
        wanted = self._wanted
        if wanted is None or not self._wanted_after <= after_offset < self._wanted_until:
            ordered = self._ordered(after_offset)
            ends = [sub.until_offset for sub in ordered if sub.until_offset]
            self._wanted_after, self._wanted_until = after_offset, min(ends, default=_FAR)
            wanted = FilterSet([sub.filter for sub in ordered], self._indexed())
            self._wanted = wanted
        return wanted

    def _indexed(self) -> FilterIndex[list[Subscription]] | None:
        """All of them by their filters; None = they are a few."""
        index = self._index
        if index is None and len(self._subs) > FEW:
            index = FilterIndex()
            for sub in self._subs:
                same = index.get(sub.filter)
                if same is None:
                    index.put(sub.filter, [sub])
                else:
                    same.append(sub)
            self._index = index
        return index

    def begin(self, after_offset: int) -> int:
        """The last offset >= ``after_offset`` up to which no subscription can have matched."""
        begins = [sub.since_offset for sub in self._ordered(after_offset)]
        return max(after_offset, min(begins, default=0))

    def are_filters(self, after_offset: int) -> bool:
        """Whether every QoS 1 and 2 message after an offset that matches a filter is pending: no
        subscription begins or ends there or leaves out a publisher or a content."""
        return all(
            not sub.no_local
            and not sub.where
            and not sub.until_offset
            and sub.since_offset <= after_offset
            for sub in self._ordered(after_offset)
        )

    def _ordered(self, after_offset: int) -> list[Subscription]:
        """Those that are part of the session's order, with QoS 1 or 2, after an offset."""
        return [
            sub
            for sub in self._subs
            if sub.backfill is None and holds_within(sub, after=after_offset, until=_FAR)
        ]

    def options(self, message: Message) -> DeliveryOptions | None:
        """How a recorded message is delivered; None or QoS 0 = it takes no serial number."""
        offset = message.offset
        cached = self._cached.get(message.topic)
        if cached is None or not cached.after < offset <= cached.until:
            cached = self._find(message.topic, offset)
        elif message.qos == cached.qos and message.retain == cached.retain and cached.for_all:
            return cached.options
        cached.qos = message.qos
        cached.retain = message.retain
        found = cached.found
        if cached.filtered:
            found = self._evaluation.fulfilled(found, message)
        cached.options = combine(found, message, self.client_id) if found else None
        return cached.options

    def _find(self, topic: str, offset: int) -> _CachedMatch:
        """The subscriptions that match a topic and hold at an offset, and around it."""
        index = self._indexed()
        if index is None:
            matching = [s for s in self._subs if s.filter == topic or matches(s.filter, topic)]
        else:
            matching = [s for same in index.match(topic) for s in same]
        after, until = -1, _FAR
        for sub in matching:
            # A subscription holds after the one and up to the other (``holds``).
            for edge in (sub.since_offset, sub.until_offset or _FAR):
                if edge < offset:
                    after = max(after, edge)
                else:
                    until = min(until, edge)
        cached = _CachedMatch([s for s in matching if holds(s, offset)], after, until)
        if len(topic) <= _CACHED_LENGTH_MAX:
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            self._cached[topic] = cached
        return cached
