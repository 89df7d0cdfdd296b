"""Group commit: one batch gathers while the one before it is synced.

Everything that must be durable before the peer hears of it *waits* here: the waiters of a batch
are called in order once it has reached their level, and fail together if it has not.

Order of one turn (``CommitPipeline``): submit the batch -> (it is sequenced) call what waits for
the write -> dispatch -> start a sync if none is running. What is in brackets happens in ``submit``
where the store is in this process; elsewhere the log gives the batch back later (``submissions``).
Sketch for 1000 messages in a commit: 1 write(2) of about 200 KiB, 1 fdatasync (0.1 to 5 ms), 2
thread hand-overs (about 0.1 ms CPU), no allocation but the batch itself.

While commits are spaced (``spacing``), or the log has not given the batch before it back and it is
not late (``log_pace``), the open batch may gather instead. What is written is synced as soon as no
other sync runs (``log_sync``).

Invariant: while a batch gathers, a timer or a linger is under way that ends in ``commit_due``, or
the log has one to give back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.broker.commit.log_sync import LogSync
from perdure.broker.commit.pacer import CommitPacer
from perdure.broker.commit.spacing import CommitSpacing
from perdure.broker.commit.submissions import Submission, Submissions
from perdure.broker.commit.waiters import (
    LEVEL_FSYNC,
    LEVEL_OS,
    CommitListener,
    Signal,
    Waiter,
    Waiters,
    notify,
    notify_failed,
)
from perdure.broker.runtime.scheduler import Scheduler
from perdure.clock import Clock
from perdure.errors import StorageError
from perdure.observe.instruments import add
from perdure.observe.metrics import Metrics
from perdure.storage.batch import Batch
from perdure.storage.contract import Database

if TYPE_CHECKING:
    from perdure.broker.dispatch.items import Item
    from perdure.storage.peers import Peers


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
        self.steady_times: bool = database.capabilities.queues is not None
        """Messages keep the steady time of their publishing."""
        self._scheduler = scheduler
        self.clock: Clock = clock
        self._metrics = metrics
        self._messages_max = messages_max
        self.listener: CommitListener = CommitListener()
        # The lowest level that only a sync gives.
        keeps_written = database.capabilities.keeps_written
        self._safe_level: int = LEVEL_FSYNC if keeps_written else LEVEL_OS
        self.sequences_late: bool = database.capabilities.sequences_late
        """A batch may be sequenced after it was submitted."""
        self._peers: Peers | None = database.capabilities.peers
        self._unhurried: bool = False
        """What was submitted last is awaited by nobody, so the log takes its time for it."""
        self.batch: Batch = Batch()
        self.writable: bool = True
        """Whether the store takes writes; False between a failure and its recovery."""
        self.failure: StorageError | None = None
        """Why it does not: the first failure since it did."""
        self.failure_count: int = 0
        """Writes and syncs that failed: who writes in several steps sees that one is missing."""
        self.notified_us: int = 0
        """Monotonic time at which waiters were called last."""
        self._memory: list[Waiter] = []
        self._written: Waiters = Waiters()
        self._waiting: Waiters = Waiters()
        self._written_offset: int = database.last_offset
        """No offset up to here belongs to the open batch."""
        # Last, for who is given a method of it may not find the rest undefined.
        self._submitted: Submissions = Submissions(self._go_on, clock)
        self.log_sync: LogSync = LogSync(database, scheduler, clock, metrics, self._sync_done)
        self._spacing: CommitSpacing = CommitSpacing(
            scheduler, clock, interval_us, self._commit_due
        )
        self.pacer: CommitPacer = self._spacing.pacer
        database.on_sequenced = self._sequenced_late

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
            and not self.has_submitted
            and not (self._waiting.count or self._written.count or self._memory)
            and self.log_sync.is_idle()
        )

    def backlog(self) -> int:
        """What a sync has still to make durable: messages and other things waited for."""
        return (
            self._waiting.count
            + self._submitted.waiting_count
            + self.log_sync.waiting.count
            + self.log_sync.syncing.count
        )

    def gathers(self) -> bool:
        """Whether the open batch stays open for more: ``linger`` must follow if it does."""
        if self._awaited_us():
            if not self.writable or self.batch.is_empty():
                return False
            if self._unhurried and (self.batch.is_awaited() or self._has_waiters()):
                self._hurry()
            if self._waiting.count + self._written.count >= self._messages_max:
                return False
            self._answer_memory()
            return True
        spacing = self._spacing
        if spacing.is_due or not self.pacer.spaced or not self.writable or self.batch.is_empty():
            return False
        if self._waiting.count >= self._messages_max:
            return False
        if self.clock.monotonic_us() >= spacing.ends_us:
            return False
        self._answer_memory()
        return True

    def _awaited_us(self) -> int:
        """Until when what was submitted has to come back before more is: under load batches are as
        far apart as the log is slow, and a lone one never waits. Monotonic; 0 = it has not to, -1 =
        however late it is."""
        if not self.sequences_late:
            return 0
        follows_us = self._submitted.follows_us()
        return 0 if 0 <= follows_us <= self.clock.monotonic_us() else follows_us

    def _has_waiters(self) -> bool:
        return bool(self._waiting.count or self._written.count)

    def _hurry(self) -> None:
        """Somebody waits behind what is on its way."""
        if self._unhurried and self._peers is not None:
            self._unhurried = False
            self._peers.hurry()

    def linger(self, *, gathering: bool, still: bool = True) -> bool:
        """Let the spacing go by: the last thing that a turn does.

        Args:
            gathering: the open batch gathers, so ``commit_due`` must come when it should be
                written, also if it has stopped to gather meanwhile.
            still: the loop may stand still meanwhile; False if it has something to do.

        Returns:
            Whether a sync or the log has ended the linger: what it allows is to be sent, and the
            linger to be gone on with.
        """
        if not gathering and not (self.pacer.lingers and self.pacer.spaced):
            return False
        # What the log gives back ends the linger; whatever else comes by the loop does not come
        # while that stands still.
        awaited_us, sync = self._awaited_us(), self.log_sync
        by_loop = sync.is_on_loop and (sync.is_running or not awaited_us)
        return self._spacing.linger(
            awaited_us or self._spacing.ends_us,
            gathering=gathering,
            still=still and self.writable and not by_loop,
            over=self._linger_over,
        )

    def _answer_memory(self) -> None:
        memory = self._memory
        if memory:
            self._memory = []
            self.notified_us = self.clock.monotonic_us()
            notify(memory)

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
        has_waiters = self._has_waiters()
        if not self.writable and (has_waiters or not batch.is_empty() or batch.placed):
            # Who waits with nothing to write waits for state that could not be added to a batch.
            self.batch = Batch()
            assert self.failure is not None
            self._fail_open(self.failure)
            return False
        is_empty = batch.is_empty()
        if is_empty and not batch.placed:
            if has_waiters or items:
                self._hurry()
                self._submit(None, items)
            elif not self.has_submitted:
                self._written_offset = self._database.last_offset
            return True
        self.batch = Batch()
        begun_us = self.clock.monotonic_us()
        try:
            self._database.submit(batch, wall_us)
        except StorageError as error:
            self._fail_open(error)
            return False
        self._unhurried = not batch.is_awaited()
        if has_waiters or items:
            self._hurry()
        if not is_empty:
            self.log_sync.has_writes = True
            written_us = self.clock.monotonic_us()
            self._metrics.storage_append_seconds.observe(written_us - begun_us)
            came = self._waiting.count + self._written.count
            self._spacing.written(came, self._metrics.messages_delivered, written_us)
        self._submit(batch, items)
        return True

    def _submit(self, batch: Batch | None, items: list[Item]) -> None:
        waiting = self._waiting
        self._waiting = Waiters()
        written = self._written.take() if self._written.count else []
        self._submitted.append(Submission(batch, items, written, waiting))
        self._submitted.sequence()

    def _go_on(self, submission: Submission) -> None:
        batch = submission.batch
        if not self.has_submitted:
            self._written_offset = self._database.last_offset
        elif batch is not None:
            self._written_offset = max(self._written_offset, batch.last_offset)
        if batch is not None:
            if batch.refused:
                # Before anybody is answered: who lost a session gets no answer in it.
                for client_id, epoch in batch.overtaken():
                    self.listener.refused(client_id, epoch)
            if batch.silenced:
                self.listener.silenced(batch)
            if batch.has_regrouped:
                self.listener.regrouped(batch)
        if submission.waiting.count:
            self.log_sync.waiting.join(submission.waiting)
        if submission.written:
            self.notified_us = self.clock.monotonic_us()
            notify(submission.written)
        if submission.items:
            self.listener.sequenced(submission.counting_items())

    def _sequenced_late(self) -> None:
        """The log has given batches back (from the database)."""
        self.log_sync.has_writes = True
        self._submitted.sequence()
        self.listener.synced()

    @property
    def has_submitted(self) -> bool:
        """Whether the log has still to give something back."""
        return bool(self._submitted.queue)

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
        self._submitted.append(Submission(batch, [], [], Waiters()))
        await self.sequenced()

    async def sequenced(self) -> None:
        """Wait until the log has given back what was submitted so far, or the store has failed:
        whoever reads what it has written waits for this."""
        if self.has_submitted:
            self._hurry()
            signal = Signal(self._scheduler.gate())
            self._submitted.append(Submission(None, [], [signal], Waiters()))
            await signal.gate

    def wait_for_words(self, client_id: str, waiter: Waiter) -> bool:
        """See ``Submissions.wait_for_words``."""
        self._hurry()
        return self._submitted.wait_for_words(client_id, waiter)

    async def sync_now(self) -> None:
        """Wait until everything written so far is safe against power loss.

        Raises:
            StorageError: it is not.
        """
        signal = Signal(self._scheduler.gate())
        self.log_sync.waiting.add(signal, 1)
        self.sync_if_due()
        await signal.gate
        if signal.error is not None:
            raise signal.error

    def catch_up(self) -> bool:
        """Move ``log_sync.offset`` past offsets that nothing was written for. False if none."""
        return self.writable and self.log_sync.pass_to(self._written_offset)

    def synced_offset(self) -> int:
        """Everything in the log up to here is safe against power loss, also what other nodes have
        written while this one had nothing to write: no sync of its own says so then."""
        if self.sequences_late and not self.has_submitted and not self.batch.placed:
            self._written_offset = self._database.last_offset
            self.catch_up()
        return self.log_sync.offset

    def sync_awaited(self) -> None:
        """Start a sync if somebody waits for what was written just now."""
        sync = self.log_sync
        if sync.waiting.count and sync.has_writes and not sync.is_running and self.writable:
            sync.start(self._written_offset, self.clock.monotonic_us())

    def sync_if_due(self) -> None:
        """Start a sync if anything waits for one: what is written was spaced already."""
        self._spacing.is_due = False
        sync = self.log_sync
        if sync.is_running or not self.writable:
            return
        if sync.waiting.count and not sync.has_writes:
            # Nothing was written since the last sync, so all of it is durable already.
            self.notified_us = self.clock.monotonic_us()
            notify(sync.waiting.take())
        if not sync.has_writes:
            return
        now_us = self.clock.monotonic_us()
        if sync.waiting.count or sync.is_wanted or now_us >= sync.background_us:
            sync.start(self._written_offset, now_us)
        else:
            self._spacing.wake_at(sync.background_us, now_us)

    def _linger_over(self) -> None:
        if not self.batch.is_empty():
            self._spacing.over()

    def _commit_due(self) -> None:
        self.listener.commit_due()

    def _sync_done(
        self, error: StorageError | None, waiters: list[Waiter], notified_us: int
    ) -> None:
        self.notified_us = notified_us
        if error is None:
            # Dispatch first: a QoS 2 message reaches its subscribers before its PUBREC tells
            # the publisher that it was taken.
            self.listener.synced()
            notify(waiters)
            if self.batch.is_empty():
                # Else the turn that the listener has asked for writes it first.
                self.sync_if_due()
            return
        self._fail_in_doubt(waiters + self.log_sync.waiting.take(), error)

    def _fail_open(self, error: StorageError) -> None:
        waiters = self._written.take() + self._waiting.take()
        self._mark_failed(error, in_doubt=False)
        self._fail_submitted(error)
        notify_failed(waiters, error, in_doubt=False)

    def _fail_submitted(self, error: StorageError) -> None:
        """What the log has not given back may be in it or not."""
        for submission in self._submitted.take():
            self.listener.lost(submission.items)
            notify_failed(submission.written + submission.waiting.take(), error, in_doubt=True)

    def _mark_failed(self, error: StorageError, *, in_doubt: bool) -> None:
        self.failure_count += 1
        if not self.writable and not in_doubt:
            return
        self.writable = False
        if self.failure is None:
            self.failure = error
        add(self._metrics.storage_errors, (error.code, str(error.retriable).lower()))
        self.listener.storage_failed(error, in_doubt=in_doubt)

    def lost(self, error: StorageError) -> None:
        """The store has failed outside a commit; what was not synced is in doubt."""
        self._fail_in_doubt(self.log_sync.waiting.take(), error)

    def _fail_in_doubt(self, waiters: list[Waiter], error: StorageError) -> None:
        self._mark_failed(error, in_doubt=True)
        self._fail_submitted(error)
        notify_failed(waiters, error, in_doubt=True)
        if self.sequences_late and not self.batch.is_empty():
            # It may have gathered until something comes back that does not.
            now_us = self.clock.monotonic_us()
            self._spacing.wake_at(now_us, now_us)

    @property
    def failure_text(self) -> str:
        """Why it takes no writes, and what to do; empty = it takes them."""
        failure = self.failure
        if failure is None:
            return ""
        return f"{failure.message} ({failure.hint})" if failure.hint else failure.message

    def recovered(self) -> None:
        """The store takes writes again; a batch opened meanwhile is kept."""
        self.writable = True
        self.failure = None
        self.log_sync.offset = self._database.last_offset
