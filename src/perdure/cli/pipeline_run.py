"""``perdure pipeline run``: archive, maintain, learn and stats by themselves."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, cast, final

import click
import msgspec

from perdure.cli.archive_place import make_place
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.pipeline_archive import plan_of
from perdure.cli.pipeline_learn import encoded, proposal
from perdure.cli.pipeline_options import (
    From,
    executor,
    log_options,
    pipeline_installed,
    plain,
    read_options,
)
from perdure.cli.pipeline_stats import page, statistics
from perdure.clock import SystemClock
from perdure.config.schema import MetricsConfig, PipelineConfig
from perdure.errors import StorageError, StorageUnavailable
from perdure.observe import logs
from perdure.observe.log_writer import LogWriter
from perdure.server.systemd import Notifier

if TYPE_CHECKING:
    from perdure.pipeline.jobs.archive_files import WriteTask, Written
    from perdure.pipeline.jobs.archive_runs import ArchivePlan
    from perdure.pipeline.options import ReadOptions
    from perdure.pipeline.service.lease import Lease
    from perdure.pipeline.service.supervisor import Supervisor
    from perdure.storage.pipeline_runs import RunState

log = logs.get_logger("pipeline")

METRICS_PORT: Final = 9091
BACKLOG: Final = 128


@click.command()
@log_options
@click.option("--for", "rounds", type=click.IntRange(min=1), hidden=True, help="End after runs.")
def run(log: From, rounds: int | None) -> None:
    """Archive, maintain, learn and count on the schedules of the configuration, until SIGTERM.

    All is set in the section pipeline. Several may be started for one archive: one works, the
    others stand by and take over when it is gone.
    """
    settings = log.pipeline
    planned = plan_of(log)
    make_place(planned.lake, None if log.url else log.data)
    writer = LogWriter(sys.stderr)
    logs.configure(level="info", format="auto", stream=cast("TextIO", writer))
    try:
        with executor(settings, "run") as (execute, _), _stopped_by_signals() as stop:
            with pipeline_installed():
                jobs = PipelineJobs(log, planned, execute, stop)
            try:
                _serve(settings, planned, jobs, stop, rounds)
            finally:
                jobs.close()
    finally:
        writer.close()


def _serve(
    settings: PipelineConfig,
    planned: ArchivePlan,
    jobs: PipelineJobs,
    stop: threading.Event,
    rounds: int | None,
) -> None:
    from perdure.pipeline.cursor import RunKeeper
    from perdure.pipeline.service.lease import Lease
    from perdure.pipeline.service.schedule import Job, Schedule
    from perdure.pipeline.service.supervisor import Supervisor

    clock = SystemClock()
    holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    lease = Lease(
        planned.lake.place,
        planned.lake.store,
        holder=holder,
        time_s=settings.lease_s,
        now_us=clock.now_us,
        wait=stop.wait,
    )
    names = ("archive", "maintain", "learn", "stats")
    schedule = Schedule(
        [Job(name, getattr(settings, name).every_s) for name in names],
        clock.monotonic_us() / 1e6,
    )
    if not schedule.jobs:
        raise CommandFailed("every job is off", ExitCode.USAGE, hint="pipeline.archive.every_s")
    supervisor = Supervisor(
        planned.lake.place,
        planned.lake.store,
        schedule=schedule,
        jobs={name: getattr(jobs, name) for name in schedule.jobs},
        lease=lease,
        lease_s=settings.lease_s,
        clock=clock,
        stop=stop,
        log=log,
        look=jobs.look,
        report=RunKeeper(planned.options, settings.archive.name, planned.lake.place, warn=_warn),
    )
    jobs.bind(lease, supervisor, rounds)
    notifier = Notifier.from_environment(os.environ, pid=os.getpid())
    with _metrics(settings.bind, supervisor, lease):
        log.info("pipeline.started", place=planned.lake.place, jobs=list(schedule.jobs))
        notifier.ready(f"archive at {planned.lake.place}")
        supervisor.run()
        log.info("pipeline.stopped")


@final
class PipelineJobs:
    """What each job does.

    Args:
        log: that is read.
        planned: the archive.
        execute: runs its tasks.
        stop: set when the process is to end.
    """

    def __init__(
        self, log: From, planned: ArchivePlan, execute: Any, stop: threading.Event
    ) -> None:
        from perdure.pipeline.cursor import CursorKeeper
        from perdure.pipeline.jobs.archive_runs import ArchiveRuns
        from perdure.pipeline.service.lag import LagWatch

        self._log, self._planned, self._stop = log, planned, stop
        self._settings = log.pipeline
        self._supervisor: Supervisor | None = None
        self._rounds: int | None = None
        name = self._settings.archive.name
        keeper = CursorKeeper(planned.options, name, planned.lake.place, warn=_warn)
        self._execute = execute
        self._lag = LagWatch(planned.options, keeper.told)
        self._runs = ArchiveRuns(
            planned,
            execute=self._executed,
            on_position=keeper,
            on_away=self._away,
            wait=stop.wait,
            guard=self._check,
        )
        self._lease: Lease | None = None

    def bind(self, lease: Lease, supervisor: Supervisor, rounds: int | None) -> None:
        """Who says whether to go on."""
        self._lease, self._supervisor, self._rounds = lease, supervisor, rounds

    def close(self) -> None:
        """Let go of tables."""
        self._runs.close()

    def archive(self, state: RunState) -> bool:
        """A round."""
        done = self._runs.run_round()
        if done is None:
            return False
        state.rows += done.rows
        state.files += done.files
        state.misfits += done.misfits
        state.gaps += done.gap is not None
        if done.gap is not None:
            log.warning("pipeline.messages_dropped", gap=str(done.gap))
        if done.rows:
            log.info("pipeline.archived", rows=done.rows, files=done.files)
        state.offset = done.position.offset
        with contextlib.suppress(StorageError):  # the round has ended well all the same
            self.look(state)
        self._count()
        return not done.is_last

    def maintain(self, state: RunState) -> bool:
        """All tables."""
        from perdure.pipeline.archive_state import load_state
        from perdure.pipeline.jobs.maintain import maintain
        from perdure.pipeline.sinks.opening import open_sink

        lake, settings = self._planned.lake, self._settings.maintain
        found = load_state(lake.place, lake.store)
        if found is None:
            return False
        before_us = SystemClock().now_us() - settings.keep_s * 1_000_000
        sink = open_sink(found.within(lake), found.position.database)
        try:
            for spec in found.tables:
                self._check()
                if self._stop.is_set():
                    return False
                done = maintain(sink, spec, before_us=before_us, file_bytes=settings.file_bytes)
                if done.files_before != done.files_after or done.files_removed:
                    log.info(
                        "pipeline.maintained",
                        table=spec.name,
                        files_before=done.files_before,
                        files_after=done.files_after,
                        files_removed=done.files_removed,
                    )
        finally:
            sink.close()
        self._count()
        return False

    def learn(self, _state: RunState) -> bool:
        """A proposal, in its file."""
        settings = self._settings.learn
        found = proposal(self._log, self._range(settings.range_s))
        if found is not None:
            self._write("learn", settings.write, encoded(found[0]))
        return False

    def stats(self, _state: RunState) -> bool:
        """A report, in its file: a page, or JSON."""
        settings = self._settings.stats
        found = statistics(self._log, self._range(settings.range_s))
        if settings.write.endswith(".html"):
            report = page(self._log, found).encode()
        else:
            report = msgspec.json.encode(plain(msgspec.structs.asdict(found))) + b"\n"
        self._write("stats", settings.write, report)
        return False

    def _range(self, range_s: int) -> ReadOptions:
        return read_options(self._log, (), **{"from": f"{range_s}s"})

    def _write(self, job: str, file: str, content: bytes) -> None:
        """Put a file in its place, whole: somebody may be reading the last one.

        Raises:
            StorageUnavailable: it cannot be written.
        """
        target = Path(file)
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            draft.write_bytes(content)
            draft.replace(target)
        except OSError as error:
            raise StorageUnavailable(f"{target}: {error.strerror or error}") from error
        log.info("pipeline.written", job=job, file=file)

    def look(self, state: RunState) -> None:
        """Say in a state how far the archive is behind now.

        Raises:
            StorageError: the log cannot be read.
        """
        self._lag.look(state)

    def _away(self, error: Exception) -> None:
        """Catalog, store or log are away: tell it."""
        log.warning("pipeline.waiting", reason=str(error))
        self._state.wait("archive", SystemClock().now_us(), str(error))
        with contextlib.suppress(StorageError):  # it may be the log that is away
            self.look(self._state)
        assert self._supervisor is not None
        self._supervisor.keep()

    def _executed(self, options: ReadOptions, task: WriteTask) -> Iterable[Written]:
        """Run the tasks of a round: what they need was reached."""
        self._state.reached("archive")
        written: Iterable[Written] = self._execute(options, task)
        return written

    @property
    def _state(self) -> RunState:
        assert self._supervisor is not None
        return self._supervisor.state

    def _check(self) -> None:
        assert self._lease is not None
        self._lease.check()

    def _count(self) -> None:
        if self._rounds is not None:
            self._rounds -= 1
            if self._rounds <= 0:
                self._stop.set()


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; a second one ends at once."""
    stop = threading.Event()

    def ask(number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        log.info("pipeline.stopping", signal=signal.Signals(number).name)
        stop.set()

    before = {each: signal.signal(each, ask) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def _metrics(bind: str, supervisor: Supervisor, lease: Lease) -> Iterator[None]:
    """Serve ``/metrics`` meanwhile, if there is an address."""
    if not bind:
        yield
        return
    from perdure.net.settings import split_bind
    from perdure.net.sockets import open_listening
    from perdure.observe.metrics_server import MetricsServer
    from perdure.observe.metrics_text import RegistryText
    from perdure.observe.pipeline_metrics import pipeline_registry

    host, port = split_bind(bind, METRICS_PORT, path="pipeline.bind")
    sockets = open_listening(host, port, backlog=BACKLOG, path="pipeline.bind")
    registry = pipeline_registry(lambda: supervisor.state, lambda: bool(lease.epoch))
    server = MetricsServer(sockets, RegistryText(registry), MetricsConfig())
    log.info("pipeline.metrics", port=server.port)
    try:
        yield
    finally:
        server.close()


def _warn(text: str) -> None:
    log.warning("pipeline.cursor", reason=text)
