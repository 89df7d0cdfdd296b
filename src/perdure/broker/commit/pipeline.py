"""One turn of the broker: everything that arrived together is committed, dispatched and sent
together.

``_end`` is called at the end of each turn of the event loop in which something happened. It does
all of this (``run``), but while the open batch gathers (``Committer.gathers``) only the last of it:

1. cursors that moved join the batch (``cursors``); the batch is submitted (``committer``);
2. a sync is started if something waits for one, and runs beside all that follows;
3. messages that are sequenced are dispatched, in log order; QoS 2 ones once they are synced;
4. each connection with something to say is written to, once. Where a message goes to many, who
   waits for a sync that has finished meanwhile comes first: its publisher goes on while it is sent
   (``senders``).

Dispatching may add to the next batch (shares of groups), so 1 to 3 repeat until nothing is left.
In the end the loop lingers if that pays (``Committer.linger``). Whoever calls ``run`` from
elsewhere has its own to go on with, so there is no linger in it.

Invariant: what was taken and not written has an ``_end`` to come, or gathers and will have one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, final

from perdure.broker.commit.admission import Admission, Paused
from perdure.broker.commit.committer import Committer
from perdure.broker.commit.cursors import CursorWriter
from perdure.broker.commit.senders import LONG_US, Flushed, Senders
from perdure.broker.commit.waiters import CommitListener
from perdure.broker.dispatch.dispatcher import Dispatcher
from perdure.broker.dispatch.items import (
    Barrier,
    InboxDelivery,
    InboxRunDelivery,
    Item,
    OffsetAdvance,
)
from perdure.broker.runtime.scheduler import Scheduler
from perdure.broker.runtime.turn_budget import TurnBudget
from perdure.clock import SteadyClock
from perdure.errors import StorageError
from perdure.model import Message
from perdure.observe.metrics import Metrics
from perdure.storage.batch import Batch

WALL_READ_US: Final = 1_000
"""How often the wall clock is looked at while bytes come from clients: a clock that was set is
noticed so much later."""

GATHERED_MAX: Final = 256
"""Items that are written and dispatched at once: more of them would share nothing that counts."""

GATHERED_LATE_MAX: Final = 2_048
"""As many where the log is somewhere else: a batch costs all nodes there, whatever is in it."""

SEARCH_TURNS: Final = 256
"""Turns in which a search for subscribers is timed once: it takes some microseconds."""

MANY_SESSIONS: Final = 16
"""Sessions that one message goes to, before which it pays to ask whether the sync has finished."""


@final
class CommitPipeline(CommitListener):
    """Gathers what one turn of the event loop brought.

    Args:
        scheduler: runs the turn.
        committer: writes the batch.
        clock: the broker's time.
        metrics: counts how soon messages are sent.
        commit_queue_max: waiters beyond which peers pause.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        committer: Committer,
        clock: SteadyClock,
        metrics: Metrics,
        *,
        commit_queue_max: int,
    ) -> None:
        self._scheduler = scheduler
        self._committer = committer
        self._clock: SteadyClock = clock
        self._metrics: Metrics = metrics
        self._delivered: int = 0
        """Messages that were sent up to the end of the last turn."""
        self._search_due: int = 0
        """The turn in which a search for subscribers is timed next."""
        self._steady_times: bool = committer.steady_times
        self._commit_queue_max = commit_queue_max
        self._gathered_max: int = GATHERED_LATE_MAX if committer.sequences_late else GATHERED_MAX
        self.dispatcher: Dispatcher | None = None
        self.turn_budget: TurnBudget = TurnBudget(scheduler, committer.clock)
        """Who has work left for the next turn."""
        self.on_storage_failed: list[StorageFailureListener] = []
        self.on_refused: Callable[[str, int], None] | None = None
        """Told of sessions that a later owner has, and of the epoch that has lost them."""
        self.on_silenced: Callable[[Batch], None] | None = None
        """Told of batches in which publishers have said what does not count."""
        self.on_regrouped: Callable[[Batch], None] | None = None
        """Told of batches in which groups gave what does not count."""
        self.number: int = 0
        """Turns so far."""
        self._scheduled: bool = False
        self._gathering: bool = False
        """The open batch gathers: it needs no turn of its own for what is added to it."""
        self._items: list[Item] = []
        self._placed: list[Item] = []
        """What is dispatched behind the messages of the batch, for there its offsets are."""
        self.now_us: int = 0
        """Steady time of this turn, microseconds, which deadlines go by; whoever brings something
        sets it."""
        self._read_us: int = -WALL_READ_US
        """Monotonic time at which ``arrived`` looked at the wall clock last."""
        self._senders: Senders = Senders(scheduler, committer.clock)
        self._paused: list[Paused] = []
        self.admission: Admission = Admission()
        """Who is read from while sessions are behind."""
        self.cursors: CursorWriter = CursorWriter(scheduler, committer, self.schedule)
        """Who wants a cursor written."""
        committer.listener = self

    def arrived(self, monotonic_us: int) -> None:
        """Bytes came from a client: set the time of the turn.

        Args:
            monotonic_us: now.
        """
        self.cursors.arrived_us = monotonic_us
        if monotonic_us - self._read_us >= WALL_READ_US:
            self._read_us = monotonic_us
            self._clock.look()
        self.now_us = self._clock.at(monotonic_us)

    def wall_us(self) -> int:
        """Wall time of this turn, microseconds: what offsets and people go by."""
        return self.now_us + self._clock.skew_us

    def published_us(self) -> int:
        """Time of publishing of what is taken in this turn: the wall's, or where the
        store has queues (``SessionQueues``) the steady one."""
        return self.now_us if self._steady_times else self.now_us + self._clock.skew_us

    def replayed(self, messages: list[Message]) -> None:
        """Messages that were read from the log have been given to who is behind; at least one."""
        age_us = self.published_us() - messages[0].published_at_us
        self._metrics.publish_to_delivery_seconds_replay.observe(max(0, age_us))

    def schedule(self) -> None:
        """Make sure that something is done at the end of this turn."""
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.call_soon(self._end)

    def dispatch(self, message: Message) -> None:
        """A message was taken: dispatch it once its batch is sequenced."""
        self._items.append(message)
        self._taken()

    def withdraw(self, publisher: str) -> None:
        """What a publisher has said is taken out of the open batch: nothing of it is dispatched."""
        self._items = [
            each
            for each in self._items
            if not (isinstance(each, Message) and each.publisher == publisher)
        ]

    def dispatch_placed(self, item: Item) -> None:
        """Something was placed in the batch, in the order of ``Batch.place``: as ``dispatch``."""
        self._placed.append(item)
        self._taken()

    def dispatch_run(self, messages: list[Message]) -> None:
        """Messages were taken that came together: dispatch them once their batch is written."""
        self._items.extend(messages)
        self._taken()

    def _taken(self) -> None:
        if not self._scheduled and (not self._gathering or self._is_enough()):
            self.schedule()

    def _taken_count(self) -> int:
        return len(self._items) + len(self._placed)

    def _is_enough(self) -> bool:
        return self._taken_count() >= self._gathered_max or self.turn_budget.is_spent

    async def settled(self) -> None:
        """Wait until everything taken so far was handed out, or the store keeps it from that."""
        dispatcher = self.dispatcher
        assert dispatcher is not None
        committer = self._committer
        if not committer.writable:
            return
        if not (self._taken_count() or committer.has_submitted or dispatcher.waits_for_sync()):
            return
        gate = self._scheduler.gate()
        self.dispatch_placed(Barrier(gate))
        await gate

    async def committed(self) -> None:
        """``run``, then wait until all of it is sequenced: reads see it then."""
        self.run()
        if self._committer.has_submitted:
            await self._committer.sequenced()

    def flush_later(self, sender: Flushed) -> None:
        """Write what the sender has gathered at the end of this turn."""
        self._senders.add(sender)
        if not self._scheduled:
            self.schedule()

    def is_overloaded(self) -> bool:
        """Whether so much waits for a commit that peers must pause."""
        committer = self._committer
        return (
            committer.backlog() + self._taken_count() > self._commit_queue_max
            or committer.log_sync.is_full()
        )

    def pause(self, peer: Paused) -> None:
        """Tell the peer when commits have caught up."""
        self._paused.append(peer)

    def _end(self) -> None:
        """End the turn as the loop asks for it."""
        self.number += 1
        dispatcher = self.dispatcher
        assert dispatcher is not None
        if not self._is_enough() and self._committer.gathers():
            self._gathering = True
            self._finish()
        else:
            count, begun_us = self._taken_count(), self._committer.clock.monotonic_us()
            self._commit()
            self._finish(polls=self._pays_to_poll(begun_us))
            elapsed_us = self._committer.clock.monotonic_us() - begun_us
            self.turn_budget.handed_out(count, dispatcher.work, elapsed_us)
            dispatcher.work = 0
        self._admit()
        self._scheduler.turn_ended()
        self._linger()

    def _admit(self) -> None:
        """Go on to read from some of those that wait for it."""
        assert self.dispatcher is not None
        now_us = self._committer.clock.monotonic_us()
        if self.admission.end_turn(now_us, self.dispatcher.offset):
            self.schedule()

    def _linger(self) -> None:
        """Let what comes next gather, if it does; what a sync allows is sent at once."""
        committer = self._committer
        # Who has asked for another turn while this one sent does not have to wait. A turn that a
        # sync asks for does: it comes when the linger is over, and mostly finds nothing to do.
        # Nor does who has work left (``turn_budget``): the loop comes round for that.
        while not self._scheduled and committer.linger(
            gathering=self._gathering, still=not self.turn_budget.is_busy
        ):
            self._finish()

    def commit_due(self) -> None:
        """The open batch may have gathered long enough (from the committer)."""
        if not self._scheduled:
            self._end()

    def run(self) -> None:
        """Write and dispatch everything, and end the turn."""
        self._commit()
        self._finish(in_turn=False)

    def _commit(self) -> None:
        """Write and dispatch everything."""
        dispatcher = self.dispatcher
        assert dispatcher is not None
        committer = self._committer
        self._scheduled = True  # what this run causes belongs to this run
        if self._items and self.number >= self._search_due:
            first = self._items[0]
            if isinstance(first, Message):
                self._search_due = self.number + SEARCH_TURNS
                dispatcher.time_search(first.topic, committer.clock)
        while True:
            self.write()
            committer.sync_awaited()
            dispatcher.run(committer.log_sync.offset)
            if committer.batch.is_empty() and not self._taken_count():
                if dispatcher.waits_for_sync() and committer.catch_up():
                    continue
                break

    def _pays_to_poll(self, begun_us: int) -> bool:
        """Whether who waits for a sync would wait for much else otherwise.

        Args:
            begun_us: when this turn began to write.
        """
        committer, dispatcher = self._committer, self.dispatcher
        assert dispatcher is not None
        if dispatcher.widest >= MANY_SESSIONS and not committer.pacer.spaced:
            return True
        return committer.clock.monotonic_us() - begun_us >= LONG_US

    def _finish(self, *, polls: bool = False, in_turn: bool = True) -> None:
        """Sync if it is time, and send.

        Args:
            polls: what a sync has done may be answered before the others are sent to.
            in_turn: the same while they are sent to.
        """
        dispatcher = self.dispatcher
        assert dispatcher is not None
        if dispatcher.waits_for_sync():
            self._committer.log_sync.is_wanted = True
        self._committer.sync_if_due()
        self._scheduled = False
        dispatcher.widest = 0
        if polls:
            self._senders.hear()
        self._senders.send(hears=in_turn)
        delivered = self._metrics.messages_delivered
        if dispatcher.published_us:
            if delivered != self._delivered:
                self._sent_live(dispatcher.published_us)
            dispatcher.published_us = 0
        self._delivered = delivered

    def _sent_live(self, published_us: int) -> None:
        """Messages of this turn were sent, the first of which was published then."""
        now_us = self._clock.at(self._committer.clock.monotonic_us())
        if not self._steady_times:
            now_us += self._clock.skew_us
        self._metrics.publish_to_delivery_seconds_live.observe(max(0, now_us - published_us))

    def write(self) -> None:
        """Write the open batch, so that reads see it; what it brought may be dispatched then."""
        committer = self._committer
        self._gathering = False
        items = self._items
        self._items = []
        if self._placed:
            items += self._placed
            self._placed = []
        if self.cursors.positions_due or not committer.batch.is_empty():
            self.cursors.join_batch(len(items))
        if not committer.write(items, self.wall_us()):
            assert self.dispatcher is not None
            self.dispatcher.accept(_without_store(items, self.dispatcher.offset))
            self.dispatcher.open_barriers()

    def sequenced(self, items: list[Item]) -> None:
        """A batch has its offsets (from the committer)."""
        assert self.dispatcher is not None
        self.dispatcher.accept(items)

    def lost(self, items: list[Item]) -> None:
        """The store has failed with a batch on its way (from the committer)."""
        for item in items:
            if isinstance(item, Barrier):
                item.gate.open()

    def refused(self, client_id: str, epoch: int) -> None:
        """A session has a later owner (from the committer)."""
        if self.on_refused is not None:
            self.on_refused(client_id, epoch)

    def silenced(self, batch: Batch) -> None:
        """Publishers have later owners (from the committer)."""
        if self.on_silenced is not None:
            self.on_silenced(batch)

    def regrouped(self, batch: Batch) -> None:
        """Groups did not give what a batch says (from the committer)."""
        if self.on_regrouped is not None:
            self.on_regrouped(batch)

    def synced(self) -> None:
        """A sync has finished, or the log has given something back (from the committer)."""
        dispatcher = self.dispatcher
        assert dispatcher is not None
        self.now_us = self._clock.now_us()  # it may have taken long
        dispatcher.run(self._committer.log_sync.offset)
        if self._paused and self._committer.backlog() <= self._commit_queue_max // 2:
            paused = self._paused
            self._paused = []
            for peer in paused:
                peer.commits_caught_up()
        self.schedule()

    def storage_failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """The store refuses writes (from the committer)."""
        for listener in self.on_storage_failed:
            listener.storage_failed(error, in_doubt=in_doubt)
        if self.dispatcher is not None:
            self.dispatcher.open_barriers()
        paused = self._paused
        self._paused = []
        for peer in paused:
            peer.commits_caught_up()


class StorageFailureListener(Protocol):
    """Who must know that the store has failed."""

    def storage_failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """Writes are refused until the store has recovered.

        Args:
            error: what the store said.
            in_doubt: what was written and not synced may be lost.
        """
        ...


def _without_store(items: list[Item], fence: int) -> list[Item]:
    """What can still be dispatched although its batch was refused: QoS 0, and what is addressed
    to sessions that live in memory alone, at the end of what was dispatched."""
    kept: list[Item] = []
    for item in items:
        if isinstance(item, InboxDelivery):
            if item.session.durable:
                item.session.inbox_queued -= 1
            else:
                if not item.entry.offset:
                    item.entry.offset = fence
                kept.append(item)
        elif isinstance(item, InboxRunDelivery):
            item.session.inbox_queued -= len(item.entries)
        elif isinstance(item, OffsetAdvance):
            continue
        elif not item.offset and not item.qos:
            kept.append(item)
    return kept
