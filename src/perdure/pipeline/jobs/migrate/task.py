"""One range: read, write, read back, compare. The body of a task, which may run more than once."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final, final

import msgspec

from perdure.errors import StorageFull, StorageUnavailable
from perdure.pipeline.jobs.migrate.contract import (
    Mismatch,
    Range,
    RangeResult,
    Settings,
    Source,
    Target,
)
from perdure.pipeline.tbmq.pending import Losses, PendingPage, QueueSum, Summing

VERIFIED_TOGETHER: Final = 64
"""Queues that are read back at once: servers answer many questions in one round trip."""
_LENGTH_BYTES: Final = 4
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PendingPage).decode


@final
class Tally:
    """Counts and sums the pages of a range as they pass."""

    def __init__(self) -> None:
        self.sums: dict[str, QueueSum] = {}
        self.losses = Losses()
        self._summing = Summing()
        self._entries = self._pubrels = self._payload_bytes = 0

    def add(self, page: PendingPage) -> None:
        """The next page."""
        if page.is_first:
            self._summing = Summing()
        for entry in page.entries:
            self._summing.add(entry)
            self._pubrels += entry.released
            self._payload_bytes += len(entry.payload)
        self._entries += len(page.entries)
        self.losses.add(page.losses)
        if page.is_last:
            self.sums[page.client_id] = self._summing.result()

    def result(self, number: int, mismatches: list[Mismatch]) -> RangeResult:
        """All of it."""
        whole = hashlib.blake2b(digest_size=16)
        for client_id, found in self.sums.items():
            whole.update(_encode((client_id, found.count, found.digest)))
        return RangeResult(
            number,
            len(self.sums),
            self._entries,
            self._pubrels,
            self._payload_bytes,
            whole.hexdigest(),
            self.losses,
            mismatches,
        )


async def copy_range(
    source: Source, part: Range, target: Target, settings: Settings
) -> RangeResult:
    """Move a range from a source to a target."""
    return await put_pages(part.number, source.read(part, settings), target)


async def put_pages(number: int, pages: AsyncIterator[PendingPage], target: Target) -> RangeResult:
    """Put the pages of a range into a target, and compare what is there then."""
    tally = Tally()
    async for page in pages:
        taken = target.takes(page)
        tally.add(taken)
        await target.put(taken)
    await target.flush()
    mismatches = []
    clients = list(tally.sums)
    for at in range(0, len(clients), VERIFIED_TOGETHER):
        some = clients[at : at + VERIFIED_TOGETHER]
        for client_id, found in zip(
            some, await asyncio.gather(*map(target.sum_of, some)), strict=True
        ):
            expected = tally.sums[client_id]
            reason = target.refusal(client_id) or _difference(expected, found)
            if reason:
                count = found.count if found is not None else 0
                mismatches.append(Mismatch(client_id, expected.count, count, reason))
    return tally.result(number, mismatches)


def _difference(expected: QueueSum, found: QueueSum | None) -> str:
    """In which way a queue is not what it should be; empty = in none."""
    if found is None:
        return "no queue" if expected.count else ""
    if expected.matches(found):
        return ""
    if expected.count != found.count:
        return "counts differ"
    return "contents differ" if expected.digest != found.digest else "expiry times differ"


async def count_range(source: Source, part: Range, settings: Settings) -> RangeResult:
    """Read a range and write nothing."""
    tally = Tally()
    async for page in source.read(part, settings):
        tally.add(page)
    return tally.result(part.number, [])


# -- staging -------------------------------------------------------------------------------


def stage_path(directory: Path, number: int) -> Path:
    """Where a range waits for the process that may write the target."""
    return directory / f"range-{number:06}.staged"


async def stage_range(
    source: Source, part: Range, settings: Settings, directory: Path
) -> RangeResult:
    """Read a range into a file, for a target that only one process can write."""
    path = stage_path(directory, part.number)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    tally = Tally()
    try:
        with partial.open("wb") as file:
            async for page in source.read(part, settings):
                tally.add(page)
                data = _encode(page)
                file.write(len(data).to_bytes(_LENGTH_BYTES))
                file.write(data)
        # Not synced: a file that a power cut has damaged is read from the source again.
        partial.replace(path)
    except OSError as error:
        kind = StorageFull if error.errno == errno.ENOSPC else StorageUnavailable
        raise kind(f"{path.parent} cannot be written: {error.strerror}") from error
    return msgspec.structs.replace(tally.result(part.number, []), state="staged")


async def staged_pages(path: Path) -> AsyncIterator[PendingPage]:
    """The pages in a file of ``stage_range``."""
    for page in _frames(path):
        yield page


def _frames(path: Path) -> Iterator[PendingPage]:
    with path.open("rb") as file:
        while head := file.read(_LENGTH_BYTES):
            yield _decode(file.read(int.from_bytes(head)))
