"""Whether the directories of nodes hold the same, at one position of their log.

What reads on is a checkpoint of each directory: nothing is changed in what was named by mistake,
and a node may run meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import msgspec

from perdure.backup.staging import linked_checkpoint
from perdure.config import plugged
from perdure.config.cluster_rules import options_of
from perdure.config.schema import StorageConfig
from perdure.config.schema.cluster import ClusterConfig
from perdure.errors import LogShorter, StorageError
from perdure.server.cluster_part import topic_of
from perdure.storage.ordered.contract import LogRecord
from perdure.storage.ordered.digest import digest
from perdure.storage.ordered.record import decode_record
from perdure.storage.ordered.view import View
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


def _check(directory: Path, view: View, end: int, topic: str) -> None:
    """That a directory can have come from the log."""
    if not view.position:
        raise StorageError(
            f"{directory} has never been a node of a cluster",
            hint="name the data directories of nodes",
        )
    if view.position > end:
        raise LogShorter(
            f"{directory} has read its log up to {view.position}; topic {topic} ends at {end}",
            hint="name the cluster, and its servers, as that node does; or Kafka has lost records",
        )


async def digests(directories: Sequence[Path], cluster: ClusterConfig) -> list[Found]:
    """Read each directory up to the log's end, and its digest.

    Args:
        directories: of nodes, stopped or running.
        cluster: where the log is.

    Raises:
        ConfigError: there is no such log.
        LogShorter: a node has come further than that log.
        StorageError: a directory is damaged or no node's, or the log does not answer.
    """

    def plug(target: str) -> Any:
        return plugged.load(target, setting="cluster.kafka", what="cluster verify", extra="kafka")

    kafka, kafka_settings = (
        plug("perdure.storage.kafka.log:KafkaLog"),
        plug("perdure.storage.kafka.settings:KafkaSettings"),
    )
    settings = kafka_settings(
        cluster.kafka, topic_of(cluster), options=options_of(cluster), makes_topic=False
    )
    settings.check()
    config = StorageConfig().rocksdb
    found: list[Found] = []
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(linked_checkpoint(directory)) for directory in directories]
        # Behind all checkpoints, so that none is beyond it.
        end = 0
        for directory, place in zip(directories, places, strict=True):
            local = RocksDatabase.open(place, config=config)
            log = await kafka.open(settings)
            try:
                view = View(local)
                end = end or (await log.bounds()).end
                _check(directory, view, end, settings.topic)
                reader = _CatchUp(view, end)
                log.start(reader, view.position)
                await reader.done
                found.append(Found(str(directory), view.position, await digest(local)))
            finally:
                await log.close()
                local.close()
    return found
