"""A directory that was a node's, served by a single broker."""

from __future__ import annotations

from perdure.backup.nodes import is_node, leave
from perdure.observe.logs import get_logger
from perdure.storage.contract import Database
from perdure.storage.rocksdb.store import RocksDatabase

log = get_logger("cluster")


async def leave_cluster(database: Database) -> None:
    """Let it be no node's any more, if it was one's.

    What is written from now on is not in the cluster's log: a node that went on there would differ
    from the others for good.
    """
    if not isinstance(database, RocksDatabase) or not is_node(database):
        return
    await leave(database)
    log.warning(
        "cluster.left",
        hint="as a node again it needs an empty directory: perdure cluster join; as the first of "
        "another cluster it may stay",
    )
