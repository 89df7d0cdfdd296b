"""Drives a migration: plan, tasks, ledger, and the one process that writes a data directory.

What runs the tasks is given (Spark, or this process): it gets ranges and gives their results in
any order, as they end. Into a server the tasks write themselves, many at a time. A data directory
has one owner, so tasks only read, into files, and this process writes them one after the other.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias, final

import msgspec

from perdure.errors import ConfigError, StorageError
from perdure.limits import SESSION_EXPIRY_NEVER_S
from perdure.model import Subscription
from perdure.pipeline.jobs.migrate import stores
from perdure.pipeline.jobs.migrate.contract import Mismatch, Range, RangeResult, Settings, Source
from perdure.pipeline.jobs.migrate.directory import DatabaseTarget, Sessions
from perdure.pipeline.jobs.migrate.endpoints import Endpoint
from perdure.pipeline.jobs.migrate.ledger import VERSION, Header, Ledger
from perdure.pipeline.jobs.migrate.task import (
    copy_range,
    count_range,
    put_pages,
    stage_path,
    stage_range,
    staged_pages,
)
from perdure.pipeline.tbmq.pending import Losses

ENTRIES_PER_RANGE: Final = 10_000
"""About a second of work: what a kill costs, and what one line of the ledger stands for."""
MISMATCHES_KEPT: Final = 1_000


class Options(msgspec.Struct, frozen=True):
    """What a migration is to do.

    Attributes:
        source, target: from where and to where.
        ttl_s, limit: see ``contract.Settings``.
        session_expiry_s: Session Expiry Interval of sessions in a data directory.
        shared: whether ``ss_<share>_<filter>`` is a shared queue.
        entries_per_range: about how much is done at a time.
        directory: how to read a data directory.
    """

    source: Endpoint
    target: Endpoint
    ttl_s: int
    limit: int
    session_expiry_s: int = SESSION_EXPIRY_NEVER_S
    shared: bool = True
    entries_per_range: int = ENTRIES_PER_RANGE
    directory: stores.DirectorySource | None = None

    @property
    def settings_text(self) -> str:
        """What decides the result, for the ledger."""
        return (
            f"ttl {self.ttl_s} s, limit {self.limit}, session expiry {self.session_expiry_s} s"
            f"{'' if self.shared else ', no shared queues'}"
        )


class Task(msgspec.Struct, frozen=True):
    """What the tasks of a run have in common; travels to them.

    Attributes:
        source, target: where to read and write.
        settings: how to read.
        stage: directory to read into; empty = write the target.
        dry: only count.
        directory: how to read a data directory.
    """

    source: Endpoint
    target: Endpoint
    settings: Settings
    stage: str = ""
    dry: bool = False
    directory: stores.DirectorySource | None = None


Execute: TypeAlias = Callable[[Task, Sequence[Range]], Iterable[RangeResult]]
"""Runs ``run_task`` for each range; gives results as they come."""


class Summary(msgspec.Struct):
    """A migration in numbers.

    Attributes:
        ranges, clients, entries, pubrels, payload_bytes: carried over, also by earlier runs.
        resumed_ranges: of them by earlier runs.
        sessions_added: sessions made for clients that have subscriptions and no queue.
        losses: what stayed behind.
        mismatches: clients whose queue is not what was read, at most ``MISMATCHES_KEPT``.
        mismatch_count: all of them.
    """

    ranges: int = 0
    clients: int = 0
    entries: int = 0
    pubrels: int = 0
    payload_bytes: int = 0
    resumed_ranges: int = 0
    sessions_added: int = 0
    losses: Losses = msgspec.field(default_factory=Losses)
    mismatches: list[Mismatch] = []
    mismatch_count: int = 0

    def add(self, result: RangeResult) -> None:
        """Count a range."""
        self.ranges += 1
        self.clients += result.clients
        self.entries += result.entries
        self.pubrels += result.pubrels
        self.payload_bytes += result.payload_bytes
        self.losses.add(result.losses)
        self.mismatch_count += len(result.mismatches)
        room = MISMATCHES_KEPT - len(self.mismatches)
        self.mismatches += result.mismatches[:room]


def run_task(task: Task, part: Range) -> RangeResult:
    """The body of a task; it may run twice.

    Raises:
        StorageError: a store failed; the range is done again by the next run.
    """

    async def run() -> RangeResult:
        source = await stores.open_source(task.source, task.directory)
        try:
            if task.dry:
                return await count_range(source, part, task.settings)
            if task.stage:
                return await stage_range(source, part, task.settings, Path(task.stage))
            target = await stores.open_target(task.target, now_us=task.settings.now_us)
            try:
                return await copy_range(source, part, target, task.settings)
            finally:
                await target.close()
        finally:
            await source.close()

    return asyncio.run(run())


def execute_here(task: Task, ranges: Sequence[Range]) -> Iterator[RangeResult]:
    """Run the tasks in this process, one after the other."""
    for part in ranges:
        yield run_task(task, part)


@final
class Migration:
    """One migration.

    Args:
        options: what is to be done.
        ledger: what is done; None for a dry run.
        execute: runs tasks.
        now_us: wall time.
        subscriptions: of clients, for a data directory.
        progress: told after each range: done ranges and all of them, entries so far.
    """

    def __init__(
        self,
        options: Options,
        ledger: Ledger | None,
        *,
        execute: Execute,
        now_us: int,
        subscriptions: Mapping[str, Sequence[Subscription]] | None = None,
        progress: Callable[[int, int, int], None] = lambda *_: None,
    ) -> None:
        self._options = options
        self._ledger = ledger
        self._execute = execute
        self._now_us = now_us
        self._subscriptions = subscriptions or {}
        self._progress = progress
        self._summary = Summary()

    def run(self) -> Summary:
        """Do what is not done yet, and verify it.

        Raises:
            ConfigError: the ledger belongs to another migration, or a store is not what it
                should be.
            StorageError: a store failed; run it again to go on.
        """
        options, ledger = self._options, self._kept()
        header = ledger.begin(
            Header(
                VERSION,
                options.source.shown,
                options.target.shown,
                options.settings_text + self._subscriptions_text(),
                self._now_us,
            )
        )
        asyncio.run(stores.check_target(options.target))
        if not ledger.is_planned:
            asyncio.run(self._plan())
        for result in ledger.done.values():
            if not result.mismatches:
                self._summary.add(result)
                self._summary.resumed_ranges += 1
        if options.target.is_database:
            self._into_database(header)
        else:
            for result in self._execute(self._task(), ledger.pending()):
                self._done(result)
        ledger.finish()
        return self._summary

    def dry_run(self) -> Summary:
        """Read everything and write nothing, not even a ledger."""

        async def plan() -> list[Range]:
            source = await self._open_source()
            try:
                return [part async for part in source.plan(self._options.entries_per_range)]
            finally:
                await source.close()

        ranges = asyncio.run(plan())
        task = msgspec.structs.replace(self._task(), dry=True)
        for result in self._execute(task, ranges):
            self._summary.add(result)
            self._progress(self._summary.ranges, len(ranges), self._summary.entries)
        return self._summary

    def _subscriptions_text(self) -> str:
        """A session gets its subscriptions when it is written: they may not change on the way."""
        if not self._subscriptions:
            return ""
        given = msgspec.json.encode(sorted(self._subscriptions.items()))
        return f", subscriptions {hashlib.blake2b(given, digest_size=8).hexdigest()}"

    def close(self) -> None:
        """Give the ledger to others."""
        if self._ledger is not None:
            self._ledger.close()

    def _kept(self) -> Ledger:
        assert self._ledger is not None
        return self._ledger

    async def _plan(self) -> None:
        source = await self._open_source()
        try:
            await self._kept().plan(source.plan(self._options.entries_per_range))
        finally:
            await source.close()

    async def _open_source(self) -> Source:
        return await stores.open_source(self._options.source, self._options.directory)

    def _task(self, stage: str = "") -> Task:
        options = self._options
        settings = Settings(
            self._now_us, options.ttl_s, options.limit, unique=not options.target.is_database
        )
        return Task(options.source, options.target, settings, stage, directory=options.directory)

    def _done(self, result: RangeResult) -> None:
        ledger = self._kept()
        ledger.add(result)
        self._summary.add(result)
        self._progress(self._summary.ranges, len(ledger.ranges), self._summary.entries)

    def _into_database(self, header: Header) -> None:
        options, ledger = self._options, self._kept()
        sessions = Sessions(
            header.begun_at_us, options.session_expiry_s, self._subscriptions, options.shared
        )
        with asyncio.Runner() as runner:
            database = stores.open_database(options.target, now_us=self._now_us)
            target = DatabaseTarget(database, sessions)
            try:
                runner.run(target.begin())
                stage = ledger.stage
                pending = {part.number: part for part in ledger.pending()}
                for staged in self._execute(self._task(str(stage)), list(pending.values())):
                    path = stage_path(stage, staged.number)
                    result = runner.run(put_pages(staged.number, staged_pages(path), target))
                    if result.entries + result.losses.orphaned != staged.entries:
                        raise StorageError(f"{path} is not what was read")
                    self._done(result)
                    path.unlink()
                self._summary.sessions_added = runner.run(target.put_subscribers())
            finally:
                runner.run(target.close())


class _SubscriptionLine(msgspec.Struct, forbid_unknown_fields=True):
    """A line of ``--subscriptions``."""

    client_id: str
    filter: str
    qos: int = 1
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    identifier: int = 0


def parse_subscriptions(lines: Iterable[bytes]) -> dict[str, list[Subscription]]:
    """The subscriptions in JSON lines, by client.

    Raises:
        ConfigError: a line is not one; says which.
    """
    from perdure.errors import MqttError
    from perdure.pipeline.tbmq.message_json import LEVELS_MAX
    from perdure.topic.names import parse_shared, validate_topic_filter

    found: dict[str, dict[str, Subscription]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            given = msgspec.json.decode(line, type=_SubscriptionLine)
            validate_topic_filter(given.filter, levels_max=LEVELS_MAX)
            group, topic_filter = parse_shared(given.filter)
        except (ValueError, MqttError) as error:
            raise ConfigError(f"line {number} is no subscription: {error}") from error
        if given.qos not in (0, 1, 2) or given.retain_handling not in (0, 1, 2):
            raise ConfigError(f"line {number}: QoS and retain handling are 0, 1 or 2")
        sub = Subscription(
            topic_filter,
            group,
            given.qos,
            given.no_local,
            given.retain_as_published,
            given.retain_handling,
            given.identifier,
        )
        found.setdefault(given.client_id, {})[sub.name] = sub
    return {client_id: list(subs.values()) for client_id, subs in found.items()}
