"""Runs the tasks of a migration in Spark: one small job for each range, a few at a time.

A job for each range rather than one for all: its result is known, and in the ledger, as soon as it
has ended, so that a driver that is killed loses the ranges in flight and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Final, final

import msgspec
import pyarrow as pa

from perdure.errors import ConfigError, PerdureError, StorageError, StorageUnavailable
from perdure.pipeline.jobs.migrate.contract import Range, RangeResult
from perdure.pipeline.jobs.migrate.job import Task, run_task

_RESULT: Final = pa.schema([("result", pa.binary()), ("error", pa.string()), ("hint", pa.string())])
_RESULT_DDL: Final = "result binary, error string, hint string"
_CONFIG: Final = "config: "
"""Before the sentence of an error that trying again does not mend."""


@final
class SparkTasks:
    """Gives ranges to Spark, ``parallel`` at a time, and their results as they come.

    Args:
        spark: a session whose workers reach both stores.
        parallel: ranges at a time; 0 = as many as Spark has cores.
    """

    def __init__(self, spark: Any, *, parallel: int = 0) -> None:
        self._spark = spark
        self._parallel = parallel or spark.sparkContext.defaultParallelism

    def __call__(self, task: Task, ranges: Sequence[Range]) -> Iterator[RangeResult]:
        """See ``job.Execute``."""
        waiting = iter(ranges)
        with ThreadPoolExecutor(self._parallel, thread_name_prefix="range") as pool:
            running: set[Future[RangeResult]] = set()
            try:
                while True:
                    while len(running) < self._parallel:
                        part = next(waiting, None)
                        if part is None:
                            break
                        running.add(pool.submit(self._run, task, part))
                    if not running:
                        return
                    ended, running = wait(running, return_when=FIRST_COMPLETED)
                    for each in ended:
                        yield each.result()
            finally:
                if running:
                    self._spark.sparkContext.cancelAllJobs()

    def _run(self, task: Task, part: Range) -> RangeResult:
        frame = self._spark.range(1, numPartitions=1)
        rows = frame.mapInArrow(partial(_run_here, task, part), _RESULT_DDL).collect()
        row = rows[0]
        if row.error is None:
            return msgspec.msgpack.decode(bytes(row.result), type=RangeResult)
        if row.error.startswith(_CONFIG):
            raise ConfigError(row.error.removeprefix(_CONFIG), hint=row.hint)
        raise StorageUnavailable(row.error, hint=row.hint)


def _run_here(task: Task, part: Range, batches: Iterable[Any]) -> Iterator[Any]:
    """The body of the Spark task: errors of ours come back as data, without Java's stack."""
    for _ in batches:
        pass
    result, error, hint = b"", None, ""
    try:
        result = msgspec.msgpack.encode(run_task(task, part))
    except PerdureError as failure:
        kind = "" if isinstance(failure, StorageError) else _CONFIG
        error, hint = f"{kind}{failure.message}", failure.hint
    rows = [{"result": result, "error": error, "hint": hint}]
    yield pa.RecordBatch.from_pylist(rows, schema=_RESULT)
