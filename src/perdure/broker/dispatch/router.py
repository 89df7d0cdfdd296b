"""Who gets a message now: connected sessions and shared groups, by topic filter.

Offline sessions are not in here: they cost nothing at publish time and read the log when they
come back.
"""

from __future__ import annotations

from typing import final

from perdure.content import ContentFilter, Evaluation
from perdure.content.evaluation import stored_filter
from perdure.content.index import INDEXED_FROM, ContentIndex
from perdure.model import InboxEntry, Message, SessionRecord, Subscription
from perdure.storage.batch import Batch
from perdure.topic.shapes import FilterIndex


class Subscriber:
    """A connected session, as the dispatch and the commit pipeline see it.

    A base class and no protocol: what is compiled calls a method of a class at once.

    Attributes:
        client_id: whose.
        cursor_waits: the pipeline knows that the cursor has moved, and will write it (its own
            mark).
        durable: the store has its cursor, subscriptions and private stream.
        backfilling: subscriptions whose backfill is not done.
        groups: the shared groups that it is a member of.
        has_waiters: somebody waits for the window to have room.
        inbox_queued: entries of its private stream that stand in the dispatch queue.
        inbox_until: highest offset in its private stream.
        is_open: a connection holds it; False for good once it was let go.
        lagging: it reads the log instead of being given what is dispatched.
        record: what the store has of it.
    """

    __slots__ = (
        "backfilling",
        "client_id",
        "cursor_waits",
        "durable",
        "groups",
        "has_waiters",
        "inbox_queued",
        "inbox_until",
        "is_open",
        "lagging",
        "record",
    )

    def __init__(self, record: SessionRecord, *, durable: bool) -> None:
        self.client_id: str = record.client_id
        self.cursor_waits: bool = False
        self.durable: bool = durable
        self.backfilling: int = 0
        self.groups: dict[str, GroupSubscriber] = {}
        self.has_waiters: bool = False
        self.inbox_queued: int = 0
        self.inbox_until: int = 0
        self.is_open: bool = True
        self.lagging: bool = False
        self.record: SessionRecord = record

    def deliver_one(self, message: Message, entry: SubscriberEntry) -> None:
        """Deliver for one matching subscription (the hot path of ``deliver``)."""
        raise NotImplementedError

    def room_for_run(self, first: Message, entry: SubscriberEntry) -> int:
        """How many messages ``deliver_run`` may be given now for one matching subscription.

        Args:
            first: the first of them; all are ``dispatcher.is_plain``.
            entry: the subscription.
        """
        raise NotImplementedError

    def may_have(self, message: Message) -> bool:
        """Whether the rules let the client have a message."""
        raise NotImplementedError

    def deliver_run(self, run: list[Message], identifiers: tuple[int, ...]) -> int:
        """Deliver messages with QoS 1 and without RETAIN.

        Returns:
            How many, at least one: the others find the connection congested.
        """
        raise NotImplementedError

    def deliver(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> None:
        """Deliver a message that was dispatched now."""
        raise NotImplementedError

    def deliver_entry(self, entry: InboxEntry) -> None:
        """Deliver an entry of the private stream that was dispatched now."""
        raise NotImplementedError

    def deliver_entries(self, entries: list[InboxEntry]) -> None:
        """``deliver_entry`` for each; all of QoS 1, from one group."""
        raise NotImplementedError

    def cut_off(self, position: int) -> None:
        """Take nothing more that is dispatched, and read nothing either: the connection ends."""
        raise NotImplementedError

    def failed(self, error: Exception, where: str) -> None:
        """A step failed as nobody expected: its connection ends, others go on.

        Args:
            error: what was raised.
            where: kind of step.
        """
        raise NotImplementedError

    def has_room(self) -> bool:
        """Whether reading more for it makes sense."""
        raise NotImplementedError

    def put_cursor(self, batch: Batch) -> None:
        """Add the cursor to a batch, if it has moved."""
        raise NotImplementedError

    def trim(self, batch: Batch) -> None:
        """Delete what the cursor has passed in the private stream."""
        raise NotImplementedError


class GroupSubscriber:
    """A group of a shared subscription, as the dispatch and the commit pipeline see it.

    Attributes:
        filter: its topic filter.
        key: its name and filter.
        where: its content filter; empty = none.
    """

    __slots__ = ("filter", "key", "where")

    def __init__(self, key: str, topic_filter: str, where: str) -> None:
        self.key: str = key
        self.filter: str = topic_filter
        self.where: str = where

    def deliver(self, message: Message) -> None:
        """A message was dispatched now."""
        raise NotImplementedError

    def deliver_run(self, run: list[Message]) -> None:
        """``deliver`` for each of several messages that are ``is_plain``."""
        raise NotImplementedError

    def gather(self, message: Message) -> bool:
        """As ``deliver``, if the message may wait for others of this turn.

        Returns:
            Whether it waits; the first that does asks for ``hand_out``.
        """
        raise NotImplementedError

    def hand_out(self) -> None:
        """Give out what was gathered."""
        raise NotImplementedError

    def failed(self, message: Message, error: Exception) -> None:
        """Giving a message, or a run that begins with it, to members failed as nobody expected."""
        raise NotImplementedError

    def joined(self) -> None:
        """A member is ready for messages: read what the group has missed."""
        raise NotImplementedError

    def put(self, batch: Batch) -> None:
        """Add the record to a batch."""
        raise NotImplementedError


@final
class SubscriberEntry:
    """An ordinary subscription of a connected session, laid out for the dispatch.

    It is looked at for each message; fields of the stored record cost several times more.
    """

    __slots__ = ("identifiers", "is_plain", "qos", "retain_as_published", "session", "sub")

    def __init__(self, session: Subscriber, sub: Subscription) -> None:
        self.session: Subscriber = session
        self.sub: Subscription = sub
        self.qos: int = sub.qos
        self.retain_as_published: bool = sub.retain_as_published
        self.identifiers: tuple[int, ...] = (sub.identifier,) if sub.identifier else ()
        self.is_plain: bool = not sub.no_local and sub.backfill is None
        """Nothing but its QoS decides what is delivered."""


@final
class FilteredSubscribers:
    """The subscriptions to one topic filter that have the same content filter.

    It is tried once on a message, however many they are.
    """

    __slots__ = ("condition", "entries", "text")

    def __init__(self, text: str) -> None:
        self.text: str = text
        self.condition: ContentFilter = stored_filter(text)
        self.entries: dict[tuple[Subscriber, str], SubscriberEntry] = {}
        """By session and name: a session may have the same filter by several."""


@final
class SubscriberSet:
    """All that subscribes to one filter."""

    __slots__ = ("by_content", "filtered", "groups", "only", "only_group", "runs", "sessions")

    def __init__(self) -> None:
        self.sessions: dict[Subscriber, SubscriberEntry] = {}
        """Subscriptions without a content filter."""
        self.only: SubscriberEntry | None = None
        """The entry of the one session, if there is one and nothing else: most topics have one
        subscriber."""
        self.groups: dict[str, GroupSubscriber] = {}
        self.only_group: GroupSubscriber | None = None
        """The one group, without a content filter, if there is one and nothing else."""
        self.filtered: dict[str, FilteredSubscribers] = {}
        """Subscriptions with a content filter, by its text."""
        self.by_content: ContentIndex | None = None
        """Which of many filters are worth trying on a message; None = all, they are few."""
        self.runs: bool = True
        """Nothing has to be decided for each message: there are only ``sessions``."""

    def put(self, entry: SubscriberEntry) -> None:
        """Add or replace an entry."""
        where = entry.sub.where
        if where:
            same = self.filtered.get(where)
            if same is None:
                same = self.filtered[where] = FilteredSubscribers(where)
                self._index(same)
            same.entries[(entry.session, entry.sub.name)] = entry
        else:
            self.sessions[entry.session] = entry
        self._changed()

    def remove(self, session: Subscriber, sub: Subscription) -> None:
        """Take the entry of a session's subscription out."""
        if sub.where:
            same = self.filtered.get(sub.where)
            if same is not None:
                same.entries.pop((session, sub.name), None)
                if not same.entries:
                    del self.filtered[sub.where]
                    if self.by_content is not None:
                        self.by_content.remove(same.condition)
        else:
            self.sessions.pop(session, None)
        self._changed()

    def put_group(self, group: GroupSubscriber) -> None:
        """Add a shared group."""
        self.groups[group.key] = group
        self._changed()

    def remove_group(self, group: GroupSubscriber) -> None:
        """Take a shared group out."""
        self.groups.pop(group.key, None)
        self._changed()

    def _index(self, added: FilteredSubscribers) -> None:
        """Have one more content filter found; an index is made when it begins to pay."""
        if self.by_content is not None:
            self.by_content.put(added.condition)
        elif len(self.filtered) >= INDEXED_FROM:
            self.by_content = ContentIndex()
            for each in self.filtered.values():
                self.by_content.put(each.condition)

    def _changed(self) -> None:
        if not self.filtered:
            self.by_content = None
        self.runs = not self.groups and not self.filtered
        self.only = self.only_group = None
        if len(self.groups) == 1 and not self.sessions and not self.filtered:
            for group in self.groups.values():
                self.only_group = None if group.where else group
        if len(self.sessions) == 1 and not self.filtered:
            for entry in self.sessions.values():
                self.only = entry


@final
class Router:
    """Topic filter -> subscriber_set, for connected sessions and for groups."""

    def __init__(self) -> None:
        self.index: FilterIndex[SubscriberSet] = FilterIndex()
        """Audiences by filter; the dispatch asks it for each message."""
        self.evaluation: Evaluation = Evaluation()
        """What content filters say of the message that is being dispatched."""
        self.wheres: dict[str, int] = {}
        """Content filters in use, and how many sets of subscribers each of them is in."""

    def match(self, topic: str) -> list[SubscriberSet]:
        """The subscriber_sets whose filter matches a topic."""
        return self.index.match(topic)

    def put(self, session: Subscriber, sub: Subscription) -> None:
        """Add or replace an ordinary subscription of a connected session.

        One that changes its content filter is taken out first.
        """
        subscriber_set = self._subscriber_set(sub.filter)
        if sub.where and sub.where not in subscriber_set.filtered:
            self.wheres[sub.where] = self.wheres.get(sub.where, 0) + 1
        subscriber_set.put(SubscriberEntry(session, sub))

    def remove(self, session: Subscriber, sub: Subscription) -> None:
        """Take an ordinary subscription out."""
        subscriber_set = self.index.get(sub.filter)
        if subscriber_set is not None:
            was_filtered = sub.where in subscriber_set.filtered
            subscriber_set.remove(session, sub)
            if was_filtered and sub.where not in subscriber_set.filtered:
                self._forget_where(sub.where)
            self._prune(sub.filter, subscriber_set)

    def put_group(self, group: GroupSubscriber) -> None:
        """Add a shared group."""
        self._subscriber_set(group.filter).put_group(group)
        if group.where:
            self.wheres[group.where] = self.wheres.get(group.where, 0) + 1

    def remove_group(self, group: GroupSubscriber) -> None:
        """Take a shared group out."""
        subscriber_set = self.index.get(group.filter)
        if subscriber_set is not None:
            if group.where and group.key in subscriber_set.groups:
                self._forget_where(group.where)
            subscriber_set.remove_group(group)
            self._prune(group.filter, subscriber_set)

    def _forget_where(self, where: str) -> None:
        """One set of subscribers with a content filter is gone."""
        left = self.wheres.get(where, 0) - 1
        if left > 0:
            self.wheres[where] = left
        else:
            self.wheres.pop(where, None)

    def _subscriber_set(self, topic_filter: str) -> SubscriberSet:
        subscriber_set = self.index.get(topic_filter)
        if subscriber_set is None:
            subscriber_set = SubscriberSet()
            self.index.put(topic_filter, subscriber_set)
        return subscriber_set

    def _prune(self, topic_filter: str, subscriber_set: SubscriberSet) -> None:
        if subscriber_set.runs and not subscriber_set.sessions:
            self.index.remove(topic_filter)
