"""Backups that the broker makes by itself: when, and what came of them.

Each is made by a process of its own (``perdure.backup``), which ends with the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

import msgspec

from perdure.backup.task import Report, Task
from perdure.clock import Clock
from perdure.config.schema import BackupConfig, RocksdbConfig
from perdure.observe.logs import get_logger
from perdure.observe.metrics import Metrics

log = get_logger("backup")

RETRY_S: Final = 300
"""After a backup that failed, where the next is not due earlier."""

TICK_S: Final = 5.0
"""How often the age of the last backup is brought up to date."""

REPORT_BYTES_MAX: Final = 64 * 1024


@final
class BackupPart:
    """Makes a backup every ``backup.every`` seconds.

    Args:
        config: the section ``backup``.
        data: data directory.
        rocksdb: of the database.
        metrics: told of each.
        clock: wall time.
        command: what makes one; for tests.
    """

    name: str = "backup"

    def __init__(
        self,
        config: BackupConfig,
        data: Path,
        *,
        rocksdb: RocksdbConfig,
        metrics: Metrics,
        clock: Clock,
        command: Sequence[str] = (sys.executable, "-P", "-m", "perdure.backup"),
    ) -> None:
        self._config = config
        self._data = data.resolve()
        self._rocksdb = rocksdb
        self._metrics = metrics
        self._clock = clock
        self._command = tuple(command)
        self._tasks: list[asyncio.Task[None]] = []
        self._last_us = 0
        metrics.backup_age_seconds = -1

    async def start(self) -> None:
        """Begin to make backups; none is waited for."""
        self._tasks = [
            asyncio.create_task(self._run(), name="backup"),
            asyncio.create_task(self._keep_age(), name="backup age"),
        ]

    async def stop(self) -> None:
        """Give up what is being made: it is no backup then."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _run(self) -> None:
        found = await self._ask(make=False)
        if found.error:
            log.error("backup.failed", error=found.error, hint=found.hint)
            self._metrics.backup_failed = 1
        self._last_us = found.made_at_us
        due_us = self._last_us + self._config.every * 1_000_000
        while True:
            await self._wait(due_us)
            begun_us = self._clock.now_us()
            made = await self._ask(make=True)
            every_s = self._config.every
            if made.error:
                self._metrics.backups_failed += 1
                self._metrics.backup_failed = 1
                every_s = min(every_s, RETRY_S)
                log.error("backup.failed", error=made.error, hint=made.hint, again_in_s=every_s)
            else:
                self._metrics.backups_made += 1
                self._metrics.backup_failed = 0
                self._last_us = made.made_at_us
                self._metrics.backup_age_seconds = 0
                log.info(
                    "backup.made",
                    id=made.id,
                    position=made.position,
                    size=made.size,
                    copied=made.copied,
                    seconds=made.seconds,
                    pruned=made.pruned,
                )
            due_us = begun_us + every_s * 1_000_000

    async def _wait(self, due_us: int) -> None:
        while (left_us := due_us - self._clock.now_us()) > 0:  # noqa: ASYNC110 - of time, no event
            # In steps, because the clock may be set while it is waited for.
            await asyncio.sleep(min(TICK_S, left_us / 1_000_000))

    async def _keep_age(self) -> None:
        while True:
            if self._last_us:
                age_us = self._clock.now_us() - self._last_us
                self._metrics.backup_age_seconds = max(0, age_us // 1_000_000)
            await asyncio.sleep(TICK_S)

    async def _ask(self, *, make: bool) -> Report:
        """Let a process make a backup, or look for the last one."""
        config = self._config
        task = Task(str(self._data), config.to, make, config.keep, config.rate, self._rocksdb)
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=REPORT_BYTES_MAX,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(msgspec.json.encode(task) + b"\n")
                await process.stdin.drain()
            line = await process.stdout.readline()
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        try:
            return msgspec.json.decode(line, type=Report)
        except ValueError:
            return Report(error=f"the process that makes backups ended with {code}")
