"""What a batch costs, and that it can be staged again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.values import NOW_US, append_all, create_session, entry, message

from perdure.config.schema import RocksdbConfig
from perdure.model import Cursor
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.engine import INBOX, STATE
from perdure.storage.rocksdb.layout import table_names


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    config = RocksdbConfig(learn_thresholds=(9, 0))
    database = RocksDatabase.open(tmp_path / "d", config=config, now_us=NOW_US)
    yield database
    database.close()


def test_rows_of_the_hot_calls(database: RocksDatabase) -> None:
    """One row for a message and one for each varying level; one for a cursor."""
    create_session(database)
    batch = database.batch()
    batch.append(message("a/1/b"), NOW_US)
    data, index = table_names(1)
    assert batch.operations[::3] == [data, index, index]
    batch.put_cursor("c1", Cursor(), epoch=1)
    assert batch.operations[9::3] == [STATE]
    assert not batch.has_marks


def test_staging_again_keeps_everything_else(database: RocksDatabase) -> None:
    create_session(database)
    batch = database.batch()
    batch.put_cursor("c1", Cursor(), epoch=1)
    batch.append(message("a/1"), NOW_US)
    batch.put_inbox("c1", entry(5), epoch=1)
    batch.append(message("b"), NOW_US)
    before = batch.operations
    batch.stage_again(3)
    assert batch.recoveries == 3
    data, index = table_names(1)
    assert batch.operations[::3] == [STATE, INBOX, data, index, data]
    assert sorted(batch.operations[1::3]) == sorted(before[1::3])


def test_staging_again_leaves_out_a_dropped_generation(database: RocksDatabase) -> None:
    batch = database.batch()
    batch.append(message("a"), NOW_US)
    database.rotate(NOW_US + 5)
    database.drop_generation(1)
    batch.append(message("b"), NOW_US + 9)
    batch.stage_again(1)
    assert batch.operations[::3] == [table_names(2)[0]]
    database.write(batch)
    assert database.messages_after(0) == 1


def test_a_written_batch_is_not_changed_by_the_write(database: RocksDatabase) -> None:
    batch = database.batch()
    batch.append(message("a"), NOW_US)
    before = list(batch.operations)
    database.write(batch)
    assert batch.operations == before
    append_all(database, message("a"))
