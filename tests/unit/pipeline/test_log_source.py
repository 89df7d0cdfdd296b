"""A planned read gives the rows that its options and conditions ask for, in any cut."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest

from perdure.config.units import format_time
from perdure.errors import StorageUnavailable
from perdure.pipeline.conditions import Narrowing
from perdure.pipeline.options import ReadOptions, parse_options
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.bulk import LogFiles
from tests.unit.pipeline.logs import SECOND, START, append, open_log

pytest.importorskip("pyarrow")
from perdure.pipeline.log_source import Part, plan, read

HOUR = 3_600 * SECOND


def planned(options: ReadOptions, narrowing: Narrowing | None = None) -> list[Part]:
    files = LogFiles(Path(options.path))
    parts = plan(files, options, narrowing or Narrowing())
    files.close()
    # As a part travels to a worker.
    return pickle.loads(pickle.dumps(parts))  # type: ignore[no-any-return]


def offsets(options: ReadOptions, narrowing: Narrowing | None = None) -> list[int]:
    return sorted(
        offset
        for part in planned(options, narrowing)
        for batch in read(part, ["offset", "topic"])
        for offset in batch.column("offset").to_pylist()
    )


def test_all_of_several_generations_in_several_parts(
    database: RocksDatabase, options: ReadOptions
) -> None:
    written = append(database, [f"a/{n % 5}" for n in range(3_000)], at=START)
    database.rotate(START + HOUR)
    written += append(database, ["$SYS/x", "b"], at=START + 2 * HOUR)
    small = msgspec.structs.replace(options, rows_per_partition=1_024)
    assert len(planned(options)) == 1
    assert len(planned(small)) == 3
    assert offsets(small) == offsets(options) == [message.offset for message in written]


def test_options_and_conditions_hold_together(
    database: RocksDatabase, options: ReadOptions
) -> None:
    written = append(database, [f"a/{n % 5}/{n % 2}" for n in range(100)], at=START)
    narrow = msgspec.structs.replace(
        options,
        filter_sets=(("a/+/1",),),
        after_offset=written[9].offset,
        until_offset=written[89].offset,
    )
    narrowing = Narrowing((("a/4/#",),), written[29].offset, written[79].offset)
    expected = [m.offset for m in written[30:80] if m.topic == "a/4/1"]
    assert offsets(narrow, narrowing) == expected
    assert expected


def asked(options: ReadOptions, now: int, **bounds: str) -> ReadOptions:
    given = {name.rstrip("_"): value for name, value in bounds.items()}
    return parse_options({"path": options.path, **given}, now)


def test_moments_are_of_publishing(database: RocksDatabase, options: ReadOptions) -> None:
    """A loaded broker writes a message some time after it has taken it."""
    moment = START + 10 * SECOND
    text = format_time(moment)
    assert text is not None
    before = append(database, ["a"] * 3, at=moment - 5, step=1)
    late = append(database, ["a"] * 3, at=moment + SECOND, published_at=moment - 1)
    exact = append(database, ["a"] * 2, at=moment + 2 * SECOND, published_at=moment)
    after = append(database, ["a"] * 3, at=moment + 3 * SECOND, published_at=moment + 1)
    now = START + HOUR

    def found(**bounds: str) -> list[int]:
        return offsets(asked(options, now, **bounds))

    assert found(until=text) == [m.offset for m in before + late + exact]
    assert found(from_=text) == [m.offset for m in exact + after]
    assert found(from_=text, until=text) == [m.offset for m in exact]
    ago = f"{(now - moment) // SECOND}s"
    assert found(until=ago) == found(until=text)
    # A number is a place in the log.
    assert found(until=str(moment)) == [m.offset for m in before]
    assert found(until=str(late[0].offset)) == [m.offset for m in [*before, late[0]]]
    assert found(from_=str(late[0].offset)) == [m.offset for m in late + exact + after]


def test_moments_after_the_clock_was_set_back(
    database: RocksDatabase, options: ReadOptions
) -> None:
    ahead = append(database, ["a"] * 3, at=START + 24 * HOUR)
    # A day later than the clock, offsets only count on.
    now = START
    back = append(database, ["a"] * 3, at=now, published_at=now)
    later = append(database, ["a"], at=now, published_at=now + SECOND)
    assert min(message.offset for message in back) > START + 24 * HOUR
    found = offsets(asked(options, now + 2 * SECOND, until=format_time(now) or ""))
    assert found == [message.offset for message in back]
    found = offsets(asked(options, now + 2 * SECOND, until="0s", from_="1s"))
    assert found == [message.offset for message in later]
    assert ahead


def test_nothing_to_read(database: RocksDatabase, options: ReadOptions) -> None:
    assert planned(options) == []
    written = append(database, ["a"], at=START)
    assert planned(options, Narrowing(after_offset=written[0].offset)) == []
    assert planned(options, Narrowing((("b",),))) == []
    assert planned(options, Narrowing(after_offset=9, until_offset=9)) == []


def test_a_read_sees_no_message_that_came_after_its_plan(
    database: RocksDatabase, options: ReadOptions
) -> None:
    written = append(database, ["a"] * 3, at=START)
    parts = planned(options)
    append(database, ["a"] * 3, at=START + SECOND)
    rows = [batch.num_rows for part in parts for batch in read(part, ["topic"])]
    assert sum(rows) == len(written)


def test_an_upper_bound_of_the_time_leaves_out_later_slices(
    database: RocksDatabase, options: ReadOptions
) -> None:
    early = append(database, ["a"] * 10, at=START)
    database.rotate(START + 5 * HOUR)
    append(database, ["a"] * 10, at=START + 6 * HOUR)
    bound = early[6].published_at_us
    narrowing = Narrowing(published_until=bound)
    parts = planned(options, narrowing)
    assert max(each.until_offset for part in parts for each in part.slices) <= bound + HOUR
    assert offsets(options, narrowing) == [message.offset for message in early[:7]]


def test_a_clock_that_was_set_back_hides_no_row(
    database: RocksDatabase, options: ReadOptions
) -> None:
    append(database, ["a"] * 3, at=START + 9_000 * HOUR)
    # The clock is right again: the offsets run far ahead of it.
    database.rotate(START + HOUR)
    late = append(database, ["a"] * 3, at=START + HOUR)
    narrowing = Narrowing(published_until=START + 2 * HOUR)
    assert offsets(options, narrowing) == [message.offset for message in late]
    within = append(database, ["a"], at=START + 2 * HOUR, published_at=START + HOUR)
    assert offsets(options, narrowing)[-1] == within[0].offset


def test_another_database_in_the_directory_is_told(
    database: RocksDatabase, options: ReadOptions, tmp_path: Path
) -> None:
    append(database, ["a"], at=START)
    part = planned(options)[0]
    other = open_log(tmp_path / "other")
    append(other, ["a"], at=START)
    moved = msgspec.structs.replace(part, path=str(tmp_path / "other"))
    with pytest.raises(StorageUnavailable, match="another database"):
        list(read(moved, ["topic"]))
    other.close()
