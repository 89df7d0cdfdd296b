"""Builders of the values that the contract tests store."""

from __future__ import annotations

from perdure.model import InboxEntry, Message, SessionRecord
from perdure.storage.batch import Batch
from perdure.storage.contract import Database
from perdure.storage.operations import Operation

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


def write(database: Database, batch: Batch, now_us: int = NOW_US) -> None:
    """Submit a batch and wait until it is sequenced; nothing of it may be refused."""
    assert not submit(database, batch, now_us)


def submit(database: Database, batch: Batch, now_us: int = NOW_US) -> list[Operation]:
    """Submit a batch and wait until it is sequenced; returns what was refused."""
    database.submit(batch, now_us)
    if not batch.is_sequenced:
        assert database.capabilities.sequences_late
        database.sequence_all()  # type: ignore[attr-defined]
    assert batch.is_sequenced
    return batch.refused


def append_all(database: Database, *messages: Message, now_us: int = NOW_US) -> list[int]:
    """Record messages in one batch; returns their offsets."""
    batch = Batch()
    batch.extend(list(messages))
    write(database, batch, now_us)
    return [message.offset for message in messages]


def take_offset(database: Database, now_us: int = NOW_US) -> int:
    """Take an offset that belongs to nothing in the log; returns it."""
    batch = Batch()
    mark = InboxEntry(0, None, qos=1)
    batch.place(mark)
    write(database, batch, now_us)
    return mark.offset


def create_session(database: Database, client_id: str = "c1", epoch: int = 1) -> None:
    """Write the record of a session."""
    batch = Batch()
    batch.put_session(record(client_id, epoch))
    write(database, batch)


async def read_all(
    database: Database, *filters: str, after: int = 0, limit: int = 1_000_000
) -> list[Message]:
    """Everything that matches, up to the last offset."""
    result = await database.read(
        filters, after_offset=after, until_offset=database.last_offset, limit=limit
    )
    return result.messages
