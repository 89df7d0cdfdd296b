"""A database that is a node's of a cluster, where it is restored, or goes on by itself."""

from __future__ import annotations

import hashlib

from perdure.backup.strangers import estrange
from perdure.storage.batch import Batch
from perdure.storage.notes import LOG_IDENTITY, RESTORED
from perdure.storage.rocksdb.store import RocksDatabase

_OWN = frozenset({LOG_IDENTITY, RESTORED})
"""What a database keeps when it is a node's no more."""


def is_node(database: RocksDatabase) -> bool:
    """Whether it has read a cluster's log, and goes on there."""
    return any(key not in _OWN for key, _ in database.notes())


def is_restored(database: RocksDatabase) -> bool:
    """Whether it is as it was in a backup, or began as that."""
    return any(key == RESTORED for key, _ in database.notes())


async def leave(database: RocksDatabase) -> None:
    """Let it be a node's no more, whatever comes of it."""
    if is_restored(database):
        # What its clients remember is later, and no log brings it there any more.
        await estrange(database, lambda _: None)
    forget_log(database)


def forget_log(database: RocksDatabase) -> None:
    """Let it have read no log: what it is called for its readers stays."""
    database.apply(Batch(), [(key, None) for key, _ in database.notes() if key not in _OWN])


def note_restored(database: RocksDatabase, backup: str, at: int) -> None:
    """Tell it from the directory that was backed up, and from what else was restored of that.

    Args:
        backup: id of the backup.
        at: offset up to which it was restored; 0 = all of the backup.
    """
    digest = hashlib.blake2b(f"{backup} {at}".encode(), digest_size=7).digest()
    database.apply(Batch(), [(RESTORED, b"\0" + digest)])
