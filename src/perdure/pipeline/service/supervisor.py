"""Runs the jobs of a pipeline when they are due, as long as the lease is ours.

One thread works, job after job; another one renews the lease, and one looks how far the archive is
behind, whatever the first one does or waits for. A job that fails is told, counted and
tried again when it is next due: nothing ends the process but a stop, or a configuration that cannot
work. Knows no Spark: jobs are given to it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias, final

from perdure.clock import Clock
from perdure.errors import ConfigError, Fenced, PerdureError, StorageError
from perdure.pipeline.lake.stores import Store
from perdure.pipeline.service.lease import Lease
from perdure.pipeline.service.schedule import Schedule
from perdure.pipeline.service.state import load_run, save_run
from perdure.storage.pipeline_runs import RunState

RENEWALS: Final = 3
"""Of the lease, in the time that it lasts."""

STANDBY_S: Final = 5.0
"""Between two looks at a lease that another one has, or that cannot be reached."""

WATCH_S: Final = 15.0
"""Between two looks at how far the archive is behind."""

Run: TypeAlias = Callable[[RunState], bool]
"""Does a job and counts in the state; True = there is more to do at once."""


class Log(Protocol):
    """What is told, as ``observe.logs`` takes it."""

    def info(self, event: str, **values: object) -> object:
        """It goes on."""
        ...

    def warning(self, event: str, **values: object) -> object:
        """Someone should look."""
        ...


@final
class Supervisor:
    """One process's jobs.

    Args:
        place, store: of the archive, for ``run.json``.
        schedule: of the jobs.
        jobs: what each does, by name.
        lease: of the archive.
        lease_s: how long it lasts.
        clock: time.
        stop: set to end; a job under way is told by it too.
        log: where to tell.
        look: says in the state how far the archive is behind; raises StorageError.
        report: tells the broker how it is going.
        watch_s: pause between two looks.
    """

    def __init__(
        self,
        place: str,
        store: Store,
        *,
        schedule: Schedule,
        jobs: Mapping[str, Run],
        lease: Lease,
        lease_s: float,
        clock: Clock,
        stop: threading.Event,
        log: Log,
        look: Callable[[RunState], object] = lambda _: None,
        report: Callable[[RunState], object] = lambda _: None,
        watch_s: float = WATCH_S,
    ) -> None:
        self._look, self._report, self._watch_s = look, report, watch_s
        self._keeping = threading.Lock()
        self._is_standby = False
        """Another one had the lease when it could be read last."""
        self._is_cut_off = False
        """It cannot be read, and nobody else is known to work."""
        self._problem = ""
        self._place, self._store = place, store
        self._schedule, self._jobs = schedule, jobs
        self._lease, self._lease_s = lease, lease_s
        self._clock, self._stop, self._log = clock, stop, log
        self.state = load_run(place, store) or RunState()

    def run(self) -> None:
        """Until stopped; gives the lease back then.

        Raises:
            ConfigError: a job cannot work as it is configured.
        """
        others = [
            threading.Thread(target=self._renew, name="lease", daemon=True),
            threading.Thread(target=self._watch, name="lag", daemon=True),
        ]
        for each in others:
            each.start()
        try:
            while not self._stop.is_set():
                if not self._lease.epoch and not self._take():
                    continue
                self._next()
        finally:
            self._stop.set()
            for each in others:
                each.join()
            if self._lease.epoch:
                self._tried(self._lease.give_back)

    def _take(self) -> bool:
        try:
            other = self._lease.take()
        except PerdureError as error:
            self._log.warning("pipeline.lease_unreachable", reason=error.message)
            self._cannot_begin(error)
            self._stop.wait(STANDBY_S)
            return False
        # Of who stands by, too: what it tells is what the one that works has told.
        self.state = load_run(self._place, self._store) or self.state
        self._is_standby, self._is_cut_off = other is not None, False
        if other is not None:
            self._log.info("pipeline.standby", holder=other.holder, epoch=other.epoch)
            self._stop.wait(STANDBY_S)
            return False
        self.state.epoch = self._lease.epoch
        self.state.holder = self._lease.holder
        self.state.schedule(self._schedule.pauses, self._clock.now_us())
        self._log.info("pipeline.lease_taken", epoch=self._lease.epoch)
        return True

    def _cannot_begin(self, error: PerdureError) -> None:
        """Tell that no job can begin, unless another one works, as far as we know."""
        if self._is_standby:
            return
        was_cut_off, self._is_cut_off = self._is_cut_off, True
        if not was_cut_off:
            self.state.holder = self._lease.holder
            self.state.schedule(self._schedule.pauses, self._clock.now_us())
        for name in self._schedule.jobs:
            self.state.wait(name, self._clock.now_us(), error.message)
        if not was_cut_off:
            self._tell_lag()

    def _next(self) -> None:
        name = self._schedule.due(self._clock.monotonic_us() / 1e6)
        if name is None:
            self._stop.wait(min(1.0, self._schedule.rest_s(self._clock.monotonic_us() / 1e6)))
            return
        self.state.begin(name, self._clock.now_us())
        self.keep()
        error, has_more = "", False
        try:
            has_more = self._jobs[name](self.state)
        except Fenced as lost:
            self._lease.epoch = 0
            error = lost.message
        except ConfigError as wrong:
            self._ended(name, f"{wrong.path}: {wrong.message}" if wrong.path else wrong.message)
            raise
        except PerdureError as failed:
            error = failed.message
        now_s = self._clock.monotonic_us() / 1e6
        self._schedule.ended(name, now_s, has_more=has_more and not self._stop.is_set())
        self._ended(name, error, due_in_s=self._schedule.due_in_s(name, now_s))
        if error:
            self._stop.wait(0)

    def _ended(self, name: str, error: str, *, due_in_s: float = 0.0) -> None:
        now_us = self._clock.now_us()
        self.state.end(name, now_us, error, due_at_us=now_us + round(due_in_s * 1e6))
        if error:
            self._log.warning("pipeline.job_failed", job=name, reason=error)
        self.keep()

    def keep(self) -> None:
        """Put the state where others find it, if nobody else works: the broker first, for the store
        may be away."""
        with self._keeping:
            has_lease = bool(self._lease.epoch)
            if not has_lease and not self._is_cut_off:
                return
            self.state.written_at_us = self._clock.now_us()
            self._report(self.state)
            if has_lease:
                self._tried(lambda: save_run(self._place, self._store, self.state))

    def _tried(self, call: Callable[[], object]) -> None:
        """Do what may fail for a while, told once for each reason."""
        try:
            call()
        except PerdureError as error:
            if error.message != self._problem:
                self._log.warning("pipeline.state_not_kept", reason=error.message)
            self._problem = error.message
        else:
            self._problem = ""

    def _watch(self) -> None:
        while not self._stop.wait(self._watch_s):
            if self._lease.epoch or self._is_cut_off:
                self._tell_lag()

    def _tell_lag(self) -> None:
        # What cannot be read now may be the log: then the last distance that is known stays.
        with contextlib.suppress(StorageError):
            self._look(self.state)
        self.keep()

    def _renew(self) -> None:
        while not self._stop.wait(self._lease_s / RENEWALS):
            if not self._lease.epoch:
                continue
            try:
                self._lease.renew()
            except PerdureError as error:
                self._log.warning("pipeline.lease_not_renewed", reason=error.message)
