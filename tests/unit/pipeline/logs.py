"""Logs to read in tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perdure.config.schema import RocksdbConfig
from perdure.model import Message
from perdure.storage.rocksdb import RocksDatabase
from tests.support.staged import Staged

START = 1_700_000_000_000_000
SECOND = 1_000_000
CONFIG = RocksdbConfig(learn_thresholds=(10, 3), tail_messages=0)


def open_log(path: Path) -> RocksDatabase:
    """A database to write to."""
    return RocksDatabase.open(path, config=CONFIG, now_us=START)


def append(
    database: RocksDatabase,
    topics: Sequence[str],
    *,
    at: int,
    step: int = 1_000,
    published_at: int | None = None,
    payloads: Sequence[bytes] | None = None,
) -> list[Message]:
    """Record a message on each topic, one step after the other."""
    batch = Staged(database)
    messages = []
    for number, topic in enumerate(topics):
        now = at + number * step
        message = Message(
            topic,
            payloads[number] if payloads else b"%d" % number,
            1,
            publisher=f"client-{number % 3}",
            published_at_us=now if published_at is None else published_at,
        )
        batch.append(message, now)
        messages.append(message)
    batch.write()
    return messages
