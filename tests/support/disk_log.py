"""The log of a broker that was stopped, read from its data directory."""

from __future__ import annotations

from pathlib import Path

from perdure.config.load import load
from perdure.model import Message
from perdure.server.stores import open_embedded
from perdure.storage.rocksdb.engine import Engine

MESSAGES_MAX = 1_000_000


async def logged(data: Path, topic_filter: str) -> list[Message]:
    """Messages of a topic filter, in order."""
    config = load(environ={}, sets=[f"storage.path={data}"]).config
    database = open_embedded(config, engine=Engine)
    try:
        found = await database.read(
            [topic_filter], after_offset=0, until_offset=2**62, limit=MESSAGES_MAX
        )
    finally:
        database.close()
    return list(found.messages)
