"""Fixtures write what a test wants to find: each message at a time of its own."""

from __future__ import annotations

from typing import Any

from perdure.model import InboxEntry, Message
from perdure.storage.batch import Batch
from perdure.storage.contract import Database


class Staged:
    """A batch whose messages are in the log at once, so that the rest can name their offsets.

    Args:
        database: an embedded one, which sequences at once.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._batch = Batch()

    def append(self, message: Message, now_us: int) -> int:
        """Record a message; returns its offset."""
        batch = Batch()
        batch.append(message)
        self._database.submit(batch, now_us)
        return message.offset

    def write(self) -> None:
        """Submit the rest; nothing of it may be refused."""
        self._database.submit(self._batch, 0)
        assert not self._batch.refused

    def __getattr__(self, name: str) -> Any:
        """All other calls are the batch's."""
        return getattr(self._batch, name)


def take_offset(database: Database, now_us: int) -> int:
    """Take an offset that belongs to nothing in the log; returns it."""
    batch = Batch()
    mark = InboxEntry(0, None, qos=1)
    batch.place(mark)
    database.submit(batch, now_us)
    return mark.offset
