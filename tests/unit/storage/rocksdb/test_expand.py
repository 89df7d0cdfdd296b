"""Marks become rows; a busy inbox is not searched from its beginning each time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from perdure.config.schema import RocksdbConfig
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.engine import INBOX, Engine
from perdure.storage.rocksdb.expand import InboxFloors
from tests.contract.values import NOW_US, create_session, entry, record
from tests.support.staged import Staged


class CountingEngine(Engine):
    """Remembers from where inboxes were searched."""

    firsts: list[bytes]

    def __init__(self, path: Path, config: RocksdbConfig, *, read_only: bool) -> None:
        super().__init__(path, config, read_only=read_only)
        self.firsts = []

    def keys(self, table: str, first: bytes, end: bytes) -> Iterator[bytes]:
        if table == INBOX:
            self.firsts.append(first)
        return super().keys(table, first, end)


def test_a_trim_begins_where_the_last_one_ended(tmp_path: Path) -> None:
    engines: list[CountingEngine] = []

    def engine(path: Path, config: RocksdbConfig, *, read_only: bool) -> Engine:
        engines.append(CountingEngine(path, config, read_only=read_only))
        return engines[-1]

    database = RocksDatabase.open(tmp_path / "d", now_us=NOW_US, engine=engine)
    create_session(database)
    for offset in range(1, 6):
        batch = Staged(database)
        batch.put_inbox("c1", entry(offset), epoch=1)
        batch.trim_inbox("c1", offset - 1, epoch=1)
        batch.write()
    starts = [int.from_bytes(first[-8:]) for first in engines[0].firsts]
    assert starts == [0, 1, 2, 3, 4]
    batch = Staged(database)
    batch.put_inbox("c1", entry(2), epoch=1)
    batch.write()
    batch = Staged(database)
    batch.trim_inbox("c1", 5, epoch=1)
    batch.write()
    assert int.from_bytes(engines[0].firsts[-1][-8:]) == 0
    assert list(engines[0].items(INBOX, b"", b"\xff")) == []
    database.close()


def test_floors() -> None:
    floors = InboxFloors(floors_max=2)
    assert floors.get("a") == -1
    floors.raise_to("a", 5)
    floors.raise_to("a", 3)
    assert floors.get("a") == 5
    floors.put("a", 6)
    assert floors.get("a") == 5
    floors.put("a", 5)
    assert floors.get("a") == -1
    floors.raise_to("a", 1)
    floors.raise_to("b", 1)
    floors.raise_to("c", 1)
    assert (floors.get("a"), floors.get("c")) == (-1, 1)
    floors.clear()
    assert floors.get("c") == -1


async def test_counts_of_a_session_put_and_discarded_at_once(tmp_path: Path) -> None:
    database = RocksDatabase.open(tmp_path / "d", now_us=NOW_US)
    batch = Staged(database)
    for _ in range(2):
        batch.put_session(record("c", expires_at_us=5))
        batch.discard_session("c")
    batch.put_session(record("c", expires_at_us=7))
    batch.put_session(record("c", epoch=2, expires_at_us=7))
    batch.write()
    assert await database.session_count() == 1
    assert await database.next_deadline_us() == 7
    assert list(database.check()) == []
    database.close()
