"""The archive and the log as one table: no gap and no repeat at the seam, wherever that is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model import Message
from perdure.storage.rocksdb import RocksDatabase
from perdure.topic.matching import matches
from tests.support.binary_payloads import sparkplug_of
from tests.support.staged import Staged, take_offset
from tests.unit.pipeline.logs import SECOND, START, append, open_log

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")
from perdure.errors import ConfigError, StorageUnavailable
from perdure.pipeline import history, log_source, offsets, seam
from perdure.pipeline.archive_state import load_state
from perdure.pipeline.conditions import Condition, Narrowing, narrow
from perdure.pipeline.history import ArchivePart, plan, read
from perdure.pipeline.jobs.archive import Archive, Wanted, execute_here
from perdure.pipeline.jobs.maintain import maintain
from perdure.pipeline.log_index import opened
from perdure.pipeline.options import ReadOptions, parse_options
from perdure.pipeline.schema import BY_NAME
from perdure.storage.rocksdb.bulk import LogFiles
from tests.unit.pipeline.jobs.test_archive import FORMATS, sink_of

pytestmark = pytest.mark.filterwarnings("default")

TOPICS = [f"d/{n % 5}/t" for n in range(40)] + ["$SYS/x", "x", "d"]
HOUR = 3_600 * SECOND


def archive(path: Path, database: RocksDatabase, kind: str = "parquet", **options: Any) -> None:
    """Bring the archive up to the end of the log."""
    sink = sink_of(kind, path / "to", database.format.database_id)
    job = Archive(
        ReadOptions(str(path / "db"), **options),
        sink,
        Wanted(format=kind),
        directory=path / "to",
        execute=execute_here,
    )
    while job.run_round().rows:
        pass


def grow(database: RocksDatabase, hour: int) -> list[Message]:
    """A generation's messages, and its end."""
    at = START + hour * HOUR
    payloads = [b'{"hour": %d, "number": %d}' % (hour, number) for number in range(len(TOPICS))]
    written = append(database, TOPICS, at=at, payloads=payloads)
    # Offsets that are taken for what is not recorded leave holes, at the end of a generation too.
    take_offset(database, at + 1_000_000)
    database.rotate(at + HOUR // 2)
    return written


def options_of(path: Path, **options: str) -> ReadOptions:
    return parse_options({"path": str(path / "db"), "catalog": str(path / "to"), **options}, START)


def rows(
    path: Path, narrowing: Narrowing | None = None, columns: Any = None, **options: str
) -> list[dict[str, Any]]:
    """What a query finds, by offset."""
    checked = options_of(path, **options)
    files = LogFiles(path / "db")
    try:
        parts = history.plan(files, checked, narrowing or Narrowing())
    finally:
        files.close()
    found = [
        row
        for part in parts
        for batch in history.read(part, columns or list(BY_NAME))
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: row["offset"])


@pytest.mark.parametrize("kind", FORMATS)
def test_what_was_dropped_comes_from_the_archive(
    kind: str, database: RocksDatabase, tmp_path: Path
) -> None:
    written = [message for hour in range(3) for message in grow(database, hour)]
    before = rows(tmp_path, catalog="")
    assert [row["offset"] for row in before] == [message.offset for message in written]
    archive(tmp_path, database, kind)
    # The log and the archive have all of it: the log's is read.
    assert rows(tmp_path) == before
    for generation in (1, 2, 3):
        database.drop_generation(generation)
        assert rows(tmp_path) == before
        # A begin that has to be there may be on either side.
        assert rows(tmp_path, startingOffsets=str(written[0].offset)) == before
    assert rows(tmp_path, catalog="") == []
    written += append(database, ["d/1/t"] * 3, at=START + 9 * HOUR)
    assert [row["offset"] for row in rows(tmp_path)] == [message.offset for message in written]


def test_conditions_hold_on_both_sides(database: RocksDatabase, tmp_path: Path) -> None:
    for hour in range(3):
        grow(database, hour)
    questions: list[tuple[Narrowing | None, dict[str, str]]] = [
        (None, {"topic": "d/+/t"}),
        (None, {"topic": '["x", "$SYS/#"]'}),
        (None, {"topic": "#"}),
        (None, {"from": str(START + 5_000), "until": str(START + 2 * HOUR + 7_000)}),
        (None, {"where": '{"number": {"$lt": 4}}'}),
        (None, {"topic": "d/1/t", "where": '{"hour": 1}'}),
        (narrow([Condition("EqualTo", "topic", "x")]), {"topic": "+"}),
        (Narrowing(published_from=START + 3_000, published_until=START + HOUR + 4_000), {}),
        (Narrowing(after_offset=START, until_offset=START + HOUR), {}),
    ]
    expected = [
        rows(tmp_path, narrowing, **options, catalog="") for narrowing, options in questions
    ]
    assert all(expected)
    archive(tmp_path, database)
    database.drop_generation(1)
    database.drop_generation(2)
    assert [rows(tmp_path, narrowing, **options) for narrowing, options in questions] == expected
    some = rows(tmp_path, columns=["qos", "offset"])
    assert list(some[0].items()) == [("qos", 1), ("offset", START)]


def test_user_properties_and_topics_are_conditions_too(
    database: RocksDatabase, tmp_path: Path
) -> None:
    from perdure.mqtt.encode import forward_properties
    from perdure.mqtt.packets import Properties

    batch = Staged(database)
    for number in range(4):
        properties = Properties(user_properties=[("unit", "C" if number % 2 else "F")])
        # What the payload is says the topic, which has to be at hand on both sides.
        message = Message(
            f"spBv1.0/g/DDATA/{number}",
            sparkplug_of({"t": number}, 17),
            1,
            properties=forward_properties(properties),
        )
        batch.append(message, START + number)
    batch.write()
    database.rotate(START + HOUR)
    questions = [{"where": '{"$property.unit": "C"}'}, {"where": '{"t": {"$gte": 2}}'}]
    expected = [rows(tmp_path, **question, catalog="") for question in questions]
    assert [len(found) for found in expected] == [2, 2]
    archive(tmp_path, database)
    database.drop_generation(1)
    assert [rows(tmp_path, **question) for question in questions] == expected


def test_large_files_are_read_in_pieces(database: RocksDatabase, tmp_path: Path) -> None:
    written = [message for hour in range(4) for message in grow(database, hour)]
    for _ in range(2):
        archive(tmp_path, database)
    state = load_state(tmp_path / "to")
    assert state is not None
    sink = sink_of("parquet", tmp_path / "to", database.format.database_id)
    for spec in state.tables:
        maintain(sink, spec, before_us=0)
    for generation in (1, 2, 3, 4):
        database.drop_generation(generation)
    for per_partition in ("1", "30", "1000"):
        found = rows(tmp_path, rowsPerPartition=per_partition)
        assert [row["offset"] for row in found] == [message.offset for message in written]


# -- what is missing -----------------------------------------------------------------------


def test_an_archive_that_is_behind_is_an_error_or_skipped(
    database: RocksDatabase, tmp_path: Path
) -> None:
    first = grow(database, 0)
    archive(tmp_path, database)
    grow(database, 1)
    third = grow(database, 2)
    database.drop_generation(1)
    # Nothing is missing yet.
    rows(tmp_path)
    database.drop_generation(2)
    with pytest.raises(ConfigError, match="the archive ends at offset"):
        rows(tmp_path)
    # What is not asked for may be missing.
    rows(tmp_path, **{"from": str(third[0].offset)})
    rows(tmp_path, until=str(first[-1].offset))
    found = rows(tmp_path, missing="skip")
    assert [row["offset"] for row in found] == [message.offset for message in first + third]


def test_what_the_archive_skipped_is_missing(database: RocksDatabase, tmp_path: Path) -> None:
    first = grow(database, 0)
    archive(tmp_path, database)
    grow(database, 1)
    grow(database, 2)
    for generation in (1, 2):
        database.drop_generation(generation)
    archive(tmp_path, database, skip_data_loss=True)
    with pytest.raises(ConfigError, match="were not archived"):
        rows(tmp_path)
    rows(tmp_path, until=str(first[-1].offset))
    assert len(rows(tmp_path, missing="skip")) == 2 * len(TOPICS)


def test_an_archive_that_began_late_lacks_what_was_before(
    database: RocksDatabase, tmp_path: Path
) -> None:
    written = grow(database, 0)
    archive(tmp_path, database, after_offset=written[9].offset)
    database.drop_generation(1)
    with pytest.raises(ConfigError, match="were not archived"):
        rows(tmp_path)
    since = {"from": str(written[10].offset)}
    assert [row["offset"] for row in rows(tmp_path, **since)] == [m.offset for m in written[10:]]


def test_an_archive_of_some_topics_has_only_those(database: RocksDatabase, tmp_path: Path) -> None:
    grow(database, 0)
    archive(tmp_path, database, filter_sets=(("d/#", "x"),))
    database.drop_generation(1)
    assert len(rows(tmp_path, topic='["d/+/t", "x"]')) == 41
    assert len(rows(tmp_path, narrow([Condition("EqualTo", "topic", "x")]))) == 1
    for topic in ("", "+", '["d", "y"]'):
        with pytest.raises(ConfigError, match=r"only d/#, x was archived"):
            rows(tmp_path, topic=topic)


def test_what_is_no_archive_of_this_log_is_refused(database: RocksDatabase, tmp_path: Path) -> None:
    grow(database, 0)
    with pytest.raises(ConfigError, match="holds no archive"):
        rows(tmp_path)
    archive(tmp_path, database)
    other = open_log(tmp_path / "other" / "db")
    other.close()
    with pytest.raises(ConfigError, match="of another log"):
        rows(tmp_path / "other", catalog=str(tmp_path / "to"))


def test_a_file_that_was_replaced_while_it_was_to_be_read(
    database: RocksDatabase, tmp_path: Path
) -> None:
    grow(database, 0)
    archive(tmp_path, database)
    database.drop_generation(1)
    files = LogFiles(tmp_path / "db")
    parts = history.plan(files, options_of(tmp_path), Narrowing())
    files.close()
    assert isinstance(parts[0], ArchivePart)
    Path(parts[0].pieces[0].path).unlink()
    with pytest.raises(StorageUnavailable, match="is gone"):
        list(history.read(parts[0], ["topic"]))


# -- streams -------------------------------------------------------------------------------


def stream(
    path: Path, rows_max: int, *, cap: int = 2**63 - 1, **options: str
) -> Iterator[list[int]]:
    """Micro-batches until the end, each planned twice, as after a failure."""
    checked = options_of(path, **options)
    files = LogFiles(path / "db")
    position = offsets.initial(files, checked)
    files.close()
    while True:
        files = LogFiles(path / "db")
        try:
            end = history.latest(files, position, checked, rows_max=rows_max, cap=cap)
        finally:
            files.close()
        if end == position:
            return
        yield batch(path, position, end, checked)
        position = end


def batch(path: Path, begin: Any, end: Any, checked: ReadOptions) -> list[int]:
    files = LogFiles(path / "db")
    try:
        history.check(files, begin, checked)
        bounds = Narrowing(after_offset=begin.offset, until_offset=end.offset)
        parts = history.plan(files, checked, bounds)
    finally:
        files.close()
    return sorted(
        offset
        for part in parts
        for found in history.read(part, ["offset"])
        for offset in found.column("offset").to_pylist()
    )


@pytest.mark.parametrize("rows_max", [0, 1, 7, 1_000])
def test_a_stream_goes_through_the_seam(
    rows_max: int, database: RocksDatabase, tmp_path: Path
) -> None:
    written = [message.offset for hour in range(4) for message in grow(database, hour)]
    archive(tmp_path, database)
    for generation in (1, 2):
        database.drop_generation(generation)
    found: list[int] = []
    for number, offsets_ in enumerate(stream(tmp_path, rows_max)):
        assert offsets_
        assert not rows_max or len(offsets_) <= rows_max
        found += offsets_
        if number == 3:
            # Retention comes along while the stream is running.
            database.drop_generation(3)
    assert found == written


@pytest.mark.parametrize("rows_max", [0, 1, 30, 1_000])
@pytest.mark.parametrize("dropped", [1, 2, 3])
def test_a_stream_to_an_end_that_retention_passes(
    dropped: int, rows_max: int, database: RocksDatabase, tmp_path: Path
) -> None:
    """Everything that there was when the query began is dropped while it runs, and before."""
    written = [message.offset for hour in range(2) for message in grow(database, hour)]
    archive(tmp_path, database)
    files = LogFiles(tmp_path / "db")
    cap = history.reached(files)
    files.close()
    running = stream(tmp_path, rows_max, cap=cap)
    found = next(running) if dropped < 3 else []
    grow(database, 2)
    archive(tmp_path, database)
    for generation in range(1, dropped + 1):
        database.drop_generation(generation)
    batches = list(running)
    assert not rows_max or all(len(each) <= rows_max for each in batches)
    assert found + [offset for each in batches for offset in each] == written


def test_where_the_log_is_empty_the_archive_is_all_there_is(
    database: RocksDatabase, tmp_path: Path
) -> None:
    written = [message.offset for message in grow(database, 0)]
    archive(tmp_path, database)
    database.drop_generation(1)
    files = LogFiles(tmp_path / "db")
    assert files.newest() is None
    cap = history.reached(files)
    files.close()
    found = [offset for each in stream(tmp_path, 7, cap=cap) for offset in each]
    assert found == written
    # Without the archive there is nothing.
    assert not any(stream(tmp_path, 7, cap=cap, catalog=""))


def test_a_stream_whose_history_is_not_there_says_so(
    database: RocksDatabase, tmp_path: Path
) -> None:
    grow(database, 0)
    archive(tmp_path, database)
    grow(database, 1)
    running = stream(tmp_path, 10)
    next(running)
    database.drop_generation(1)
    next(running)
    database.drop_generation(2)
    with pytest.raises(ConfigError, match="the archive ends at offset"):
        list(running)
    assert list(stream(tmp_path, 10, missing="skip"))


@settings(max_examples=25)
@given(data=st.data())
def test_any_order_of_events_gives_each_row_once(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Archive, rotate and drop in any order that loses nothing; ranges and filters at random."""
    path = tmp_path_factory.mktemp("history")
    database = open_log(path / "db")
    written: list[Message] = []
    archived = hour = 0
    archive(path, database)
    for step in data.draw(st.lists(st.sampled_from("wrad"), max_size=12)):
        if step == "w":
            hour += 1
            written += append(database, TOPICS[:7], at=START + hour * HOUR)
        elif step == "r":
            database.rotate(START + hour * HOUR + HOUR // 2)
        elif step == "a":
            archive(path, database)
            archived = database.generations()[-1].generation
        elif archived > database.generations()[0].generation:
            database.drop_generation(database.generations()[0].generation)
    known = [message.offset for message in written] or [START]
    after, until = sorted(data.draw(st.tuples(st.sampled_from(known), st.sampled_from(known))))
    topic = data.draw(st.sampled_from(["#", "d/+/t", "d/3/t", "d/#"]))
    found = rows(path, **{"from": str(after), "until": str(until), "topic": topic})
    database.close()
    assert [row["offset"] for row in found] == [
        message.offset
        for message in written
        if after <= message.offset <= until and matches(topic, message.topic)
    ]


@pytest.mark.parametrize(
    ("wanted", "topics", "least"), [(2, "#", 2), (8, "#", 8), (40, "#", 40), (8, "a/1", 5)]
)
def test_a_small_log_has_as_many_partitions_as_were_asked_for(
    database: RocksDatabase, tmp_path: Path, wanted: int, topics: str, least: int
) -> None:
    """Each has a message at least, and all together those of one partition."""
    append(database, [f"a/{number % 9}" for number in range(45)], at=START, step=0)
    options = parse_options(
        {"path": str(tmp_path / "db"), "minPartitions": str(wanted), "topic": topics}, START
    )
    with opened(options) as index:
        parts = plan(index, options, Narrowing())
    found = [
        [
            offset
            for batch in read(part, ["offset"])
            for offset in batch.column("offset").to_pylist()
        ]
        for part in parts
    ]
    assert least <= len([each for each in found if each]) < 2 * wanted + 1
    one = parse_options({"path": str(tmp_path / "db"), "topic": topics}, START)
    with opened(one) as index:
        (whole,) = plan(index, one, Narrowing())
    expected = [n for batch in read(whole, ["offset"]) for n in batch.column("offset").to_pylist()]
    assert sorted(n for each in found for n in each) == sorted(expected)


def test_what_is_dropped_after_the_plan_comes_from_the_archive(
    database: RocksDatabase, tmp_path: Path
) -> None:
    written = [message for hour in range(3) for message in grow(database, hour)]
    archive(tmp_path, database)
    checked = options_of(tmp_path, topic="d/#")
    with opened(checked) as index:
        parts = plan(index, checked, Narrowing())
    database.drop_generation(1)
    found = [
        row
        for part in parts
        for batch in seam.read(part, ["topic"], checked)
        for row in batch.to_pylist()
    ]
    expected = [message.topic for message in written if matches("d/#", message.topic)]
    assert sorted(row["topic"] for row in found) == sorted(expected)
    assert all(list(row) == ["topic"] for row in found)


@pytest.mark.parametrize("whole", ["off", "on"])
@pytest.mark.parametrize("word", ["fail", "skip"])
def test_what_is_dropped_after_the_plan_is_passed_over_where_loss_is(
    database: RocksDatabase,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    word: str,
    whole: str,
) -> None:
    """A stream that was to go on behind what is lost ended with each drop while it read."""
    written = [message for hour in range(3) for message in grow(database, hour)]
    given = {"path": str(tmp_path / "db"), "onDataLoss": word, "whole": whole}
    checked = parse_options({**given, "rowsPerPartition": "30"}, START)
    with opened(checked) as index:
        parts = plan(index, checked, Narrowing())
    assert len(parts) == 3
    database.drop_generation(1)

    def found() -> list[int]:
        return [
            offset
            for part in parts
            for batch in seam.read(part, ["offset"], checked)
            for offset in batch.column("offset").to_pylist()
        ]

    if (word, whole) != ("skip", "off"):
        with pytest.raises(StorageUnavailable, match=r"generation 1 of .* was dropped") as caught:
            found()
        assert f"offsets up to {START + SECOND} (" in caught.value.message
        assert not caplog.records
        return
    assert sorted(found()) == [message.offset for message in written[len(TOPICS) :]]
    told = "".join(record.getMessage() for record in caplog.records)
    assert f"offsets up to {START + SECOND} (" in told
    assert "what had not been read of them is passed over" in told


@pytest.mark.parametrize("dropped", [0, 1, 3])
def test_a_drop_while_a_part_is_read_repeats_nothing(
    database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dropped: int
) -> None:
    written = [message for hour in range(3) for message in grow(database, hour)]
    archive(tmp_path, database)
    checked = options_of(tmp_path)
    with opened(checked) as index:
        (part,) = plan(index, checked, Narrowing())
    whole = log_source.read
    reads = []

    def cut(each: Any, columns: Any) -> Iterator[Any]:
        reads.append(each)
        batches = whole(each, columns)
        yield next(batches)
        if len(reads) == 1:
            for generation in range(1, dropped + 1):
                database.drop_generation(generation)
            raise StorageUnavailable("as if it had been dropped")
        yield from batches

    monkeypatch.setattr(log_source, "read", cut)

    def offsets_found() -> list[int]:
        batches = seam.read(part, ["offset"], checked)
        return [offset for batch in batches for offset in batch.column("offset").to_pylist()]

    if not dropped:
        with pytest.raises(StorageUnavailable, match="as if"):
            offsets_found()
        return
    assert sorted(offsets_found()) == [message.offset for message in written]
