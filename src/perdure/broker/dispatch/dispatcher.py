"""From the log to connected sessions: each message in log order, to each session once.

A QoS 1 message is dispatched once it is sequenced, a QoS 2 message once it is synced: were it
handed over before, a power cut could take it from the log and its publisher would send it again
(DESIGN, durability levels). What stands behind it in the log waits with it, so ``offset`` is a
fence: everything recorded up to it has been handed to every session that is live, and everything
beyond it to none.
"""

from __future__ import annotations

from typing import Final, final

from perdure.broker.auth.authorize import is_own_topic
from perdure.broker.dispatch.gathering import Gathering
from perdure.broker.dispatch.items import (
    Barrier,
    InboxDelivery,
    InboxRunDelivery,
    Item,
    Passed,
    is_plain,
)
from perdure.broker.dispatch.overlapping import add_filtered, deliver_combined
from perdure.broker.dispatch.router import Router, Subscriber, SubscriberEntry, SubscriberSet
from perdure.clock import Clock
from perdure.content import Evaluation
from perdure.model import Message
from perdure.observe.metrics import Metrics
from perdure.storage.rows import Rows
from perdure.topic.shapes import FilterIndex

CAUSED_MAX: Final = 10_000
"""Publishers whose deliveries are counted until they publish again: wills have none who does."""

GROUP_RUN_MAX: Final = 1_024
"""Messages that a group is given in one step."""

LOOKED_MIN: Final = 64
"""Nodes of tries of filters up to which a search for subscribers costs nothing that counts."""
LOOKED_SHIFT: Final = 3
"""So many nodes cost as much as a delivery: two to this power."""

UNMATCHED_MAX: Final = 10_000
"""Messages without a subscriber that are remembered until they are acknowledged."""


@final
class Dispatcher:
    """Hands messages to whoever is connected.

    Args:
        router: who wants what.
        metrics: drops without a subscriber.
        offset: the log's end at start.
        gate_qos2: hold QoS 2 messages back until they are synced.
        is_alone: nobody is connected elsewhere: what finds no subscriber here has none.
    """

    __slots__ = (
        "_at",
        "_evaluation",
        "_gate_qos2",
        "_gathering",
        "_index",
        "_is_alone",
        "_metrics",
        "_queue",
        "caused",
        "offset",
        "published_us",
        "unmatched",
        "widest",
        "work",
    )

    def __init__(
        self,
        router: Router,
        metrics: Metrics,
        *,
        offset: int,
        gate_qos2: bool,
        is_alone: bool = True,
    ) -> None:
        self._is_alone: bool = is_alone
        self._index: FilterIndex[SubscriberSet] = router.index
        self._evaluation: Evaluation = router.evaluation
        self._metrics = metrics
        self._gate_qos2 = gate_qos2
        self._gathering = Gathering()
        self._queue: list[Item] = []
        self._at: int = 0
        """What stands before this place in the queue was handed out."""
        self.offset: int = offset
        """The fence: see the module."""
        self.unmatched: set[int] = set()
        """Offsets of recent QoS 1 messages that no connected session and no group wanted."""
        self.caused: dict[str, int] = {}
        """Work by publisher, in deliveries, of messages that cause several; who publishes takes its
        own away (``fan_out``)."""
        self.published_us: int = 0
        """When the first message was published that was handed out since whoever asks has set it
        to 0."""
        self.widest: int = 0
        """Most sessions that one message went to, since whoever asks has set it to 0."""
        self.work: int = 0
        """Work that messages have caused, as in ``caused``, since whoever asks has set it to 0."""

    def accept(self, items: list[Item]) -> None:
        """Items that are sequenced (or not recorded), in log order."""
        self._queue.extend(items)

    def wanted(self, rows: Rows) -> list[Item]:
        """What of some rows of the log somebody here may want, as items; of the rest, where it
        ends."""
        items: list[Item] = []
        if self._queue or self._is_alone or self._gate_qos2:
            # Something may change before it is their turn, or it matters that nobody wants them.
            items += rows.messages()
            return items
        index = self._index
        looked = index.looked
        end = 0
        for row, topic in enumerate(rows.topics):
            found = index.match(topic)
            if found or index.looked != looked:
                # What a search costs is its publisher's, who stands in the message.
                index.looked = looked
                items += rows.messages_of(row)
                end = rows.offsets[row]
        if end != rows.offsets[-1]:
            items.append(Passed(rows.offsets[-1]))
        return items

    def run(self, synced_offset: int) -> None:
        """Dispatch what may go."""
        gate = self._gate_qos2
        # By place, and read afresh each time: what an item causes may add to the queue or reset it.
        while self._at < len(self._queue):
            item = self._queue[self._at]
            if gate and item.qos == 2 and item.offset > synced_offset:
                break
            if item.qos == 1 and isinstance(item, Message) and self._dispatch_run(item):
                continue
            self._at += 1
            if item.offset:
                self.offset = item.offset
            if isinstance(item, Message):
                self._dispatch(item)
            elif isinstance(item, InboxDelivery):
                if item.session.is_open:
                    try:
                        item.session.deliver_entry(item.entry)
                    except Exception as error:  # noqa: BLE001 - see ``_failed``
                        self._failed(item.session, item.offset, error)
            elif isinstance(item, InboxRunDelivery):
                if item.session.is_open:
                    try:
                        item.session.deliver_entries(item.entries)
                    except Exception as error:  # noqa: BLE001 - see ``_failed``
                        self._failed(item.session, item.entries[0].offset, error)
            elif isinstance(item, Barrier):
                self._gathering.hand_out()
                item.gate.open()
        self._gathering.hand_out()
        if self._at:
            if not self.published_us:
                first = self._queue[0]
                if isinstance(first, Message):
                    self.published_us = first.published_at_us
            del self._queue[: self._at]
            self._at = 0

    def time_search(self, topic: str, clock: Clock) -> None:
        """Find the subscribers of a topic past the cache, to know how long that takes."""
        index = self._index
        looked = index.looked
        begun_us = clock.monotonic_us()
        index.match_uncached(topic)
        self._metrics.subscription_match_seconds.observe(clock.monotonic_us() - begun_us)
        index.looked = looked  # nobody has caused it

    def waits_for_sync(self) -> bool:
        """Whether a message is held back until the next sync."""
        return self._at < len(self._queue)

    def open_barriers(self) -> None:
        """The store has failed: what is held back will not be handed out soon."""
        for item in self._queue[self._at :]:
            if isinstance(item, Barrier):
                item.gate.open()

    def reset(self, offset: int) -> None:
        """Storage has recovered: whatever was held back is read from the log instead."""
        queue = self._queue[self._at :]
        self._queue = []
        self._at = 0
        self.offset = offset
        for item in queue:
            if isinstance(item, Barrier):
                item.gate.open()
            if (
                isinstance(item, InboxDelivery)
                and item.session.is_open
                and not item.session.durable
            ):
                item.session.deliver_entry(item.entry)

    def _dispatch_run(self, first: Message) -> bool:
        """Hand messages that have the same subscribers to each of them in one step.

        Args:
            first: the next item.

        Returns:
            Whether ``first`` and some that follow it were handed out. Else it is alone, or
            something is to be decided for each message.
        """
        queue = self._queue
        at = self._at + 1
        if at >= len(queue):
            return False
        following = queue[at]
        if not isinstance(following, Message) or not is_plain(following) or not is_plain(first):
            return False
        topic, publisher = first.topic, first.publisher
        subscriber_sets = self._index.match(topic)
        if self._index.looked >= LOOKED_MIN:
            self._charge_search(first)
        if len(subscriber_sets) != 1:
            return False
        subscriber_set = subscriber_sets[0]
        if not subscriber_set.runs:
            return self._dispatch_run_to_group(first, subscriber_set)
        only = subscriber_set.only
        if only is None:
            return self._dispatch_run_to_all(first, subscriber_set)
        session = only.session
        room = session.room_for_run(first, only)  # decides on the first, too
        if room < 2:
            return False
        run = [first]
        while len(run) < room and at < len(queue):
            following = queue[at]
            if not isinstance(following, Message) or not is_plain(following):
                break
            if following.topic is not topic or following.publisher is not publisher:
                if following.topic is not topic:
                    topic = following.topic
                    found = self._index.match(topic)
                    if len(found) != 1 or found[0] is not subscriber_set:
                        break
                publisher = following.publisher
                if not session.may_have(following):
                    break
            run.append(following)
            at += 1
        try:
            count = session.deliver_run(run, only.identifiers)
        except Exception as error:  # noqa: BLE001 - see ``_failed``
            self._failed(session, first.offset, error)
            count = len(run)
        self._at += count
        self.offset = run[count - 1].offset
        return True

    def _dispatch_run_to_group(self, first: Message, subscriber_set: SubscriberSet) -> bool:
        """As ``_dispatch_run``, to the one group that wants them."""
        group = subscriber_set.only_group
        if group is None:
            return False
        queue = self._queue
        at = self._at + 1
        topic = first.topic
        run = [first]
        while at < len(queue) and len(run) < GROUP_RUN_MAX:
            following = queue[at]
            if not isinstance(following, Message) or not is_plain(following):
                break
            if following.topic is not topic:
                topic = following.topic
                found = self._index.match(topic)
                if len(found) != 1 or found[0] is not subscriber_set:
                    break
            run.append(following)
            at += 1
        self._at = at
        self.offset = run[len(run) - 1].offset
        try:
            group.deliver_run(run)
        except Exception as error:  # noqa: BLE001 - it reads the messages again
            group.failed(first, error)
        return True

    def _dispatch_run_to_all(self, first: Message, subscriber_set: SubscriberSet) -> bool:
        """Hand the messages of one publisher to one topic to each of their subscribers.

        Who cannot take all of them at once is given the rest message by message, while the fence
        moves with them.

        Args:
            first: the next item.
            subscriber_set: all who want it, with no group.

        Returns:
            Whether ``first`` and some that follow it were handed out.
        """
        queue = self._queue
        at = self._at + 1
        topic, publisher = first.topic, first.publisher
        run = [first]
        while at < len(queue):
            following = queue[at]
            if (
                not isinstance(following, Message)
                or following.topic is not topic
                or following.publisher is not publisher
                or not is_plain(following)
            ):
                break
            run.append(following)
            at += 1
        count = len(run)
        if count < 2:
            return False
        sessions = len(subscriber_set.sessions)
        self._charge(first, sessions, sessions * count)
        slow: list[SubscriberEntry] = []
        given: list[int] = []
        for entry in subscriber_set.sessions.values():
            session = entry.session
            done = 0
            try:
                room = session.room_for_run(first, entry)
                if room >= 2:
                    part = run if room >= count else run[:room]
                    done = session.deliver_run(part, entry.identifiers)
            except Exception as error:  # noqa: BLE001 - see ``_failed``
                self._failed(session, first.offset, error)
                continue
            if done < count:
                slow.append(entry)
                given.append(done)
        self._at += count
        if slow:
            self._dispatch_rest(run, slow, given)
        self.offset = run[count - 1].offset
        return True

    def _dispatch_rest(
        self, run: list[Message], slow: list[SubscriberEntry], given: list[int]
    ) -> None:
        """Hand out what is left of a run, of which each was given so many."""
        for number, message in enumerate(run):
            self.offset = message.offset
            for place, entry in enumerate(slow):
                if number >= given[place]:
                    try:
                        entry.session.deliver_one(message, entry)
                    except Exception as error:  # noqa: BLE001 - see ``_failed``
                        self._failed(entry.session, message.offset, error)

    def _dispatch(self, message: Message) -> None:
        subscriber_sets = self._index.match(message.topic)
        if self._index.looked >= LOOKED_MIN:
            self._charge_search(message)
        if not subscriber_sets:
            self._nobody(message)
            return
        if len(subscriber_sets) == 1:
            subscriber_set = subscriber_sets[0]
            only = subscriber_set.only
            if only is not None:
                try:
                    only.session.deliver_one(message, only)
                except Exception as error:  # noqa: BLE001 - see ``_failed``
                    self._failed(only.session, message.offset, error)
            elif subscriber_set.filtered:
                self._dispatch_overlapping(message, subscriber_sets)
            else:
                sessions = len(subscriber_set.sessions)
                self._charge(message, sessions, sessions + len(subscriber_set.groups))
                for entry in subscriber_set.sessions.values():
                    try:
                        entry.session.deliver_one(message, entry)
                    except Exception as error:  # noqa: BLE001 - see ``_failed``
                        self._failed(entry.session, message.offset, error)
        else:
            self._dispatch_overlapping(message, subscriber_sets)
        for subscriber_set in subscriber_sets:
            if subscriber_set.groups:
                self._gathering.deliver(message, subscriber_set.groups)

    def _nobody(self, message: Message) -> None:
        """No connected session and no group wants a message, here."""
        if not self._is_alone or is_own_topic(message.topic):
            return
        self._metrics.messages_dropped_no_subscriber += 1
        if message.qos == 1 and message.offset:
            if len(self.unmatched) >= UNMATCHED_MAX:
                # Publishers of 3.1.1 never ask. Whoever does is only told less by this.
                self.unmatched.clear()
            self.unmatched.add(message.offset)

    def _charge(self, message: Message, sessions: int, work: int) -> None:
        """Remember who has caused how much ``work``, in deliveries."""
        if sessions > self.widest:
            self.widest = sessions
        self.work += work
        caused = self.caused
        if len(caused) >= CAUSED_MAX:
            caused.clear()
        caused[message.publisher] = caused.get(message.publisher, 0) + work

    def _charge_search(self, message: Message) -> None:
        """Remember who has caused it to be searched for subscribers among many filters."""
        index = self._index
        self._charge(message, 0, index.looked >> LOOKED_SHIFT)
        index.looked = 0

    def _failed(self, session: Subscriber, offset: int, error: Exception) -> None:
        """Giving something to one session failed as nobody expected: that one ends, and takes
        nothing more, so that its order has no gap; what it is owed is in the log or its stream."""
        session.cut_off(offset - 1)
        session.failed(error, "delivery")

    def _dispatch_overlapping(self, message: Message, subscriber_sets: list[SubscriberSet]) -> None:
        found: dict[Subscriber, list[SubscriberEntry]] = {}
        work = 0
        for subscriber_set in subscriber_sets:
            # Ten thousand subscriptions of one session cost as much as those of many.
            work += len(subscriber_set.sessions) + len(subscriber_set.groups)
            for session, entry in subscriber_set.sessions.items():
                same = found.get(session)
                if same is None:
                    found[session] = [entry]
                else:
                    same.append(entry)
            if subscriber_set.filtered:
                add_filtered(self._evaluation, message, subscriber_set, found)
        if not found and not any(each.groups for each in subscriber_sets):
            self._nobody(message)
        self._charge(message, len(found), max(work, len(found)))
        for session, entries in found.items():
            try:
                if len(entries) == 1:
                    session.deliver_one(message, entries[0])
                else:
                    deliver_combined(session, message, entries)
            except Exception as error:  # noqa: BLE001 - see ``_failed``
                self._failed(session, message.offset, error)
