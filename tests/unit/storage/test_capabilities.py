"""What each backend says that it can do; what follows from it is tested where it is asked."""

from __future__ import annotations

from pathlib import Path

from perdure.storage.capabilities import EMBEDDED
from perdure.storage.memory import MemoryDatabase
from perdure.storage.rocksdb import RocksDatabase
from tests.contract.values import NOW_US
from tests.support.remote import ServerState
from tests.unit.storage.remote.helpers import opened


def test_a_store_in_this_process_needs_nothing_of_its_own(tmp_path: Path) -> None:
    assert MemoryDatabase().capabilities is EMBEDDED
    database = RocksDatabase.open(tmp_path / "d", now_us=NOW_US)
    assert database.capabilities is EMBEDDED
    database.close()
    assert EMBEDDED.queues is None
    assert EMBEDDED.loop_sync is None
    assert EMBEDDED.keeps_written
    assert not EMBEDDED.may_be_taken


async def test_a_store_in_a_server_has_queues_and_keeps_what_was_synced() -> None:
    database = await opened(ServerState())
    found = database.capabilities
    assert found.queues is database
    assert found.loop_sync is database
    assert not found.keeps_written
    assert found.may_be_taken
    await database.stop()
