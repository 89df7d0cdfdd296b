"""Who gets a message now: connected sessions and shared groups, by topic filter.

Offline sessions are not in here: they cost nothing at publish time and read the log when they
come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.model import Subscription
from perdure.topic.shapes import FilterIndex

if TYPE_CHECKING:
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.shared.group import SharedGroup


@final
class SubscriberEntry:
    """An ordinary subscription of a connected session, laid out for the dispatch.

    It is looked at for each message; fields of the stored record cost several times more.
    """

    __slots__ = ("identifiers", "is_plain", "qos", "retain_as_published", "session", "sub")

    def __init__(self, session: LiveSession, sub: Subscription) -> None:
        self.session: LiveSession = session
        self.sub: Subscription = sub
        self.qos: int = sub.qos
        self.retain_as_published: bool = sub.retain_as_published
        self.identifiers: tuple[int, ...] = (sub.identifier,) if sub.identifier else ()
        self.is_plain: bool = not sub.no_local and sub.feed is None
        """Nothing but its QoS decides what is delivered."""


@final
class SubscriberSet:
    """All that subscribes to one filter."""

    __slots__ = ("groups", "only", "sessions")

    def __init__(self) -> None:
        self.sessions: dict[LiveSession, SubscriberEntry] = {}
        self.only: SubscriberEntry | None = None
        """The entry of the one session, if there is one: most topics have one subscriber."""
        self.groups: dict[str, SharedGroup] = {}

    def put(self, entry: SubscriberEntry) -> None:
        """Add or replace the entry of a session."""
        self.sessions[entry.session] = entry
        self.only = entry if len(self.sessions) == 1 else None

    def remove(self, session: LiveSession) -> None:
        """Take the entry of a session out."""
        self.sessions.pop(session, None)
        self.only = None
        if len(self.sessions) == 1:
            for entry in self.sessions.values():
                self.only = entry


@final
class Router:
    """Topic filter -> subscriber_set, for connected sessions and for groups."""

    def __init__(self) -> None:
        self.index: FilterIndex[SubscriberSet] = FilterIndex()
        """Audiences by filter; the dispatch asks it for each message."""

    def match(self, topic: str) -> list[SubscriberSet]:
        """The subscriber_sets whose filter matches a topic."""
        return self.index.match(topic)

    def put(self, session: LiveSession, sub: Subscription) -> None:
        """Add or replace an ordinary subscription of a connected session."""
        self._subscriber_set(sub.filter).put(SubscriberEntry(session, sub))

    def remove(self, session: LiveSession, sub: Subscription) -> None:
        """Take an ordinary subscription out."""
        subscriber_set = self.index.get(sub.filter)
        if subscriber_set is not None:
            subscriber_set.remove(session)
            self._prune(sub.filter, subscriber_set)

    def put_group(self, group: SharedGroup) -> None:
        """Add a shared group."""
        self._subscriber_set(group.filter).groups[group.key] = group

    def remove_group(self, group: SharedGroup) -> None:
        """Take a shared group out."""
        subscriber_set = self.index.get(group.filter)
        if subscriber_set is not None:
            subscriber_set.groups.pop(group.key, None)
            self._prune(group.filter, subscriber_set)

    def _subscriber_set(self, topic_filter: str) -> SubscriberSet:
        subscriber_set = self.index.get(topic_filter)
        if subscriber_set is None:
            subscriber_set = SubscriberSet()
            self.index.put(topic_filter, subscriber_set)
        return subscriber_set

    def _prune(self, topic_filter: str, subscriber_set: SubscriberSet) -> None:
        if not subscriber_set.sessions and not subscriber_set.groups:
            self.index.remove(topic_filter)
