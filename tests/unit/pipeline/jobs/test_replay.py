"""A replay across the seam, while retention, archive and maintenance move it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.storage.rocksdb import RocksDatabase
from tests.unit.pipeline.logs import START, append, open_log

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")
from perdure.errors import ConfigError, StorageUnavailable
from perdure.pipeline import history
from perdure.pipeline.archive_state import load_state
from perdure.pipeline.jobs import replay
from perdure.pipeline.jobs.maintain import maintain
from perdure.pipeline.jobs.replay import Replay
from tests.unit.pipeline.jobs.test_archive import sink_of
from tests.unit.pipeline.test_history import HOUR, archive, grow, options_of

pytestmark = pytest.mark.filterwarnings("default")


def all_of(job: Replay) -> list[int]:
    return [offset for each in job.rounds() for offset in offsets_of(each)]


def offsets_of(found: replay.Round) -> list[int]:
    offsets: list[int] = found.rows.column("offset").to_pylist()
    assert offsets == sorted(offsets)
    assert not offsets or offsets[-1] <= found.through_offset
    return offsets


def test_the_seam_moves_under_a_replay(database: RocksDatabase, tmp_path: Path) -> None:
    written = [message for hour in range(5) for message in grow(database, hour)]
    archive(tmp_path, database)
    database.drop_generation(1)
    found: list[int] = []
    job = Replay(options_of(tmp_path))
    for number, each in enumerate(job.rounds()):
        found += offsets_of(each)
        if number == 1:
            # Behind the replay, and before it.
            for generation in (2, 3, 4):
                database.drop_generation(generation)
            sink = sink_of("parquet", tmp_path / "to", database.format.database_id)
            state = load_state(tmp_path / "to")
            assert state is not None
            for spec in state.tables:
                maintain(sink, spec, before_us=0)
        # What comes after it has begun is not of the past.
        append(database, ["x"], at=START + (9 + number) * HOUR)
    assert found == [message.offset for message in written]


def test_it_goes_on_and_narrows(database: RocksDatabase, tmp_path: Path) -> None:
    written = [message for hour in range(3) for message in grow(database, hour)]
    archive(tmp_path, database)
    database.drop_generation(1)
    rounds = Replay(options_of(tmp_path)).rounds()
    first = [next(rounds), next(rounds)]
    begun = [offset for each in first for offset in offsets_of(each)]
    identity = database.format.database_id
    rest = Replay(options_of(tmp_path), database=identity, after_offset=first[-1].through_offset)
    assert begun + all_of(rest) == [message.offset for message in written]
    narrowed = Replay(options_of(tmp_path, topic="d/1/t", until=str(written[50].offset)))
    expected = [each.offset for each in written[:51] if each.topic == "d/1/t"]
    assert all_of(narrowed) == expected
    left_out = Replay(options_of(tmp_path), leaves_out="d/")
    assert all_of(left_out) == [m.offset for m in written if not m.topic.startswith("d/")]
    with pytest.raises(ConfigError, match="another log"):
        Replay(options_of(tmp_path), database="another")


def test_a_log_that_retention_has_emptied(database: RocksDatabase, tmp_path: Path) -> None:
    """It ended at once, without a message and without a word."""
    written = grow(database, 0) + grow(database, 1)
    archive(tmp_path, database)
    for generation in (1, 2):
        database.drop_generation(generation)
    assert all_of(Replay(options_of(tmp_path))) == [message.offset for message in written]
    until = options_of(tmp_path, until=str(written[10].offset))
    assert all_of(Replay(until)) == [message.offset for message in written[:11]]


def test_what_is_missing_ends_it(database: RocksDatabase, tmp_path: Path) -> None:
    first = grow(database, 0)
    archive(tmp_path, database)
    grow(database, 1)
    last = grow(database, 2)
    for generation in (1, 2):
        database.drop_generation(generation)
    with pytest.raises(ConfigError, match="the archive ends at offset"):
        all_of(Replay(options_of(tmp_path)))
    skipping = Replay(options_of(tmp_path, missing="skip"))
    assert all_of(skipping) == [message.offset for message in first + last]


def test_rows_that_go_away_are_read_where_they_are_then(
    database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [message for hour in range(2) for message in grow(database, hour)]
    archive(tmp_path, database)
    read, calls = history.read, []

    def failing(part: Any, columns: Any) -> Any:
        calls.append(part)
        if len(calls) in (2, 3):
            if len(calls) == 3:
                database.drop_generation(1)
            raise StorageUnavailable("a generation was dropped while it was to be read")
        return read(part, columns)

    monkeypatch.setattr(replay.history, "read", failing)
    assert all_of(Replay(options_of(tmp_path))) == [message.offset for message in written]
    assert len(calls) > 3


def test_nothing_is_an_end_too(tmp_path: Path) -> None:
    open_log(tmp_path / "db").close()
    assert all_of(Replay(options_of(tmp_path, catalog=""))) == []
