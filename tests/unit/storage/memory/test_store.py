"""What only the reference can do: fail on request, and lose power."""

from __future__ import annotations

import pytest

from perdure.errors import StorageFull, StorageUnavailable, UsageError
from perdure.model import Cursor
from perdure.storage.memory import MemoryDatabase
from tests.contract.values import NOW_US, append_all, create_session, message, read_all
from tests.support.staged import Staged, take_offset


async def test_it_fails_on_request_until_recovered() -> None:
    database = MemoryDatabase()
    append_all(database, message("a"))
    database.fail_with = StorageFull("no space")
    with pytest.raises(StorageFull):
        append_all(database, message("b"))
    assert not await database.recover()
    database.fail_with = None
    with pytest.raises(StorageUnavailable):
        append_all(database, message("b"))
    with pytest.raises(StorageUnavailable):
        database.sync()
    assert await database.recover()
    append_all(database, message("c"))
    assert [m.topic for m in await read_all(database, "#")] == ["a", "c"]


async def test_power_loss_takes_back_what_was_not_synced() -> None:
    database = MemoryDatabase()
    create_session(database)
    append_all(database, message("a"))
    database.sync()
    append_all(database, message("b"))
    batch = Staged(database)
    batch.put_cursor("c1", Cursor(9), epoch=1)
    batch.put_retained(message("r", offset=take_offset(database, NOW_US)))
    batch.write()
    database.rotate(NOW_US + 5)
    append_all(database, message("c"), now_us=NOW_US + 9)
    database.lose_power()
    # A rotation syncs; what came after it did not.
    assert [m.topic for m in await read_all(database, "#")] == ["a", "b"]
    stored = await database.open_session("c1")
    assert stored is not None
    assert stored.cursor == Cursor(9)
    assert database.retained_count == 1
    assert len(database.generations()) == 2
    assert database.last_offset < NOW_US + 9


async def test_what_is_written_after_power_loss_is_kept_again() -> None:
    database = MemoryDatabase()
    append_all(database, message("lost"))
    database.lose_power()
    append_all(database, message("kept"))
    database.sync()
    database.lose_power()
    assert [m.topic for m in await read_all(database, "#")] == ["kept"]


async def test_a_closed_database_takes_nothing() -> None:
    database = MemoryDatabase()
    database.close()
    database.close()
    with pytest.raises(StorageUnavailable):
        database.sync()
    with pytest.raises(StorageUnavailable):
        append_all(database, message())
    assert not await database.recover()


def test_streams_of_a_generation_that_is_not_there() -> None:
    with pytest.raises(UsageError):
        MemoryDatabase().streams(9)
