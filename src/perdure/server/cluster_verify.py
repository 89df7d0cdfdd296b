"""Whether the directories of nodes hold the same, at one position of their log.

Of a node that runs it is a checkpoint of its directory that reads on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import msgspec

from perdure.backup.staging import linked_checkpoint
from perdure.config import plugged
from perdure.config.schema import StorageConfig
from perdure.errors import StorageError, StorageUnavailable
from perdure.storage.ordered.contract import LogRecord
from perdure.storage.ordered.digest import digest
from perdure.storage.ordered.record import decode_record
from perdure.storage.ordered.view import View
from perdure.storage.rocksdb.inspection import has_owner
from perdure.storage.rocksdb.store import RocksDatabase


@final
class Found(msgspec.Struct, frozen=True):
    """What a directory holds.

    Attributes:
        directory: which.
        position: of the log, that its node reads next.
        digest: of all that the log decides.
    """

    directory: str
    position: int
    digest: str


@final
class _CatchUp:
    """Applies records up to a position."""

    def __init__(self, view: View, end: int) -> None:
        self._view = view
        self._end = end
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if view.position >= end:
            self.done.set_result(None)

    def records(self, records: list[LogRecord]) -> None:
        """From the log."""
        for entry in records:
            if entry.position >= self._end:
                break
            self._view.apply(entry, decode_record(entry.value))
        if self._view.position >= self._end and not self.done.done():
            self.done.set_result(None)

    def failed(self, error: StorageError) -> None:
        """From the log."""
        if not self.done.done():
            self.done.set_exception(error)


async def digests(
    directories: Sequence[Path], servers: str, name: str, options: Mapping[str, str]
) -> list[Found]:
    """Read each directory up to the log's end, and its digest.

    Args:
        directories: of nodes, stopped or running.
        servers, name: as ``cluster.kafka`` and ``cluster.name``.
        options: of librdkafka.

    Raises:
        StorageError: a directory is damaged, or the log does not answer.
    """

    def plug(target: str) -> Any:
        return plugged.load(target, setting="cluster.kafka", what="cluster verify", extra="kafka")

    kafka, kafka_settings = (
        plug("perdure.storage.kafka.log:KafkaLog"),
        plug("perdure.storage.kafka.settings:KafkaSettings"),
    )
    settings = kafka_settings(servers, f"perdure.{name}.log", options=dict(options))
    settings.check()
    config = StorageConfig().rocksdb
    found: list[Found] = []
    with contextlib.ExitStack() as stack:
        places: list[Path] = []
        for directory in directories:
            if not (directory / "CURRENT").exists():
                raise StorageUnavailable(f"{directory} is no data directory")
            is_running = has_owner(directory)
            places.append(
                stack.enter_context(linked_checkpoint(directory)) if is_running else directory
            )
        # Behind all checkpoints, so that none is beyond it.
        end = 0
        for directory, place in zip(directories, places, strict=True):
            local = RocksDatabase.open(place, config=config)
            log = await kafka.open(settings)
            try:
                view = View(local)
                end = end or (await log.bounds()).end
                reader = _CatchUp(view, end)
                log.start(reader, view.position)
                await reader.done
                found.append(Found(str(directory), view.position, await digest(local)))
            finally:
                await log.close()
                local.close()
    return found
