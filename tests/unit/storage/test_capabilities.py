"""What each backend says that it can do; what follows from it is tested where it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.broker.connection.replay_request import parse_time_us
from perdure.storage.capabilities import EMBEDDED, Capabilities
from perdure.storage.memory import MemoryDatabase
from perdure.storage.ordered.contract import TIME_STEP_US
from perdure.storage.rocksdb import RocksDatabase
from tests.contract.values import NOW_US
from tests.support.remote import ServerState
from tests.unit.storage.remote.helpers import opened

DATE, DATE_US = "2026-11-20T08:00:00.123456Z", 1_795_161_600_123_456


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


def test_a_moment_is_the_beginning_of_a_step_of_the_logs_time() -> None:
    """What was taken right after it may have the offset of the step: it would be missed."""
    assert parse_time_us(DATE) == DATE_US
    assert Capabilities().offset_before(DATE_US) == DATE_US - 1
    in_steps = Capabilities(time_step_us=TIME_STEP_US)
    assert in_steps.offset_before(DATE_US) == DATE_US - 456 - 1


@pytest.mark.parametrize("number", [0, 1, DATE_US])
def test_there_is_no_offset_below_the_beginning(number: int) -> None:
    assert Capabilities().offset_before(number) == max(0, number - 1)
    in_steps = Capabilities(time_step_us=TIME_STEP_US)
    assert in_steps.offset_before(number) == max(0, number // 1_000 * 1_000 - 1)
