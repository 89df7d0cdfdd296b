"""A stream passes over nothing: positions, admission, and what was dropped."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perdure.errors import ConfigError, StorageCorrupt
from perdure.limits import OFFSET_MAX
from perdure.pipeline import offsets
from perdure.pipeline.offsets import StreamPosition
from perdure.pipeline.options import ReadOptions
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.bulk import LogFiles
from tests.support.staged import take_offset
from tests.unit.pipeline.logs import SECOND, START, append, open_log


def step(
    options: ReadOptions, start: StreamPosition | None, *, rows_max: int = 0, cap: int = OFFSET_MAX
) -> StreamPosition:
    files = LogFiles(Path(options.path))
    try:
        begin = start or offsets.initial(files, options)
        return offsets.latest(files, begin, options, rows_max=rows_max, cap=cap)
    finally:
        files.close()


def test_a_position_survives_the_checkpoint(database: RocksDatabase, options: ReadOptions) -> None:
    append(database, ["a"] * 3, at=START)
    end = step(options, None)
    kept = msgspec.json.decode(msgspec.json.encode(end.to_dict()))
    assert offsets.parse_position(kept) == end
    assert (end.generation, end.offset) == (1, database.last_offset)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"database": "x", "shards": {}},
        {"database": "x", "shards": {"1": {"generation": 1, "offset": 1}}},
        {"database": "x", "shards": {"0": {"generation": 1}}},
    ],
)
def test_a_foreign_checkpoint_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(StorageCorrupt, match="checkpoint"):
        offsets.parse_position(data)


def test_an_empty_log_gives_nothing(database: RocksDatabase, options: ReadOptions) -> None:
    start = step(options, None)
    assert (start.generation, start.offset) == (1, 0)
    assert step(options, start) == start


def test_admission_cuts_the_log_without_gap_or_repeat(
    database: RocksDatabase, options: ReadOptions
) -> None:
    written = append(database, ["a", "b/c"] * 1500, at=START)
    database.rotate(START + 100 * SECOND)
    written += append(database, ["a"] * 500, at=START + 200 * SECOND)
    position, sizes = step(options, None, rows_max=700), []
    after = 0
    while position.offset > after:
        batch = [m for m in written if after < m.offset <= position.offset]
        sizes.append(len(batch))
        after = position.offset
        position = step(options, position, rows_max=700)
    assert sum(sizes) == len(written)
    assert max(sizes) <= 700
    assert position.generation == 2


def test_a_cap_ends_the_query(database: RocksDatabase, options: ReadOptions) -> None:
    written = append(database, ["a"] * 9, at=START)
    end = step(options, None, cap=written[4].offset)
    assert end.offset == written[4].offset
    assert step(options, end, cap=written[4].offset) == end


def test_from_says_where_a_stream_begins(database: RocksDatabase, options: ReadOptions) -> None:
    append(database, ["a"] * 9, at=START)
    later = msgspec.structs.replace(options, after_offset=START + 4)
    assert step(later, None).offset == database.last_offset
    files = LogFiles(Path(options.path))
    assert offsets.initial(files, later).offset == START + 4
    files.close()


def test_what_was_dropped_unread_is_an_error_or_skipped(
    database: RocksDatabase, options: ReadOptions
) -> None:
    append(database, ["a"] * 9, at=START)
    half = step(options, None, rows_max=4)
    database.rotate(START + 100 * SECOND)
    append(database, ["a"], at=START + 200 * SECOND)
    database.drop_generation(1)
    with pytest.raises(ConfigError, match="generations up to 1 were dropped") as caught:
        step(options, half)
    assert "onDataLoss" in caught.value.hint
    skipping = msgspec.structs.replace(options, skip_data_loss=True)
    assert step(skipping, half).offset == database.last_offset
    # A new stream begins where the log begins, and has missed nothing.
    assert step(options, None).offset == database.last_offset


def test_a_log_that_was_emptied_is_skipped_too(
    database: RocksDatabase, options: ReadOptions
) -> None:
    append(database, ["a"] * 9, at=START)
    half = step(options, None, rows_max=4)
    database.rotate(START + 100 * SECOND)
    database.drop_generation(1)
    skipping = msgspec.structs.replace(options, skip_data_loss=True)
    behind = step(skipping, half)
    assert behind.offset >= START + 8
    assert step(skipping, behind) == behind
    append(database, ["a"], at=START + 200 * SECOND)
    assert step(options, behind).offset == database.last_offset


def test_a_drop_of_what_was_read_is_no_loss(database: RocksDatabase, options: ReadOptions) -> None:
    append(database, ["a"] * 9, at=START)
    read = step(options, None)
    database.rotate(START)
    append(database, ["a"], at=START + 200 * SECOND)
    database.drop_generation(1)
    assert step(options, read).offset == database.last_offset


def test_offsets_of_what_is_not_recorded_are_no_loss(
    database: RocksDatabase, options: ReadOptions
) -> None:
    written = append(database, ["a"] * 9, at=START)
    # As for an entry of a session's private stream.
    take_offset(database, START + SECOND)
    read = step(options, None)
    assert read.offset == written[-1].offset
    database.rotate(START + 100 * SECOND)
    read = step(options, read)
    assert (read.generation, read.offset) == (1, START + SECOND)
    assert step(options, read) == read
    append(database, ["a"], at=START + 200 * SECOND)
    database.drop_generation(1)
    assert step(options, read).offset == database.last_offset


def test_a_replaced_database_is_an_error(
    database: RocksDatabase, options: ReadOptions, tmp_path: Path
) -> None:
    append(database, ["a"] * 9, at=START)
    position = step(options, None)
    other = open_log(tmp_path / "other")
    append(other, ["a"], at=START)
    with pytest.raises(ConfigError, match="another database"):
        step(ReadOptions(str(tmp_path / "other"), skip_data_loss=True), position)
    other.close()
