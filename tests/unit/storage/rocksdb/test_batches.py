"""What a batch leaves in the store, and that it can be written again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.config.schema import RocksdbConfig
from perdure.model import Cursor
from perdure.storage.batch import Batch
from perdure.storage.rocksdb import RocksDatabase
from tests.contract.values import NOW_US, append_all, create_session, message


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    config = RocksdbConfig(learn_thresholds=(9, 0))
    database = RocksDatabase.open(tmp_path / "d", config=config, now_us=NOW_US)
    yield database
    database.close()


def test_a_written_batch_is_not_changed_by_the_write(database: RocksDatabase) -> None:
    batch = Batch()
    create_session(database)
    batch.append(message("a"))
    batch.put_cursor("c1", Cursor(), epoch=1)
    before = (list(batch.messages), list(batch.operations))
    database.submit(batch, NOW_US)
    assert (batch.messages, batch.operations) == before
    append_all(database, message("a"))
