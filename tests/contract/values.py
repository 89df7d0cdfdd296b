"""Builders of the values that the contract tests store."""

from __future__ import annotations

from perdure.errors import Fenced
from perdure.model import InboxEntry, Message, SessionRecord
from perdure.storage.batch import Batch
from perdure.storage.contract import Database

NOW_US = 1_700_000_000_000_000


def message(topic: str = "a/b", payload: bytes = b"x", **fields: object) -> Message:
    """A message that a client published."""
    values: dict[str, object] = {"qos": 1, "publisher": "pub", "published_at_us": NOW_US}
    values.update(fields)
    return Message(topic, payload, **values)  # type: ignore[arg-type]


def record(client_id: str = "c1", epoch: int = 1, **fields: object) -> SessionRecord:
    """A connected session that never expires."""
    values: dict[str, object] = {
        "created_at_us": NOW_US,
        "expiry_s": 0xFFFF_FFFF,
        "connected": True,
        "changed_at_us": NOW_US,
    }
    values.update(fields)
    return SessionRecord(client_id, epoch, **values)  # type: ignore[arg-type]


def entry(offset: int, payload: bytes = b"x", **fields: object) -> InboxEntry:
    """An entry of a private stream."""
    values: dict[str, object] = {"qos": 1}
    values.update(fields)
    return InboxEntry(offset, message("private/t", payload), **values)  # type: ignore[arg-type]


def append_all(database: Database, *messages: Message, now_us: int = NOW_US) -> list[int]:
    """Record messages in one batch; returns their offsets."""
    batch = database.batch()
    offsets = [batch.append(message, now_us) for message in messages]
    database.write(batch)
    return offsets


def is_refused(database: Database, batch: Batch) -> bool:
    """Write a batch; whether an owner in it was found to be stale."""
    try:
        database.write(batch)
    except Fenced:
        return True
    return False


def create_session(database: Database, client_id: str = "c1", epoch: int = 1) -> None:
    """Write the record of a session."""
    batch = database.batch()
    batch.put_session(record(client_id, epoch))
    database.write(batch)


async def read_all(
    database: Database, *filters: str, after: int = 0, limit: int = 1_000_000
) -> list[Message]:
    """Everything that matches, up to the last offset."""
    result = await database.read(
        filters, after_offset=after, until_offset=database.last_offset, limit=limit
    )
    return result.messages
