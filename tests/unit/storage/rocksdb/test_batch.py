"""What a batch costs, and that it can be staged again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.values import NOW_US, append_all, create_session, message

from perdure.config.schema import RocksdbConfig
from perdure.model import Cursor
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.engine import STATE


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    config = RocksdbConfig(learn_thresholds=(9, 0))
    database = RocksDatabase.open(tmp_path / "d", config=config, now_us=NOW_US)
    yield database
    database.close()


def test_rows_of_the_hot_calls(database: RocksDatabase) -> None:
    """A cursor is one row at once; a message becomes rows when the batch is written."""
    create_session(database)
    batch = database.batch()
    value = message("a/1/b")
    batch.append(value, NOW_US)
    assert batch.operations == []
    assert batch.messages == [value]
    batch.put_cursor("c1", Cursor(), epoch=1)
    assert batch.operations[::3] == [STATE]
    assert not batch.has_marks
    assert not batch.is_empty()


def test_messages_of_a_dropped_generation_are_left_out(database: RocksDatabase) -> None:
    batch = database.batch()
    batch.append(message("a"), NOW_US)
    database.rotate(NOW_US + 5)
    database.drop_generation(1)
    batch.append(message("b"), NOW_US + 9)
    database.write(batch)
    assert database.messages_after(0) == 1


def test_a_written_batch_is_not_changed_by_the_write(database: RocksDatabase) -> None:
    batch = database.batch()
    create_session(database)
    batch.append(message("a"), NOW_US)
    batch.put_cursor("c1", Cursor(), epoch=1)
    before = list(batch.operations)
    database.write(batch)
    assert batch.operations == before
    append_all(database, message("a"))
