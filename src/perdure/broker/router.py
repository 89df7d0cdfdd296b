"""Who gets a message now: connected sessions and shared groups, by topic filter.

Offline sessions are not in here: they cost nothing at publish time and read the log when they
come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.model import Subscription
from perdure.topic.shapes import FilterIndex

if TYPE_CHECKING:
    from perdure.broker.group import SharedGroup
    from perdure.broker.live_session import LiveSession


@final
class Wish:
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
class Audience:
    """All that subscribes to one filter."""

    __slots__ = ("groups", "only", "sessions")

    def __init__(self) -> None:
        self.sessions: dict[LiveSession, Wish] = {}
        self.only: Wish | None = None
        """The wish of the one session, if there is one: most topics have one subscriber."""
        self.groups: dict[str, SharedGroup] = {}

    def put(self, wish: Wish) -> None:
        """Add or replace the wish of a session."""
        self.sessions[wish.session] = wish
        self.only = wish if len(self.sessions) == 1 else None

    def remove(self, session: LiveSession) -> None:
        """Take the wish of a session out."""
        self.sessions.pop(session, None)
        self.only = None
        if len(self.sessions) == 1:
            for wish in self.sessions.values():
                self.only = wish


@final
class Router:
    """Topic filter -> audience, for connected sessions and for groups."""

    def __init__(self) -> None:
        self.index: FilterIndex[Audience] = FilterIndex()
        """Audiences by filter; the dispatch asks it for each message."""

    def match(self, topic: str) -> list[Audience]:
        """The audiences whose filter matches a topic."""
        return self.index.match(topic)

    def put(self, session: LiveSession, sub: Subscription) -> None:
        """Add or replace an ordinary subscription of a connected session."""
        self._audience(sub.filter).put(Wish(session, sub))

    def remove(self, session: LiveSession, sub: Subscription) -> None:
        """Take an ordinary subscription out."""
        audience = self.index.get(sub.filter)
        if audience is not None:
            audience.remove(session)
            self._prune(sub.filter, audience)

    def put_group(self, group: SharedGroup) -> None:
        """Add a shared group."""
        self._audience(group.filter).groups[group.key] = group

    def remove_group(self, group: SharedGroup) -> None:
        """Take a shared group out."""
        audience = self.index.get(group.filter)
        if audience is not None:
            audience.groups.pop(group.key, None)
            self._prune(group.filter, audience)

    def _audience(self, topic_filter: str) -> Audience:
        audience = self.index.get(topic_filter)
        if audience is None:
            audience = Audience()
            self.index.put(topic_filter, audience)
        return audience

    def _prune(self, topic_filter: str, audience: Audience) -> None:
        if not audience.sessions and not audience.groups:
            self.index.remove(topic_filter)
