"""A log in a server gives what was recorded, cut anywhere; ``tests/crash`` has real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.errors import FormatTooNew, StorageUnavailable
from perdure.limits import OFFSET_MAX
from perdure.model import Message
from perdure.storage.batch import Batch
from perdure.storage.remote import rows
from perdure.storage.remote.driver import META
from perdure.storage.remote.log import POINT_EVERY
from perdure.storage.remote.store import RemoteDatabase
from perdure.storage.rocksdb.bulk import FilterSets
from tests.support.remote import MemoryDriver, ServerState

pytest.importorskip("pyarrow")
from perdure.pipeline.log_source import NOT_LEARNED, scan
from perdure.pipeline.protocol import RowQuery
from perdure.pipeline.schema import BY_NAME
from perdure.pipeline.server_log import ServerLog

START = 1_700_000_000_000_000
COUNT = 3 * POINT_EVERY


@pytest.fixture
def state() -> ServerState:
    return ServerState()


@pytest.fixture
def database(state: ServerState) -> Iterator[RemoteDatabase]:
    opened = RemoteDatabase.open_blocking(lambda: MemoryDriver(state), now_us=START)
    yield opened
    opened.close()


@pytest.fixture
def recorded(database: RemoteDatabase) -> list[Message]:
    """Two generations; a batch of one topic, and batches of many."""
    made: list[Message] = []
    for first in range(0, COUNT, 96):
        if first == COUNT // 2:
            database.rotate(START + first * 1_000)
        batch = Batch()
        messages = [
            Message(f"d/{n % 7}/é", b"%d" % n, n % 3, n % 5 == 0, publisher=f"p{n % 2}")
            for n in range(first, first + 96)
        ]
        batch.extend(messages)
        database.submit(batch, START + first * 1_000)
        made += messages
    database.sync()
    return made


def read(log: ServerLog, sets: FilterSets, rows_max: int, *, skip: int = 0) -> list[int]:
    found: list[int] = []
    query = RowQuery(
        filter_sets=sets,
        slices=tuple(log.slices(sets, 0, OFFSET_MAX, rows_max=rows_max)),
        columns=tuple(BY_NAME),
        position=skip,
    )
    for _, batch in scan(log, query, rows_max=100):
        batch.validate(full=True)
        for row in batch.to_pylist():
            assert row["structure"] == NOT_LEARNED
            assert row["topic"] == f"d/{int(row['payload']) % 7}/é"
            assert row["client_id"] == f"p{int(row['payload']) % 2}"
            assert row["qos"] == int(row["payload"]) % 3
            found.append(int(row["payload"]))
    return found


@pytest.mark.parametrize("rows_max", [100, POINT_EVERY, 10**9])
def test_all_comes_once_and_in_order(
    state: ServerState, recorded: list[Message], rows_max: int
) -> None:
    log = ServerLog(MemoryDriver(state), "id")
    assert [info.message_count for info in log.generations()] == [COUNT // 2, COUNT // 2]
    assert read(log, (), rows_max) == list(range(COUNT))
    assert read(log, (), rows_max, skip=1_000) == list(range(1_000, COUNT))
    wanted = [n for n in range(COUNT) if n % 7 in (1, 3)]
    assert read(log, (("d/1/#", "d/3/+"), ("d/+/é",)), rows_max) == wanted
    assert read(log, (("e/#",),), rows_max) == []
    log.close()


def test_bounds_let_as_many_through_as_were_asked_for(
    state: ServerState, recorded: list[Message]
) -> None:
    log = ServerLog(MemoryDriver(state), "id")
    newest = log.newest()
    assert newest == (2, recorded[-1].offset)
    offsets = [message.offset for message in recorded]
    for sets, every in (((), 1), ((("d/0/#",),), 7)):
        wanted = offsets[::every]
        for first in (0, 5, len(wanted) - 3):
            after = wanted[first - 1] if first else 0
            assert log.bound(sets, after, newest.offset, 10) == (
                wanted[first + 9] if first + 10 < len(wanted) else newest.offset
            )
    log.close()


def test_what_is_written_later_is_not_seen(
    state: ServerState, database: RemoteDatabase, recorded: list[Message]
) -> None:
    log = ServerLog(MemoryDriver(state), "id")
    newest = log.newest()
    assert newest is not None
    batch = Batch()
    batch.append(Message("late", b"", 1))
    database.submit(batch, START + 10**9)
    database.sync()
    assert log.newest() == newest
    parts = log.slices((), 0, newest.offset, rows_max=10**9)
    assert sum(len(page) for part in parts for page in log.pages((), part, rows_max=99)) == COUNT
    log.close()


def test_a_generation_that_goes_while_it_is_read_is_told(
    state: ServerState, database: RemoteDatabase, recorded: list[Message]
) -> None:
    log = ServerLog(MemoryDriver(state), "id")
    part = log.slices((), 0, OFFSET_MAX, rows_max=10**9)[0]
    pages = log.pages((), part, rows_max=10)
    next(pages)
    database.drop_generation(1)
    database.sync()
    with pytest.raises(StorageUnavailable, match="generation 1 was dropped"):
        list(pages)
    log.close()
    later = ServerLog(MemoryDriver(state), "id")
    with pytest.raises(StorageUnavailable, match="generation 1 was dropped"):
        list(later.pages((), part, rows_max=10))
    later.close()


def test_an_empty_server_and_a_later_release(state: ServerState, tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="no broker"):
        ServerLog(MemoryDriver(state), "id")
    state.tables[META][rows.NOBODY] = {rows.FORMAT_KEY: b"\x02"}
    with pytest.raises(FormatTooNew):
        ServerLog(MemoryDriver(state), "id")
