"""Damaged rows are reported, not skipped; the search for deadlines begins where it can."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.errors import StorageCorrupt
from perdure.storage.rocksdb import RocksDatabase, keys
from perdure.storage.rocksdb.engine import STATE
from tests.contract.values import NOW_US, create_session, entry, record
from tests.support.staged import Staged


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    database = RocksDatabase.open(tmp_path / "d", now_us=NOW_US)
    create_session(database)
    yield database
    database.close()


async def test_a_row_of_unknown_kind_is_corrupt(database: RocksDatabase) -> None:
    database.tables()[0].write([STATE, keys.session_rows("c1") + b"?", b""])
    with pytest.raises(StorageCorrupt):
        await database.open_session("c1")


async def test_a_deadline_without_a_session_is_corrupt(database: RocksDatabase) -> None:
    database.tables()[0].write([STATE, keys.deadline(5, "nobody"), b""])
    with pytest.raises(StorageCorrupt):
        await database.due_sessions(9, limit=9)


async def test_limit_of_none(database: RocksDatabase) -> None:
    batch = Staged(database)
    batch.put_inbox("c1", entry(5), epoch=1)
    batch.write()
    assert await database.read_inbox("c1", after_offset=0, until_offset=9, limit=0) == []


async def test_an_earlier_deadline_is_found_after_later_ones_were_looked_for(
    database: RocksDatabase,
) -> None:
    assert await database.due_sessions(1_000, limit=9) == []
    assert await database.next_deadline_us() == 0
    for at in (2_000, 500, 1_500):
        batch = Staged(database)
        batch.put_session(record(f"c{at}", expires_at_us=at))
        batch.write()
        due = await database.due_sessions(at, limit=9)
        assert due[0].client_id == f"c{min(at, 500) if at != 2_000 else at}"
    assert await database.next_deadline_us() == 500
