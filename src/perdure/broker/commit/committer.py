"""Group commit: one batch gathers while the one before it is synced.

Everything that must be durable before the peer hears of it *waits* here: the waiters of a batch
are called in order once it has reached their level, and fail together if it has not.

Order of one turn (``CommitPipeline``): submit the batch -> (it is sequenced) call what waits for
the write -> dispatch -> start a sync if none is running. What is in brackets happens in ``submit``
where the store is in this process; elsewhere the log gives the batch back later, in the order of
submission. Before that nothing in it has an offset, and nobody is told of it. Sketch for 1000
messages in a
commit: 1 write(2) of about 200 KiB, 1 fdatasync (0.1 to 5 ms), 2 thread hand-overs (about 0.1 ms
CPU), no allocation but the batch itself.

While commits are spaced (``pacer``), a batch that follows another within ``interval_us`` gathers:
it is written when the interval is over or when enough waits for it, so that sparse messages share a
write(2) and a sync. Else it is written at once. What is written is synced as soon as no other sync
runs. With many messages in an interval the loop *lingers* until it is over: one look at all sockets
then finds what looks in between would have found one by one.

Invariant: while a batch gathers, a timer or a linger is under way that ends in ``commit_due``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, final

from perdure.broker.commit.pacer import CommitPacer
from perdure.broker.runtime.scheduler import Gate, Scheduler, Timer
from perdure.clock import Clock
from perdure.errors import StorageError
from perdure.observe.instruments import add
from perdure.observe.metrics import Metrics
from perdure.storage.batch import Batch
from perdure.storage.capabilities import LoopSync
from perdure.storage.contract import Database

if TYPE_CHECKING:
    from perdure.broker.dispatch.dispatcher import Item

LEVEL_MEMORY: Final = 0
LEVEL_OS: Final = 1
LEVEL_FSYNC: Final = 2
LEVELS: Final = {"memory": LEVEL_MEMORY, "os": LEVEL_OS, "fsync": LEVEL_FSYNC}

BACKGROUND_SYNC_US: Final = 1_000_000
"""Below ``fsync`` the log is still synced once a second, so that a power cut costs little."""

TIMER_GRAIN_US: Final = 1_000
"""Resolution of the loop's timers."""

LINGER_US_MIN: Final = 50
"""A shorter linger saves less than it costs."""

LINGER_US_MAX: Final = 5_000
"""A longer one is taken in parts, for all else on the loop waits for its end."""


class Waiter(Protocol):
    """Something that happens only after a commit."""

    def committed(self) -> None:
        """The batch is durable at the level that was asked for."""
        ...

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """The batch is not durable.

        Args:
            error: what the store said.
            in_doubt: it was written and the sync failed: it may or may not survive.
        """
        ...

    def broke(self, error: Exception) -> None:
        """Hearing of it has failed as nobody expected, which costs this one alone."""
        ...


class CommitListener(Protocol):
    """Who is told how far commits have come (the turn)."""

    def sequenced(self, items: list[Item]) -> None:
        """A batch has its offsets: what was taken with it may be dispatched."""
        ...

    def lost(self, items: list[Item]) -> None:
        """The store has failed before it gave a batch back: these are not dispatched."""
        ...

    def refused(self, client_id: str) -> None:
        """Another owner has a session that something was submitted for."""
        ...

    def commit_due(self) -> None:
        """The spacing may be over: ``gathers`` tells."""
        ...

    def synced(self) -> None:
        """A sync has finished, or a batch came back late: more may be dispatched."""
        ...

    def storage_failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """The store refuses writes from now on; ``in_doubt``: what was not synced may be lost."""
        ...


@final
class _Signal:
    """A waiter for a coroutine."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.error: StorageError | None = None

    def committed(self) -> None:
        self.gate.open()

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        self.error = error
        self.gate.open()

    def broke(self, error: Exception) -> None:
        raise error  # a gate opens


def _notify(waiters: list[Waiter]) -> None:
    """Say that a batch is durable: what one does about it is not to keep it from those behind."""
    for waiter in waiters:
        try:
            waiter.committed()
        except Exception as error:  # noqa: BLE001 - it costs the client that it is about
            waiter.broke(error)


def _notify_failed(waiters: list[Waiter], reason: StorageError, *, in_doubt: bool) -> None:
    """Say that a batch is not durable."""
    for waiter in waiters:
        try:
            waiter.failed(reason, in_doubt=in_doubt)
        except Exception as error:  # noqa: BLE001 - as above
            waiter.broke(error)


@final
class _Waiters:
    """Who waits, in order, and for how much: one may stand for many messages."""

    __slots__ = ("count", "waiters")

    def __init__(self) -> None:
        self.waiters: list[Waiter] = []
        self.count: int = 0

    def add(self, waiter: Waiter, count: int) -> None:
        """Add one who waits for ``count`` things, at least one."""
        self.waiters.append(waiter)
        self.count += count

    def join(self, others: _Waiters) -> None:
        """Take over all of ``others``."""
        self.count += others.count
        self.waiters.extend(others.take())

    def take(self) -> list[Waiter]:
        """All of them, who wait here no more."""
        waiters = self.waiters
        self.waiters = []
        self.count = 0
        return waiters


@final
class _Submission:
    """A batch on its way through the log, and what happens when it is sequenced.

    Args:
        batch: what was submitted; None = there was nothing to submit, and what is here waits for
            what stands before it.
        items: to be dispatched.
        written: who waits for the write.
        waiting: who waits for a sync after it.
    """

    __slots__ = ("batch", "items", "waiting", "written")

    def __init__(
        self, batch: Batch | None, items: list[Item], written: list[Waiter], waiting: _Waiters
    ) -> None:
        self.batch: Batch | None = batch
        self.items: list[Item] = items
        self.written: list[Waiter] = written
        self.waiting: _Waiters = waiting

    @property
    def is_sequenced(self) -> bool:
        """Whether it has passed the log."""
        return self.batch is None or self.batch.is_sequenced


@final
class Committer:
    """Owns the open batch, those that the log has not given back yet, and their waiters.

    Args:
        database: where batches go.
        scheduler: for the sync thread and the spacing of commits.
        clock: monotonic time.
        metrics: counts commits and their size.
        interval_us: least time between two commits under load, microseconds.
        messages_max: messages that cause a commit at once.
    """

    def __init__(
        self,
        database: Database,
        scheduler: Scheduler,
        clock: Clock,
        metrics: Metrics,
        *,
        interval_us: int,
        messages_max: int,
    ) -> None:
        self._database = database
        self._loop_sync: LoopSync | None = database.capabilities.loop_sync
        self.steady_times: bool = database.capabilities.queues is not None
        """Messages keep the steady time at which they were published, not the wall's."""
        self._scheduler = scheduler
        self.clock: Clock = clock
        self._metrics = metrics
        self._interval_us = interval_us
        self._messages_max = messages_max
        self.listener: CommitListener | None = None
        self.pacer: CommitPacer = CommitPacer(interval_us)
        # The lowest level that only a sync gives.
        keeps_written = database.capabilities.keeps_written
        self._safe_level: int = LEVEL_FSYNC if keeps_written else LEVEL_OS
        self.sequences_late: bool = database.capabilities.sequences_late
        """A batch may be sequenced after it was submitted."""
        self.batch: Batch = Batch()
        self._submitted: deque[_Submission] = deque()
        self._sequencing: bool = False
        self._submitted_count: int = 0
        """Things that are waited for in what was submitted and is not sequenced."""
        self.writable: bool = True
        """Whether the store takes writes; False between a failure and its recovery."""
        self.failure: StorageError | None = None
        """Why it does not: the first failure since it did."""
        self.failure_count: int = 0
        """Writes and syncs that failed: who writes in several steps sees that one is missing."""
        self.synced_offset: int = database.last_offset
        """Everything in the log up to here is safe against power loss."""
        self.notified_us: int = 0
        """Monotonic time at which waiters were called last."""
        self._memory: list[Waiter] = []
        self._written: _Waiters = _Waiters()
        self._waiting: _Waiters = _Waiters()
        self._unsynced: _Waiters = _Waiters()
        self._syncing: _Waiters = _Waiters()
        self._sync_running: bool = False
        self._timer: Timer | None = None
        self._timer_due_us: int = 0
        self._is_due: bool = False
        """A timer or a linger is over, a little early perhaps: what it was for is due."""
        self._spaced_from_us: int = -interval_us
        """From when the distance to the next commit counts."""
        self._sync_wanted: bool = False
        self._sync_offset: int = 0
        self._sync_started_us: int = 0
        self._unsynced_writes: bool = False
        database.on_sequenced = self._sequenced_late
        self._written_offset: int = database.last_offset
        """No offset up to here belongs to the open batch."""

    def wait(self, waiter: Waiter, level: int, count: int = 1) -> None:
        """Call ``waiter``, who waits for ``count`` things, when the open batch has reached
        ``level``."""
        if level >= self._safe_level:
            self._waiting.add(waiter, count)
        elif level == LEVEL_OS:
            self._written.add(waiter, count)
        else:
            self._memory.append(waiter)

    def is_idle(self) -> bool:
        """Whether nothing is open, waiting or being synced."""
        return (
            self.batch.is_empty()
            and not self._submitted
            and not self._waiting.count
            and not self._unsynced.count
            and not self._written.count
            and not self._memory
            and not self._sync_running
            and not self._unsynced_writes
        )

    def backlog(self) -> int:
        """What a sync has still to make durable: messages and other things waited for."""
        return (
            self._waiting.count + self._submitted_count + self._unsynced.count + self._syncing.count
        )

    def is_store_full(self) -> bool:
        """Whether the store is so far behind that peers must pause."""
        loop_sync = self._loop_sync
        return loop_sync is not None and loop_sync.is_full

    def gathers(self) -> bool:
        """Whether the open batch stays open for more: ``linger`` must follow if it does."""
        if self._is_due or not self.pacer.spaced or not self.writable or self.batch.is_empty():
            return False
        if self._waiting.count >= self._messages_max:
            return False
        now_us = self.clock.monotonic_us()
        if now_us >= self._spaced_from_us + self._interval_us:
            return False
        self._answer_memory()
        return True

    def linger(self, *, gathering: bool, still: bool = True) -> bool:
        """Let the spacing go by: the last thing that a turn does.

        Args:
            gathering: the open batch gathers, so ``commit_due`` must come when it should be
                written, also if it has stopped to gather meanwhile.
            still: the loop may stand still meanwhile; False if it has something to do.

        Returns:
            Whether a sync has ended the linger: what it allows is to be sent, and the linger to be
            gone on with.
        """
        pacer = self.pacer
        # What the loop waits for does not come while it stands still.
        still = still and self._loop_sync is None and not self.sequences_late
        lingers = still and pacer.lingers and pacer.spaced and self.writable
        if not lingers and not gathering:
            return False
        now_us = self.clock.monotonic_us()
        due_us = max(self._spaced_from_us + self._interval_us, now_us)
        left_us = due_us - now_us
        if lingers and left_us >= LINGER_US_MIN:
            return self._scheduler.linger(min(left_us, LINGER_US_MAX), self._linger_over)
        if gathering:
            self._wake_at(due_us, now_us)
        return False

    def _answer_memory(self) -> None:
        memory = self._memory
        if memory:
            self._memory = []
            self.notified_us = self.clock.monotonic_us()
            _notify(memory)

    def write(self, items: list[Item], wall_us: int) -> bool:
        """Submit the open batch; once it is sequenced its ``os`` waiters are called, and the
        listener gets the items. False if the store refused it.

        After a refusal nothing of the batch is there, all its waiters have failed, and the items
        are the caller's.

        Args:
            items: what was taken with the batch.
            wall_us: wall time.
        """
        self._answer_memory()
        batch = self.batch
        has_waiters = self._waiting.count or self._written.count
        if not self.writable and (has_waiters or not batch.is_empty() or batch.placed):
            # Who waits with nothing to write waits for state that could not be added to a batch.
            self.batch = Batch()
            assert self.failure is not None
            self._fail_open(self.failure)
            return False
        is_empty = batch.is_empty()
        if is_empty and not batch.placed:
            if has_waiters or items:
                self._submitted.append(self._submission(None, items))
                self._sequence()
            elif not self._submitted:
                self._written_offset = self._database.last_offset
            return True
        self.batch = Batch()
        begun_us = self.clock.monotonic_us()
        try:
            self._database.submit(batch, wall_us)
        except StorageError as error:
            self._fail_open(error)
            return False
        if not is_empty:
            self._unsynced_writes = True
            written_us = self.clock.monotonic_us()
            self._space_from(written_us)
            self._metrics.storage_append_seconds.observe(written_us - begun_us)
            if self._interval_us:
                self.pacer.written(
                    self._waiting.count + self._written.count,
                    self._metrics.messages_delivered,
                    written_us,
                )
        self._submitted.append(self._submission(batch, items))
        self._sequence()
        return True

    def _space_from(self, written_us: int) -> None:
        """A commit was written: the next one is due an interval after this one *was due*, so that
        commits keep a beat and what a turn takes to read and write does not come on top of it. A
        turn that took more than half the interval sets a new beat."""
        due_us = self._spaced_from_us + self._interval_us
        is_on_beat = self.pacer.spaced and 0 <= written_us - due_us <= self._interval_us // 2
        self._spaced_from_us = due_us if is_on_beat else written_us

    def _submission(self, batch: Batch | None, items: list[Item]) -> _Submission:
        waiting = self._waiting
        self._waiting = _Waiters()
        self._submitted_count += waiting.count
        return _Submission(batch, items, self._written.take(), waiting)

    def _sequence(self) -> None:
        """Go on with what has passed the log, in the order in which it was submitted."""
        if self._sequencing:
            return  # what one of its waiters has caused comes after it
        self._sequencing = True
        try:
            while self._submitted and self._submitted[0].is_sequenced:
                self._go_on(self._submitted.popleft())
        finally:
            self._sequencing = False

    def _go_on(self, submission: _Submission) -> None:
        batch = submission.batch
        if not self._submitted:
            self._written_offset = self._database.last_offset
        elif batch is not None:
            self._written_offset = max(self._written_offset, batch.last_offset)
        if batch is not None and batch.refused and self.listener is not None:
            # Before anybody is answered: who lost a session gets no acknowledgement in it.
            for client_id in sorted({operation.client_id for operation in batch.refused}):
                self.listener.refused(client_id)
        if submission.waiting.count:
            self._submitted_count -= submission.waiting.count
            self._unsynced.join(submission.waiting)
        if submission.written:
            self.notified_us = self.clock.monotonic_us()
            _notify(submission.written)
        if submission.items and self.listener is not None:
            self.listener.sequenced(submission.items)

    def _sequenced_late(self) -> None:
        """The log has given batches back (from the database)."""
        self._unsynced_writes = True
        self._sequence()
        if self.listener is not None:
            self.listener.synced()

    @property
    def has_submitted(self) -> bool:
        """Whether the log has still to give something back."""
        return bool(self._submitted)

    async def submit_aside(self, batch: Batch, wall_us: int) -> None:
        """Submit a batch that is not the open one, and wait until it is sequenced (where there are
        no turns: at start, and before the store is taken for writable again).

        Raises:
            StorageError: nothing of it was applied.
        """
        self._database.submit(batch, wall_us)
        if batch.is_sequenced:
            self._written_offset = self._database.last_offset
            return
        self._submitted.append(_Submission(batch, [], [], _Waiters()))
        await self.sequenced()

    async def sequenced(self) -> None:
        """Wait until the log has given back what was submitted so far, or the store has failed:
        whoever reads what it has written waits for this."""
        if self._submitted:
            signal = _Signal(self._scheduler.gate())
            self._submitted.append(_Submission(None, [], [signal], _Waiters()))
            await signal.gate

    async def sync_now(self) -> None:
        """Wait until everything written so far is safe against power loss.

        Raises:
            StorageError: it is not.
        """
        signal = _Signal(self._scheduler.gate())
        self._unsynced.add(signal, 1)
        self.sync_if_due()
        await signal.gate
        if signal.error is not None:
            raise signal.error

    def want_sync(self) -> None:
        """Something written waits for a sync without a waiter of its own (QoS 2 dispatch)."""
        self._sync_wanted = True

    def catch_up(self) -> bool:
        """Move ``synced_offset`` past offsets that nothing was written for. False if none.

        What is addressed to a session in memory takes an offset too. With all writes synced
        it waits for nothing, and no sync would come to let it go.
        """
        if self._sync_running or self._unsynced_writes or not self.writable:
            return False
        if self._written_offset <= self.synced_offset:
            return False
        self.synced_offset = self._written_offset
        return True

    def sync_awaited(self) -> None:
        """Start a sync if somebody waits for what was written just now."""
        if (
            self._unsynced.count
            and self._unsynced_writes
            and not self._sync_running
            and self.writable
        ):
            self._start_sync()

    def sync_if_due(self) -> None:
        """Start a sync if anything waits for one: what is written was spaced already."""
        self._is_due = False
        if self._sync_running or not self.writable:
            return
        if self._unsynced.count and not self._unsynced_writes:
            # Nothing was written since the last sync, so all of it is durable already.
            self.notified_us = self.clock.monotonic_us()
            _notify(self._unsynced.take())
        if not self._unsynced_writes:
            return
        if self._unsynced.count or self._sync_wanted:
            self._start_sync()
            return
        now_us = self.clock.monotonic_us()
        due_us = self._sync_started_us + BACKGROUND_SYNC_US
        if now_us >= due_us:
            self._start_sync()
        else:
            self._wake_at(due_us, now_us)

    def _wake_at(self, due_us: int, now_us: int) -> None:
        """Have ``commit_due`` called; the earliest time wins."""
        if self._timer is not None:
            if due_us >= self._timer_due_us:
                return
            # A background sync is far off; a waiter must not wait for that one.
            self._timer.cancel()
        self._timer_due_us = due_us
        self._timer = self._scheduler.call_later(due_us - now_us, self._timer_over)

    def _timer_over(self) -> None:
        self._timer = None
        self._spacing_over()

    def _linger_over(self) -> None:
        if not self.batch.is_empty():
            self._spacing_over()

    def _spacing_over(self) -> None:
        # Timers are early by up to a millisecond, and what this one was set for may be done.
        spaced_us = self.clock.monotonic_us() + TIMER_GRAIN_US - self._interval_us
        self._is_due = spaced_us >= self._spaced_from_us
        if self.listener is not None:
            self.listener.commit_due()
        else:
            self.sync_if_due()

    def _start_sync(self) -> None:
        self._sync_running = True
        self._sync_started_us = self.clock.monotonic_us()
        self._sync_offset = self._written_offset  # the open batch is not part of this sync
        self._syncing.join(self._unsynced)
        self._sync_wanted = False
        self._unsynced_writes = False
        if self._loop_sync is not None:
            self._loop_sync.begin_sync(self._sync_done)
        else:
            self._scheduler.run_blocking(self._database.sync, self._sync_done)

    def _sync_done(self, error: BaseException | None) -> None:
        self._sync_running = False
        synced_count = self._syncing.count
        syncing = self._syncing.take()
        self.notified_us = self.clock.monotonic_us()
        self._metrics.storage_commit_seconds.observe(self.notified_us - self._sync_started_us)
        self._metrics.storage_commit_batch_messages.observe(synced_count)
        if error is None:
            self.synced_offset = max(self.synced_offset, self._sync_offset)
            # Dispatch first: a QoS 2 message reaches its subscribers before its PUBREC tells
            # the publisher that it was taken.
            if self.listener is not None:
                self.listener.synced()
            _notify(syncing)
            if self.batch.is_empty():
                # Else the turn that the listener has asked for writes it first.
                self.sync_if_due()
            return
        if not isinstance(error, StorageError):
            raise error
        waiting = syncing + self._unsynced.take()
        self._mark_failed(error, in_doubt=True)
        self._fail_submitted(error)
        _notify_failed(waiting, error, in_doubt=True)

    def _fail_open(self, error: StorageError) -> None:
        waiters = self._written.take() + self._waiting.take()
        self._mark_failed(error, in_doubt=False)
        self._fail_submitted(error)
        _notify_failed(waiters, error, in_doubt=False)

    def _fail_submitted(self, error: StorageError) -> None:
        """What the log has not given back may be in it or not."""
        submitted = self._submitted
        self._submitted = deque()
        self._submitted_count = 0
        for submission in submitted:
            if self.listener is not None:
                self.listener.lost(submission.items)
            _notify_failed(submission.written + submission.waiting.take(), error, in_doubt=True)

    def _mark_failed(self, error: StorageError, *, in_doubt: bool) -> None:
        self.failure_count += 1
        if not self.writable and not in_doubt:
            return
        self.writable = False
        if self.failure is None:
            self.failure = error
        add(self._metrics.storage_errors, (error.code, str(error.retriable).lower()))
        if self.listener is not None:
            self.listener.storage_failed(error, in_doubt=in_doubt)

    def lost(self, error: StorageError) -> None:
        """The store has failed outside a commit; what was not synced is in doubt."""
        waiting = self._unsynced.take()
        self._mark_failed(error, in_doubt=True)
        self._fail_submitted(error)
        _notify_failed(waiting, error, in_doubt=True)

    def recovered(self) -> None:
        """The store takes writes again; a batch opened meanwhile is kept."""
        self.writable = True
        self.failure = None
        self.synced_offset = self._database.last_offset
