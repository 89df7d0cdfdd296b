"""One sync at a time, and what it vouches for; with a committer in ``test_committer.py``."""

from __future__ import annotations

import random

from perdure.broker.commit.log_sync import (
    BACKGROUND_SYNC_US,
    LARGE_BYTES_MAX,
    LARGE_BYTES_MIN,
    SLOW_SYNC_US,
    LogSync,
)
from perdure.broker.commit.waiters import Signal, Waiter
from perdure.errors import StorageError, StorageUnavailable
from perdure.observe.metrics import Metrics
from tests.support.clock import VirtualClock
from tests.support.scheduler import VirtualLoop, VirtualScheduler
from tests.support.storage import FaultyDatabase

SYNC_US = 400


class Desk:
    """The syncs of a store that takes its time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.loop = VirtualLoop(self.clock)
        self.store = FaultyDatabase()
        self.scheduler = VirtualScheduler(
            self.loop, random.Random(1), blocking_us=(SYNC_US, SYNC_US)
        )
        self.ended: list[tuple[StorageError | None, int]] = []
        self.sync = LogSync(self.store, self.scheduler, self.clock, Metrics(), self._done)
        self.loop.run_for(2 * BACKGROUND_SYNC_US)

    def _done(self, error: StorageError | None, waiters: list[Waiter], now_us: int) -> None:
        assert now_us == self.now_us
        self.ended.append((error, len(waiters)))

    @property
    def now_us(self) -> int:
        return self.clock.monotonic_us()

    def wait(self) -> None:
        self.sync.waiting.add(Signal(self.scheduler.gate()), 1)

    def write(self) -> None:
        self.sync.has_writes = True


def waiting(desk: Desk) -> int:
    return desk.sync.syncing.count + desk.sync.waiting.count


def test_who_comes_during_a_sync_waits_for_the_next() -> None:
    desk = Desk()
    desk.write()
    desk.wait()
    desk.sync.start(7, desk.now_us)
    desk.wait()
    desk.wait()
    assert (waiting(desk), desk.sync.offset) == (3, 0)
    desk.loop.run_for(SYNC_US)
    assert (desk.ended, waiting(desk), desk.sync.offset) == ([(None, 1)], 2, 7)
    assert not desk.sync.is_running
    assert not desk.sync.is_idle()


def test_a_failed_sync_vouches_for_nothing() -> None:
    desk = Desk()
    desk.write()
    desk.wait()
    error = desk.store.sync_error = StorageUnavailable("broken")
    desk.sync.start(7, desk.now_us)
    desk.loop.run_for(SYNC_US)
    assert (desk.ended, desk.sync.offset) == ([(error, 1)], 0)


def test_a_sync_that_nobody_waits_for_comes_once_in_a_while() -> None:
    desk = Desk()
    desk.write()
    desk.loop.run_for(300)
    desk.sync.start(1, desk.now_us)
    assert desk.sync.background_us == desk.now_us + BACKGROUND_SYNC_US


def test_offsets_without_a_write_are_passed_when_nothing_is_to_be_synced() -> None:
    desk = Desk()
    desk.write()
    assert not desk.sync.pass_to(5)
    desk.sync.start(3, desk.now_us)
    assert not desk.sync.pass_to(5)
    desk.loop.run_for(SYNC_US)
    assert desk.sync.is_idle()
    assert desk.sync.pass_to(5)
    assert not desk.sync.pass_to(5)
    assert desk.sync.offset == 5


def test_a_sync_is_large_while_somebody_waits_for_it() -> None:
    desk = Desk()
    sync = desk.sync
    sync.large_bytes += LARGE_BYTES_MAX + 1
    assert not sync.is_large(), "nobody waits, so nobody would let go of who pauses"
    desk.write()
    desk.wait()
    assert sync.is_large()
    sync.start(1, desk.now_us)
    assert sync.is_large()
    desk.loop.run_for(SYNC_US)
    assert not sync.is_large()
    # Of two syncs, one of which waits.
    sync.large_bytes += LARGE_BYTES_MAX // 2 + 1
    desk.write()
    desk.wait()
    sync.start(2, desk.now_us)
    assert not sync.is_large()
    sync.large_bytes += LARGE_BYTES_MAX // 2
    assert sync.is_large()


def test_what_may_wait_is_what_the_disk_takes() -> None:
    """Half at most after one slow sync, an eighth more after each good one, within its bounds."""
    desk = Desk()
    sync = desk.sync

    def synced(elapsed_us: int, *, part: float = 1.0) -> int:
        sync.large_bytes = int(sync.large_bytes_max * part)
        desk.write()
        desk.wait()
        sync.start(desk.store.last_offset, desk.now_us - elapsed_us + SYNC_US)
        desk.loop.run_for(SYNC_US)
        return sync.large_bytes_max

    assert synced(SLOW_SYNC_US) == LARGE_BYTES_MAX
    fewer = LARGE_BYTES_MAX * 4 // 5
    assert synced(SLOW_SYNC_US * 5 // 4) == fewer
    assert synced(SLOW_SYNC_US * 100, part=0.2) == fewer, "others have made it slow"
    assert synced(SLOW_SYNC_US * 100) == fewer // 2
    for _ in range(9):
        synced(SLOW_SYNC_US * 100)
    assert sync.large_bytes_max == LARGE_BYTES_MIN
    assert synced(SLOW_SYNC_US // 2) == LARGE_BYTES_MIN * 9 // 8
    for _ in range(99):
        synced(SLOW_SYNC_US // 2)
    assert sync.large_bytes_max == LARGE_BYTES_MAX
