"""What a batch leaves in the store, and that it can be written again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.values import NOW_US, append_all, create_session, message

from perdure.config.schema import RocksdbConfig
from perdure.model import Cursor
from perdure.storage.rocksdb import RocksDatabase


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    config = RocksdbConfig(learn_thresholds=(9, 0))
    database = RocksDatabase.open(tmp_path / "d", config=config, now_us=NOW_US)
    yield database
    database.close()


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
    before = (list(batch.messages), list(batch.operations))
    database.write(batch)
    assert (batch.messages, batch.operations) == before
    append_all(database, message("a"))
