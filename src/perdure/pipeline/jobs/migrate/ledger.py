"""What a migration has done so far: a directory of its own, two files, one line for each range.

::

    plan.jsonl   a header, a line for each range, and a last line that says it is complete
    done.jsonl   a result for each range that was written, verified and made durable
    stage/       ranges that were read and wait to be written

Invariant: a line of ``done.jsonl`` is synced before anybody is told of it, and one that a crash
has cut is no line. One process at a time holds the lock.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, final

import msgspec

from perdure.errors import ConfigError, StorageLocked
from perdure.files import try_lock
from perdure.pipeline.jobs.migrate.contract import Range, RangeResult

VERSION: Final = 1


class Header(msgspec.Struct, frozen=True):
    """What a ledger is about.

    Attributes:
        version: of the files.
        source, target: URLs without secrets.
        options: everything else that decides what is written.
        begun_at_us: names the migration: what it has written is known by it.
    """

    version: int
    source: str
    target: str
    options: str
    begun_at_us: int


class _End(msgspec.Struct, frozen=True):
    ranges: int
    is_complete: bool = True


@final
class Ledger:
    """The ledger in a directory, which is made if it is not there.

    Args:
        path: the directory.

    Raises:
        StorageLocked: another process works with it.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        lock = try_lock(path / "lock")
        if lock is None:
            raise StorageLocked(
                f"{path} is in use by another migration", hint="wait for it, or end it"
            )
        self._lock = lock
        self.header: Header | None = None
        self.ranges: list[Range] = []
        self.done: dict[int, RangeResult] = {}
        self._read()

    def begin(self, header: Header) -> Header:
        """Start, or go on with what this ledger is about.

        Returns:
            The header of the first run.

        Raises:
            ConfigError: the ledger is about something else.
        """
        known = self.header
        if known is None:
            self.header = header
            return header
        same = (known.source, known.target, known.options) == (
            header.source,
            header.target,
            header.options,
        )
        if known.version != VERSION or not same:
            raise ConfigError(
                f"{self.path} is the ledger of another migration: {known.source} to "
                f"{known.target}, {known.options}",
                hint="give each migration a directory of its own with --ledger",
            )
        return known

    async def plan(self, ranges: AsyncIterator[Range]) -> None:
        """Keep the plan; whole or not at all."""
        assert self.header is not None
        partial = self.path / f"plan.jsonl.{os.getpid()}"
        with partial.open("wb") as file:
            file.write(msgspec.json.encode(self.header) + b"\n")
            async for part in ranges:
                self.ranges.append(part)
                file.write(msgspec.json.encode(part) + b"\n")
            file.write(msgspec.json.encode(_End(len(self.ranges))) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path / "plan.jsonl")

    @property
    def is_planned(self) -> bool:
        """Whether there is a whole plan."""
        return (self.path / "plan.jsonl").exists()

    @property
    def stage(self) -> Path:
        """Where ranges wait to be written."""
        path = self.path / "stage"
        path.mkdir(exist_ok=True)
        return path

    def pending(self) -> list[Range]:
        """Ranges that are not done, or were not what they should be."""
        return [
            part
            for part in self.ranges
            if part.number not in self.done or self.done[part.number].mismatches
        ]

    def add(self, result: RangeResult) -> None:
        """A range is done."""
        self.done[result.number] = result
        with (self.path / "done.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def finish(self) -> None:
        """Nothing is staged any more."""
        shutil.rmtree(self.path / "stage", ignore_errors=True)

    def close(self) -> None:
        """Give the directory to others."""
        os.close(self._lock)

    def _read(self) -> None:
        plan = self.path / "plan.jsonl"
        if not plan.exists():
            return
        head, *lines, end = plan.read_bytes().splitlines()
        self.header = msgspec.json.decode(head, type=Header)
        self.ranges = [msgspec.json.decode(line, type=Range) for line in lines]
        if msgspec.json.decode(end, type=_End).ranges != len(self.ranges):
            raise ConfigError(
                f"{plan} is damaged", hint="move it away and begin again with an empty target"
            )
        done = self.path / "done.jsonl"
        if not done.exists():
            return
        whole, separator, cut = done.read_bytes().rpartition(b"\n")
        for line in whole.splitlines():
            result = msgspec.json.decode(line, type=RangeResult)
            self.done[result.number] = result
        if cut:
            # The process died while it wrote this one: that range is done again.
            with done.open("r+b") as file:
                file.truncate(len(whole) + len(separator))
