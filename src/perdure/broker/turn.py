"""One turn of the broker: everything that arrived together is committed, dispatched and sent
together.

``run`` is called once at the end of each turn of the event loop in which something happened:

1. cursors that moved join the batch; the batch is written (``commit``);
2. messages that are written are dispatched, in log order; QoS 2 ones once they are synced;
3. a sync is started if something waits for one;
4. each connection with something to say is written to, once.

Dispatching may add to the next batch (shares of groups), so 1 and 2 repeat until nothing is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from perdure.broker.commit import Committer
from perdure.broker.dispatch import Addressed, Barrier, Dispatcher, Item, Passed
from perdure.broker.scheduler import Scheduler
from perdure.errors import StorageError

if TYPE_CHECKING:
    from perdure.broker.live_session import LiveSession
    from perdure.broker.sender import Sender
    from perdure.broker.shared import SharedGroup

CURSOR_DELAY_US: Final = 5_000
"""A cursor that nothing waits for is written at the latest after this time: it costs a repeated
QoS 1 delivery after a kill, never a lost or a QoS 2 one."""


class Paused(Protocol):
    """A peer whose reading was paused until commits have caught up."""

    def commits_caught_up(self) -> None:
        """Read on."""
        ...


@final
class Turn:
    """Gathers what one turn of the event loop brought.

    Args:
        scheduler: runs the turn.
        committer: writes the batch.
        commit_queue_max: waiters beyond which peers pause.
    """

    def __init__(
        self, scheduler: Scheduler, committer: Committer, *, commit_queue_max: int
    ) -> None:
        self._scheduler = scheduler
        self._committer = committer
        self._commit_queue_max = commit_queue_max
        self.dispatcher: Dispatcher | None = None
        self.on_storage_failed: list[StorageFailureListener] = []
        self._scheduled: bool = False
        self._items: list[Item] = []
        self.now_us: int = 0
        """Wall time of this turn, microseconds; whoever brings something sets it."""
        self._dirty: dict[LiveSession, None] = {}  # in order: the same events, the same batch
        self._dirty_groups: dict[SharedGroup, None] = {}
        self._cursor_timer: bool = False
        self._cursors_due: bool = False
        self._senders: list[Sender] = []
        self._paused: list[Paused] = []
        committer.listener = self

    def schedule(self) -> None:
        """Make sure that this turn ends with ``run``."""
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.call_soon(self.run)

    def dispatch(self, item: Item) -> None:
        """Something was taken: dispatch it once its batch is written."""
        self._items.append(item)
        self.schedule()

    async def settled(self) -> None:
        """Wait until everything taken so far was handed out, or the store keeps it from that."""
        dispatcher = self.dispatcher
        assert dispatcher is not None
        if not self._committer.writable or not (self._items or dispatcher.waits_for_sync()):
            return
        gate = self._scheduler.gate()
        self.dispatch(Barrier(gate))
        await gate

    def flush_later(self, sender: Sender) -> None:
        """Write what the sender has gathered at the end of this turn."""
        self._senders.append(sender)
        if not self._scheduled:
            self.schedule()

    def dirty(self, session: LiveSession) -> None:
        """The cursor of a durable session has moved."""
        self._dirty[session] = None
        self._start_cursor_timer()

    def _start_cursor_timer(self) -> None:
        if not self._cursor_timer:
            self._cursor_timer = True
            self._scheduler.call_later(CURSOR_DELAY_US, self._cursor_timer_over)

    def put_cursor_now(self, session: LiveSession) -> None:
        """Add a session's cursor to the open batch: something waits for it."""
        if self._committer.writable:
            self._dirty.pop(session, None)
            session.put_cursor(self._committer.batch)

    def dirty_group(self, group: SharedGroup) -> None:
        """A group's position has moved; it is written like a cursor."""
        self._dirty_groups[group] = None
        self._start_cursor_timer()

    def clean(self, session: LiveSession) -> None:
        """The cursor was written by somebody else, or does not matter any more."""
        self._dirty.pop(session, None)

    def is_overloaded(self) -> bool:
        """Whether so much waits for a commit that peers must pause."""
        committer = self._committer
        return (
            committer.backlog() + len(self._items) > self._commit_queue_max
            or committer.is_store_full()
        )

    def pause(self, peer: Paused) -> None:
        """Tell the peer when commits have caught up."""
        self._paused.append(peer)

    def run(self) -> None:
        """End the turn."""
        dispatcher = self.dispatcher
        assert dispatcher is not None
        committer = self._committer
        self._scheduled = True  # what this run causes belongs to this run
        while True:
            self.write()
            dispatcher.run(committer.synced_offset)
            if committer.batch.is_empty() and not self._items:
                if dispatcher.waits_for_sync() and committer.catch_up():
                    continue
                break
        if dispatcher.waits_for_sync():
            committer.want_sync()
        committer.sync_if_due()
        self._scheduled = False
        senders = self._senders
        self._senders = []
        for sender in senders:
            sender.flush()

    def write(self) -> None:
        """Write the open batch, so that reads see it; what it brought may be dispatched then."""
        committer = self._committer
        if (self._dirty or self._dirty_groups) and (
            self._cursors_due or not committer.batch.is_empty()
        ):
            self._put_cursors()
        items = self._items
        self._items = []
        assert self.dispatcher is not None
        if committer.write():
            self.dispatcher.accept(items)
        else:
            self.dispatcher.accept(_without_store(items))
            self.dispatcher.open_barriers()

    def synced(self) -> None:
        """A sync has finished (from the committer)."""
        dispatcher = self.dispatcher
        assert dispatcher is not None
        dispatcher.run(self._committer.synced_offset)
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

    def _put_cursors(self) -> None:
        self._cursors_due = False
        if not self._committer.writable:
            return
        dirty = self._dirty
        self._dirty = {}
        batch = self._committer.batch
        for session in dirty:
            session.put_cursor(batch)
        groups = self._dirty_groups
        self._dirty_groups = {}
        for group in groups:
            group.put(batch)

    def _cursor_timer_over(self) -> None:
        self._cursor_timer = False
        if self._dirty or self._dirty_groups:
            if not self._committer.writable:
                self._cursor_timer = True
                self._scheduler.call_later(CURSOR_DELAY_US * 20, self._cursor_timer_over)
                return
            self._cursors_due = True
            self.schedule()


class StorageFailureListener(Protocol):
    """Who must know that the store has failed."""

    def storage_failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """Writes are refused until the store has recovered.

        Args:
            error: what the store said.
            in_doubt: what was written and not synced may be lost.
        """
        ...


def _without_store(items: list[Item]) -> list[Item]:
    """What can still be dispatched although its batch was refused: QoS 0, and what is addressed
    to sessions that live in memory alone."""
    kept: list[Item] = []
    for item in items:
        if isinstance(item, Addressed):
            if item.session.durable:
                item.session.addressed -= 1
            else:
                kept.append(item)
        elif isinstance(item, Passed):
            continue
        elif not item.offset and not item.qos:
            kept.append(item)
    return kept
