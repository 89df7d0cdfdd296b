"""The job in rounds: read a range of the log once, give each target its part, remember how far.

A round's tasks match (in parts of the log) and write (in parts of the targets: each target's rows
are with one task, in the order of their offsets). Where a round was broken off the next one reads
the same range again, and each target leaves out what it has: the cursor may be behind, never ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, TypeAlias, final

import msgspec
import pyarrow as pa

from perdure.clock import SystemClock
from perdure.config.schema.forwarders import KafkaForwarderConfig
from perdure.errors import PerdureError, StorageUnavailable
from perdure.forwarders.route.kafka_writer import KafkaWriter
from perdure.forwarders.route.queue_writer import QueueSettings, QueueWriter
from perdure.forwarders.route.rows import messages_of
from perdure.forwarders.route.targets import APPLICATION, Route
from perdure.limits import OFFSET_MAX
from perdure.pipeline import offsets
from perdure.pipeline.log_index import opened
from perdure.pipeline.offsets import StreamPosition
from perdure.pipeline.options import ReadOptions

ROWS_PER_ROUND: Final = 1_000_000
"""Bounds what is read again after a kill."""

RESULT: Final = pa.schema(
    [
        ("target", pa.string()),
        ("written", pa.int64()),
        ("repeated", pa.int64()),
        ("too_large", pa.int64()),
        ("error", pa.string()),
    ]
)
RESULT_DDL: Final = "target string, written bigint, repeated bigint, too_large bigint, error string"


@final
class Task(msgspec.Struct, frozen=True):
    """What the tasks of a round are told.

    Attributes:
        routes: of all targets.
        applications: settings by the name of the forwarder.
        origin: of the broker, which names the writer.
        queues: where devices' queues are.
    """

    routes: tuple[Route, ...]
    applications: Mapping[str, KafkaForwarderConfig]
    origin: str
    queues: QueueSettings = QueueSettings()


@final
class Written(msgspec.Struct, frozen=True):
    """What a task, or a round, has written.

    Attributes:
        target: name of an application's forwarder; empty = the queues.
        written: messages that are at the target by it.
        repeated: messages that were there before.
        too_large: messages that the target does not take.
        error: why a target has not got everything; empty = it has.
    """

    target: str
    written: int
    repeated: int = 0
    too_large: int = 0
    error: str = ""


class TooLarge(Exception):
    """A round has more than is to be in memory at once; nothing of it was written."""


Execute: TypeAlias = Callable[[ReadOptions, Task], list[Written]]
"""Reads the range of the options, matches, and runs ``write_batches`` on each target's rows. May
raise ``TooLarge`` for more than one message."""


def write_batches(task: Task, batches: Iterable[Any]) -> Iterator[Any]:
    """Write rows that are sorted by target and offset; the body of a task.

    An error of a target ends that target's part alone, and comes back as a row.
    """
    now_us = SystemClock().now_us()
    with ExitStack() as stack:
        writers = _Writers(task, stack)
        for batch in batches:
            for key, granted, message in messages_of(batch):
                writers.put(key, granted, message, now_us)
        rows = [msgspec.to_builtins(each) for each in writers.finish()]
    yield pa.RecordBatch.from_pylist(rows, schema=RESULT)


@final
class _Writers:
    """One writer at a time for applications, as rows are sorted; one for all queues."""

    def __init__(self, task: Task, stack: ExitStack) -> None:
        self._task = task
        self._key = ""
        self._kafka: KafkaWriter | None = None
        self._queues: QueueWriter | None = None
        self._failed: dict[str, str] = {}
        self._done: list[Written] = []
        stack.callback(self._abandon)

    def put(self, key: str, granted: int, message: Any, now_us: int) -> None:
        kind, _, name = key.partition(":")
        place = name if kind == APPLICATION else ""
        if place in self._failed:
            return
        try:
            if kind == APPLICATION:
                if key != self._key:
                    self._finish_kafka()
                    self._key = key
                    settings = self._task.applications[name]
                    self._kafka = KafkaWriter(name, settings, origin=self._task.origin)
                assert self._kafka is not None
                self._kafka.put(message, granted=granted, now_us=now_us)
            else:
                if self._queues is None:
                    self._queues = QueueWriter(self._task.queues)
                self._queues.put(name, message, granted=granted, now_us=now_us)
        except PerdureError as error:
            self._failed[place] = error.message

    def finish(self) -> list[Written]:
        """What was written, after all is safe."""
        self._finish_kafka()
        queues, self._queues = self._queues, None
        if queues is not None:
            try:
                queues.close()
            except PerdureError as error:
                self._failed.setdefault("", error.message)
            self._done.append(Written("", queues.written, queues.repeated))
        return self._done + [Written(name, 0, error=text) for name, text in self._failed.items()]

    def _finish_kafka(self) -> None:
        writer, self._kafka = self._kafka, None
        if writer is None:
            return
        name = self._key.partition(":")[2]
        try:
            if name not in self._failed:
                writer.close()
        except PerdureError as error:
            self._failed[name] = error.message
        self._done.append(Written(name, writer.written, writer.repeated, len(writer.too_large)))

    def _abandon(self) -> None:
        if self._queues is not None:
            self._queues.abandon()


@final
class RouteJob:
    """Runs rounds.

    Args:
        options: the log, and where a new job begins.
        task: targets.
        execute: runs the tasks.
        start: everything up to here was routed by earlier rounds; None = nothing was.
        on_position: told after each round how far it is.
        rows_per_round: most messages of a round.
    """

    def __init__(
        self,
        options: ReadOptions,
        task: Task,
        *,
        execute: Execute,
        start: int | None,
        on_position: Callable[[StreamPosition], None],
        rows_per_round: int = ROWS_PER_ROUND,
    ) -> None:
        self._rows_per_round = self._rows = rows_per_round
        self._options = options
        self._task = task
        self._execute = execute
        self._on_position = on_position
        self._start = start

    def run_round(self) -> tuple[list[Written], bool]:
        """Route the next messages; what was written, and whether there is more.

        Raises:
            ConfigError: messages were dropped before they were routed (``DATA_LOSS``).
            StorageUnavailable: a target has not got its part; the round is to be repeated.
        """
        with opened(self._options, patient=True) as files:
            start = offsets.initial(files, self._options)
            if self._start is not None:
                oldest = files.generations()[0]
                # What begins before the log does is of a generation that is not there any more.
                is_old = self._start + 1 < oldest.since_offset
                generation = max(1, oldest.generation - 1) if is_old else start.generation
                start = offsets.position(files.database_id, generation, self._start)
            offsets.check(files, start, self._options)
            end = offsets.latest(files, start, self._options, rows_max=self._rows, cap=OFFSET_MAX)
            newest = files.newest()
        if end.offset <= start.offset:
            return [], False
        span = self._options.between(start.offset, end.offset)
        try:
            found = self._execute(msgspec.structs.replace(span, whole=True), self._task)
        except TooLarge:
            self._rows = max(self._rows // 2, 1)
            return [], True
        # Slowly, because a round that is too large was read in vain.
        self._rows = min(self._rows + self._rows // 8 + 1, self._rows_per_round)
        failed = [each for each in found if each.error]
        if failed:
            names = ", ".join(sorted({each.target or "queues" for each in failed}))
            raise StorageUnavailable(f"{names}: {failed[0].error}")
        self._start = end.offset
        self._on_position(end)
        return together(found), newest is not None and newest.offset > end.offset


def together(found: Sequence[Written]) -> list[Written]:
    """What all tasks have written, by target."""
    by_target: dict[str, Written] = {}
    for each in found:
        before = by_target.get(each.target, Written(each.target, 0))
        by_target[each.target] = Written(
            each.target,
            before.written + each.written,
            before.repeated + each.repeated,
            before.too_large + each.too_large,
        )
    return [by_target[name] for name in sorted(by_target)]
