"""How far an archive is behind: counted on from what was counted before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
from perdure.errors import StorageUnavailable
from perdure.pipeline.cursor import CursorKeeper
from perdure.pipeline.log_index import opened
from perdure.pipeline.log_source import read
from perdure.pipeline.offsets import position
from perdure.pipeline.options import ReadOptions, parse_options
from perdure.pipeline.service import lag
from perdure.pipeline.service.lag import LagWatch
from perdure.storage.pipeline_runs import RunState
from perdure.storage.rocksdb import RocksDatabase
from tests.unit.pipeline.logs import SECOND, START, append, open_log


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    opened = open_log(tmp_path / "db")
    yield opened
    opened.close()


@pytest.fixture
def options(database: RocksDatabase, tmp_path: Path) -> ReadOptions:
    return parse_options({"path": str(tmp_path / "db")}, START)


def told(state: RunState) -> tuple[int, int, bool]:
    return state.behind_us, state.behind_messages, state.behind_is_bound


def test_it_grows_from_the_last_position_and_reads_nothing_twice(
    database: RocksDatabase, options: ReadOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = append(database, ["t/1"] * 10, at=START)
    counted: list[int] = []

    def counting(*given: Any) -> Iterator[Any]:
        for batch in read(*given):
            counted.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(lag, "read", counting)
    watch, state = LagWatch(options), RunState(offset=written[3].offset)
    watch.look(state)
    assert told(state) == (written[-1].offset - written[3].offset, 6, False)
    written += append(database, ["t/2"] * 5, at=START + 9 * SECOND)
    watch.look(state)
    watch.look(state)
    assert told(state) == (written[-1].offset - written[3].offset, 11, False)
    assert sum(counted) == 11
    state.offset = written[12].offset
    watch.look(state)
    assert told(state)[1:] == (2, False)
    state.offset = written[-1].offset
    watch.look(state)
    assert told(state) == (0, 0, False)


def test_who_does_not_know_goes_by_what_the_log_was_told(
    database: RocksDatabase, options: ReadOptions
) -> None:
    """It said -1 after a start while the catalog was away, so that no alarm was raised."""
    written = append(database, ["t/1"] * 10, at=START)
    keeper = CursorKeeper(options, "archive", "/to", warn=pytest.fail)
    watch, state = LagWatch(options, keeper.told), RunState()
    watch.look(state)
    # Nothing was told: all of the log is left.
    assert told(state)[1:] == (10, False)
    assert 0 < state.behind_us < 60 * SECOND
    with opened(options) as index:
        own = index.database_id
    keeper(position(own, 1, written[6].offset))
    for database_id, place in ((own, "/b"), ("another", "/to b")):
        other = CursorKeeper(options, "archive", place, warn=pytest.fail)
        other(position(database_id, 1, written[8].offset))
    watch.look(state)
    assert told(state) == (written[-1].offset - written[6].offset, 3, False)


def test_many_are_not_counted(database: RocksDatabase, options: ReadOptions) -> None:
    append(database, ["t/1"] * 10, at=START)
    watch, state = LagWatch(options, counted_max=4), RunState()
    for _ in range(2):
        watch.look(state)
        assert told(state)[1:] == (4, True)


def test_what_could_not_be_read_leaves_what_is_known(
    database: RocksDatabase, options: ReadOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(database, ["t/1"] * 10, at=START)
    watch, state = LagWatch(options), RunState()
    watch.look(state)
    append(database, ["t/1"] * 3, at=START + SECOND)

    def cut(*given: Any) -> Iterator[Any]:
        yield from read(*given)
        raise StorageUnavailable("dropped meanwhile")

    with monkeypatch.context() as patch:
        patch.setattr(lag, "read", cut)
        with pytest.raises(StorageUnavailable):
            watch.look(state)
    assert told(state)[1:] == (10, False)
    watch.look(state)
    assert told(state)[1:] == (13, False)
