"""Retention drops a generation at every instant of a round: no message is lost in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.errors import ConfigError, StorageUnavailable
from perdure.model import Message
from perdure.pipeline.options import ReadOptions
from perdure.storage.rocksdb import RocksDatabase
from tests.unit.pipeline.logs import SECOND, START

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")
from perdure.pipeline import log_source, offsets
from perdure.pipeline.archive_state import ArchiveState, load_state
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.history import History
from perdure.pipeline.jobs import archive as job
from perdure.pipeline.jobs.archive import Archive, execute_here
from perdure.pipeline.jobs.archive_files import WriteTask, Written
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.log_index import opened
from perdure.pipeline.offsets import DATA_LOSS, StreamPosition
from perdure.pipeline.sinks.contract import Sink
from tests.unit.pipeline.jobs.test_archive import archive_of, record, rows, sink_of

pytestmark = pytest.mark.filterwarnings("default")


class Instants:
    """Counts the steps of a round, and does something at one of them."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self._left = at
        self._act = act

    @property
    def is_over(self) -> bool:
        return self._left <= 0

    def pass_one(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._act()

    def around(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any, **others: Any) -> Any:
            self.pass_one()
            found = work(*arguments, **others)
            self.pass_one()
            return found

        return stepping


class SteppingSink:
    """A sink with an instant before and after each of its commits."""

    def __init__(self, sink: Sink, instants: Instants) -> None:
        self._sink = sink
        self.commit = instants.around(sink.commit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)


def ranges(database: RocksDatabase) -> list[Message]:
    """Two generations that have ended, and the current one."""
    written = []
    for number in range(3):
        at = START + 100 * number * SECOND
        written += record(database, 12, at + SECOND)
        if number < 2:
            database.rotate(at + 90 * SECOND)
    return written


def archived(root: Path) -> list[int]:
    return sorted(
        row["offset"] for t in ("devices", "messages") for row in rows("parquet", root, t)
    )


def state_in(directory: Path) -> ArchiveState:
    state = load_state(directory)
    assert state is not None
    return state


@pytest.mark.parametrize("skip", [True, False], ids=["skip", "fail"])
def test_a_drop_at_every_instant(skip: bool, tmp_path: Path, monkeypatch: Any) -> None:
    from tests.unit.pipeline.logs import open_log

    lost = whole = 0
    for at in range(1, 200):
        path = tmp_path / str(at)
        path.mkdir()
        database = open_log(path / "db")
        written = ranges(database)

        def drop(database: RocksDatabase = database) -> None:
            database.drop_generation(1)

        instants = Instants(at, drop)
        with monkeypatch.context() as patch:
            for name in ("save_state", "read", "plan"):
                patch.setattr(job, name, instants.around(getattr(job, name)))
            sink: Any = SteppingSink(
                sink_of("parquet", path / "to", database.format.database_id), instants
            )
            lost_one = False
            archive = archive_of(
                path, sink, execute=instants.around(execute_here), skip_data_loss=skip
            )
            try:
                while True:
                    done = archive.run_round()
                    lost_one |= done.gap is not None
                    if done.is_last:
                        break
            except ConfigError as error:
                if skip or error.path != DATA_LOSS:
                    raise
                lost_one = True
        found = archived(path / "to")
        state = state_in(path)
        in_gaps = {
            m.offset
            for m in written
            if any(gap.after_offset < m.offset <= gap.until_offset for gap in state.gaps)
        }
        assert found == sorted(set(found))
        if skip:
            assert not in_gaps & set(found)
            assert sorted([*found, *in_gaps]) == [m.offset for m in written]
            assert bool(in_gaps) == lost_one
        elif not lost_one:
            assert found == [m.offset for m in written]
        else:
            # It stands before what was dropped, and stays there until it is told to pass over it.
            assert found == []
            assert state.position.offset < written[0].offset
        database.close()
        lost, whole = lost + lost_one, whole + (not lost_one)
        if not instants.is_over:
            break
    else:
        raise AssertionError("a round has more instants than these")
    assert lost
    assert whole > 1


def test_a_round_that_read_all_keeps_what_is_gone_by_then(
    database: RocksDatabase, tmp_path: Path
) -> None:
    written = ranges(database)

    def then_drops(options: ReadOptions, task: WriteTask) -> list[Written]:
        files = execute_here(options, task)
        database.drop_generation(1)
        return files

    sink = sink_of("parquet", tmp_path / "to", database.format.database_id)
    done = archive_of(tmp_path, sink, execute=then_drops).run_round()
    assert (done.rows, done.gap, done.is_close) == (len(written), None, True)
    assert archived(tmp_path / "to") == [m.offset for m in written]
    assert state_in(tmp_path).gaps == ()


def test_a_first_round_that_failed_has_begun(database: RocksDatabase, tmp_path: Path) -> None:
    """What is dropped before the first messages are archived is missed too."""
    ranges(database)

    def fails(options: ReadOptions, task: WriteTask) -> list[Written]:
        raise StorageUnavailable("the disk is full")

    sink = sink_of("parquet", tmp_path / "to", database.format.database_id)
    with pytest.raises(StorageUnavailable, match="full"):
        archive_of(tmp_path, sink, execute=fails).run_round()
    database.drop_generation(1)
    with pytest.raises(ConfigError, match="were dropped"):
        archive_of(tmp_path, sink).run_round()


def test_a_gap_is_on_disk_before_anything_behind_it(
    database: RocksDatabase, tmp_path: Path
) -> None:
    ranges(database)
    sink = sink_of("parquet", tmp_path / "to", database.format.database_id)

    def dies(options: ReadOptions, task: WriteTask) -> list[Written]:
        raise KeyboardInterrupt

    archive = archive_of(tmp_path, sink, rows_per_round=1, skip_data_loss=True)
    first = archive.run_round()
    database.drop_generation(1)
    with pytest.raises(KeyboardInterrupt):
        archive_of(tmp_path, sink, execute=dies, skip_data_loss=True).run_round()
    [gap] = state_in(tmp_path).gaps
    assert gap.after_offset == first.position.offset
    assert gap.until_offset == database.generations()[0].since_offset - 1
    with opened(ReadOptions(str(tmp_path / "db"))) as index:
        history = History(Lake(str(tmp_path)), index, skips_missing=False)
        with pytest.raises(ConfigError, match="were not archived"):
            history.check(0, history.seam, ())


def test_how_far_it_is_behind_is_told(database: RocksDatabase, tmp_path: Path) -> None:
    written = ranges(database)
    sink = sink_of("parquet", tmp_path / "to", database.format.database_id)
    archive = archive_of(tmp_path, sink, rows_per_round=12)
    first = archive.run_round()
    assert first.behind_us == written[-1].offset - first.position.offset > 0
    while not (last := archive.run_round()).is_last:
        pass
    # An idle log is not behind, however long ago its last message was.
    assert last.behind_us == 0
    assert archive.run_round().behind_us == 0


def test_positions_are_told_when_they_are_safe(database: RocksDatabase, tmp_path: Path) -> None:
    told: list[StreamPosition] = []

    def tell(position: StreamPosition) -> None:
        assert state_in(tmp_path).position == position
        told.append(position)

    ranges(database)
    sink = sink_of("parquet", tmp_path / "to", database.format.database_id)
    archive = Archive(
        ReadOptions(str(tmp_path / "db")),
        sink,
        job.Wanted(learns=False),
        directory=tmp_path,
        execute=execute_here,
        rows_per_round=12,
        on_position=tell,
    )
    while not archive.run_round().is_last:
        pass
    archive.run_round()
    assert len(told) == len({each.offset for each in told}) > 3
    assert told[0].offset < database.generations()[0].until_offset
    assert told[-1].offset == database.last_offset


# -- the readers that an archive is made of ------------------------------------------------


def test_a_read_that_must_be_whole(database: RocksDatabase, options: ReadOptions) -> None:
    ranges(database)
    whole = msgspec.structs.replace(options, whole=True)
    with opened(options) as index:
        assert log_source.plan(index, whole, Narrowing())
    database.drop_generation(1)
    with opened(options) as index:
        assert log_source.plan(index, options, Narrowing())
        with pytest.raises(StorageUnavailable, match="retention has dropped"):
            log_source.plan(index, whole, Narrowing())
        begin = index.generations()[0].since_offset - 1
        assert log_source.plan(index, whole.between(begin, begin + 10**9), Narrowing())


def test_a_part_whose_generation_goes_is_an_error(
    database: RocksDatabase, options: ReadOptions
) -> None:
    ranges(database)
    with opened(options) as index:
        parts = log_source.plan(index, options, Narrowing())
    database.drop_generation(1)
    with pytest.raises(StorageUnavailable, match="was dropped"):
        list(log_source.read(parts[0], ["offset"]))


def test_a_stream_has_missed_what_goes_before_its_first_batch(
    database: RocksDatabase, options: ReadOptions
) -> None:
    ranges(database)
    with opened(options) as index:
        begin = offsets.initial(index, options)
    database.drop_generation(1)
    with opened(options) as index, pytest.raises(ConfigError, match="were dropped"):
        offsets.check(index, begin, options)
