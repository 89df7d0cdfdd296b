"""A directory that was a node's, served by a single broker."""

from __future__ import annotations

import asyncio

from perdure.backup.nodes import is_node, leave
from perdure.broker.auth.bans import Ban, BanFile, ban_of
from perdure.errors import ConfigError
from perdure.model.reserved import BANS_PREFIX
from perdure.observe.logs import get_logger
from perdure.storage.batch import Batch
from perdure.storage.contract import Database
from perdure.storage.retained_pages import all_retained
from perdure.storage.rocksdb.store import RocksDatabase

log = get_logger("cluster")


async def leave_cluster(database: Database, bans: BanFile | None) -> bool:
    """Let it be no node's any more, if it was one's.

    What is written from now on is not in the cluster's log: a node that went on there would differ
    from the others for good. The cluster's bans become the broker's own.

    Args:
        database: of the directory.
        bans: the file of the broker's; None = it has none.

    Returns:
        Whether it was a node's.

    Raises:
        ConfigError: the bans cannot be written.
    """
    if not isinstance(database, RocksDatabase) or not is_node(database):
        return False
    names, found = await _bans(database)
    if bans is not None and found:
        # First: who is banned stays so, whenever this process ends.
        await asyncio.to_thread(bans.put, found)
    batch = Batch()
    for name in names:
        batch.delete_retained(name)
    database.submit(batch, 0)
    await leave(database)
    log.warning(
        "cluster.left",
        bans=len(found),
        hint="as a node again it needs an empty directory: perdure cluster join; as the first of "
        "another cluster it may stay",
    )
    return True


async def _bans(database: RocksDatabase) -> tuple[list[str], list[Ban]]:
    """The topics under which the log's bans are, and those that this release knows."""
    names: list[str] = []
    found: list[Ban] = []
    async for message in all_retained(database, f"{BANS_PREFIX}#"):
        names.append(message.topic)
        try:
            found.append(ban_of(message.payload.decode()))
        except (ConfigError, ValueError) as error:
            log.error("ban.unknown", name=message.topic, reason=str(error))
    return names, found
