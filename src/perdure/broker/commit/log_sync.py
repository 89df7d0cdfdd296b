"""What is in the log, until it is safe against power loss: one sync at a time.

A sync takes in everything that was sequenced when it began. Where nobody waits for one, the log is
synced in the background once in a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from perdure.broker.commit.waiters import Waiter, Waiters
from perdure.broker.runtime.scheduler import Scheduler
from perdure.clock import Clock
from perdure.errors import StorageError
from perdure.observe.metrics import Metrics
from perdure.storage.capabilities import LoopSync
from perdure.storage.contract import Database

BACKGROUND_SYNC_US: Final = 1_000_000
"""Below ``fsync`` the log is still synced once a second, so that a power cut costs little."""

LARGE_BYTES_MAX: Final = 2 * 1024 * 1024
"""Bytes of who sends much that wait for a sync beyond which these clients are not read from: a disk
takes some 50 ms for two syncs of twice as many. What is retained counts twice, as it is written."""

LARGE_BYTES_MIN: Final = 256 * 1024
"""So many may wait on the slowest disk."""

SLOW_SYNC_US: Final = 20_000
"""A sync that takes longer had too much to write: whoever publishes waits for two of them."""


@final
class LogSync:
    """Runs the syncs of a store.

    Args:
        database: the store.
        scheduler: has the sync thread.
        clock: monotonic time.
        metrics: counts syncs.
        done: called after each sync with what went wrong, the waiters of it, and the time.

    Attributes:
        has_writes: something was written since the last sync began.
        is_on_loop: the store answers on the loop, so the loop must not stand still for it.
        is_running: a sync is under way.
        is_wanted: something written waits for a sync without a waiter of its own.
        offset: everything in the log up to here is synced.
        syncing: who waits for the sync under way.
        waiting: who waits for the next sync.
        large_bytes: what came of clients that send much since the last sync began, with what of it
            is retained beside.
        large_bytes_max: so many may wait for a sync: as many as the disk has shown that it takes.
    """

    __slots__ = (
        "_clock",
        "_database",
        "_done",
        "_loop_sync",
        "_metrics",
        "_scheduler",
        "_started_us",
        "_syncing_bytes",
        "_through",
        "has_writes",
        "is_on_loop",
        "is_running",
        "is_wanted",
        "large_bytes",
        "large_bytes_max",
        "offset",
        "syncing",
        "waiting",
    )

    def __init__(
        self,
        database: Database,
        scheduler: Scheduler,
        clock: Clock,
        metrics: Metrics,
        done: Callable[[StorageError | None, list[Waiter], int], None],
    ) -> None:
        self._database = database
        self._scheduler = scheduler
        self._clock: Clock = clock
        self._metrics: Metrics = metrics
        self._done: Callable[[StorageError | None, list[Waiter], int], None] = done
        self._loop_sync: LoopSync | None = database.capabilities.loop_sync
        self._started_us: int = 0
        self.syncing: Waiters = Waiters()
        self._syncing_bytes: int = 0
        """``large_bytes`` of the sync under way."""
        self._through: int = 0
        """Last offset that the sync under way takes in."""
        self.has_writes: bool = False
        self.is_on_loop: bool = self._loop_sync is not None
        self.is_running: bool = False
        self.is_wanted: bool = False
        self.large_bytes: int = 0
        self.large_bytes_max: int = LARGE_BYTES_MAX
        self.offset: int = database.last_offset
        self.waiting: Waiters = Waiters()

    def is_full(self) -> bool:
        """Whether the store is so far behind that peers must pause."""
        loop_sync = self._loop_sync
        return loop_sync is not None and loop_sync.is_full

    def is_large(self) -> bool:
        """Whether somebody waits for the sync of so many bytes that who sends large messages, or
        many at once, must pause: a disk takes its time for them, and everybody waits for that."""
        return (
            self.large_bytes + self._syncing_bytes > self.large_bytes_max
            and (self.waiting.count + self.syncing.count) > 0
        )

    def is_idle(self) -> bool:
        """Whether nothing waits for a sync, and nothing is synced."""
        return not self.is_running and not self.has_writes and not self.waiting.count

    def pass_to(self, offset: int) -> bool:
        """Everything up to an offset is in the log: move past offsets that nothing was written
        for. False if there are none, or a sync has to say.

        What is addressed to a session in memory takes an offset too. With all writes synced it
        waits for nothing, and no sync would come to let it go.
        """
        if self.is_running or self.has_writes or offset <= self.offset:
            return False
        self.offset = offset
        return True

    def age_us(self, now_us: int) -> int:
        """How long the sync under way has taken by now; 0 = there is none.

        Args:
            now_us: monotonic time.
        """
        return max(0, now_us - self._started_us) if self.is_running else 0

    @property
    def background_us(self) -> int:
        """When the next sync is due that nobody waits for; monotonic time."""
        return self._started_us + BACKGROUND_SYNC_US

    def start(self, through: int, now_us: int) -> None:
        """Begin a sync; none is under way.

        Args:
            through: last offset in the log: an open batch is not part of the sync.
            now_us: monotonic time.
        """
        self.is_running = True
        self._started_us = now_us
        self._through = through
        self._syncing_bytes, self.large_bytes = self.large_bytes, 0
        self.syncing.join(self.waiting)
        self.is_wanted = False
        self.has_writes = False
        if self._loop_sync is not None:
            self._loop_sync.begin_sync(self._ended)
        else:
            self._scheduler.run_blocking(self._database.sync, self._ended)

    def _ended(self, error: BaseException | None) -> None:
        self.is_running = False
        count = self.syncing.count
        waiters = self.syncing.take()
        now_us = self._clock.monotonic_us()
        self._learn(now_us - self._started_us)
        self._syncing_bytes = 0
        self._metrics.storage_commit_seconds.observe(now_us - self._started_us)
        self._metrics.storage_commit_batch_messages.observe(count)
        if error is None:
            self.offset = max(self.offset, self._through)
            self._done(None, waiters, now_us)
            return
        if not isinstance(error, StorageError):
            raise error
        self._done(error, waiters, now_us)

    def _learn(self, elapsed_us: int) -> None:
        """How much may wait: less after a sync that was slow, and again more bit by bit.

        It is told by the sync itself, for what else the disk has to do, merging what was written
        before above all, nobody knows. A sync with little of who sends much says nothing of them.
        """
        most = self.large_bytes_max
        if self._syncing_bytes * 4 < most:
            return
        if elapsed_us > SLOW_SYNC_US:
            fits = most * SLOW_SYNC_US // elapsed_us
            self.large_bytes_max = max(fits, most // 2, LARGE_BYTES_MIN)
        else:
            self.large_bytes_max = min(most + most // 8, LARGE_BYTES_MAX)
