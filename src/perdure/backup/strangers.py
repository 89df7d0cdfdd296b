"""Makes the sessions of a restored database ones whose clients have to begin anew.

What a client remembers is later than the backup: packet identifiers that it thinks are in use, or
free again. Taken for those of the backup, a new message would be dropped as a repetition, on either
side, and nobody would know. So the next CONNACK says Session Present 0: the client forgets its
half, and here the broker's half is forgotten:

- a message whose PUBREC had come is done: the client has it;
- an identifier that awaited PUBREL is free: its message is in the log;
- everything that is still owed goes out with DUP, since it may have been delivered after the
  backup. So a repetition is never silent.

Subscriptions, and what a session is owed, stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from perdure.model import Cursor, StoredSession
from perdure.storage.batch import Batch
from perdure.storage.rocksdb.store import RocksDatabase

_BATCH_SESSIONS: Final = 500


def estrange_sessions(database: RocksDatabase, progress: Callable[[int], None]) -> int:
    """Let every session's next client begin anew.

    Args:
        database: open for writing; no broker has it.
        progress: told how many are done.

    Returns:
        How many sessions there are.
    """
    return asyncio.run(estrange(database, progress))


async def estrange(database: RocksDatabase, progress: Callable[[int], None]) -> int:
    """As ``estrange_sessions``, where a loop runs."""
    count = 0
    batch = Batch()
    async for record in database.sessions():
        stored = await database.open_session(record.client_id)
        assert stored is not None
        _estrange_one(batch, stored, database.last_offset)
        count += 1
        if count % _BATCH_SESSIONS == 0:
            database.submit(batch, 0)
            batch = Batch()
            progress(count)
    database.submit(batch, 0)
    progress(count)
    return count


def _estrange_one(batch: Batch, stored: StoredSession, last_offset: int) -> None:
    record, cursor = stored.record, stored.cursor
    batch.put_session(msgspec.structs.replace(record, protocol=0, cut_offset=last_offset))
    if cursor.released:
        batch.put_cursor(
            record.client_id,
            Cursor(
                cursor.offset,
                cursor.serial,
                tuple(sorted({*cursor.settled, *cursor.released})),
                (),
                cursor.sent,
            ),
            epoch=record.epoch,
        )
    for packet_id in stored.awaiting_release:
        batch.delete_awaiting_release(record.client_id, packet_id, epoch=record.epoch)
