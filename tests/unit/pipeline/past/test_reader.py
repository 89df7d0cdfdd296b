"""Pages of an archive: all that it has, once, in order, whatever happens to its files meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.model import Message
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import Properties
from perdure.storage.rocksdb import RocksDatabase
from perdure.topic.matching import matches
from tests.support.staged import Staged
from tests.unit.pipeline.logs import SECOND, START

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")
from perdure.errors import ConfigError, StorageUnavailable
from perdure.pipeline import archive_parts
from perdure.pipeline.archive_state import Gap, load_state, save_state
from perdure.pipeline.jobs.maintain import maintain
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.past import reader as module
from perdure.pipeline.past.reader import BEHIND_S, PastReader
from perdure.pipeline.past.wire import PageRequest, framed, messages_of, parse_answer
from perdure.pipeline.row_groups import RowGroup
from tests.unit.pipeline.jobs.test_archive import FORMATS, sink_of
from tests.unit.pipeline.test_history import archive

pytestmark = pytest.mark.filterwarnings("default")

UNTIL = START + 1_000_000 * SECOND
TOPICS = ("a/1/t", "a/2/t", "a", "a/1", "b/1/t", "$SYS/x", "x", "rare/1")
FILTERS = ("#", "a/#", "a/+/t", "+", "x", "rare/#", "$SYS/#", "none/#", "b/1/t")
EVERYTHING = Properties(
    payload_format_indicator=1,
    content_type="text/plain",
    response_topic="answers",
    correlation_data=b"\0\xff",
    user_properties=(("a", "1"), ("a", "2")),
)


def record(database: RocksDatabase, count: int, *, at: int, chance: random.Random) -> list[Message]:
    """Messages of all kinds, on all topics."""
    batch, written = Staged(database), []
    for number in range(count):
        now = at + number * 1_000
        message = Message(
            chance.choice(TOPICS[:-1]) if number % 50 else "rare/1",
            chance.randbytes(chance.choice((0, 3, 200))),
            chance.choice((1, 2)),
            chance.random() < 0.2,
            f"client-{number % 3}",
            forward_properties(EVERYTHING) if number % 3 == 0 else b"",
            now + 1_000_000 if number % 4 == 0 else 0,
            now - 7,
        )
        batch.append(message, now)
        written.append(message)
    batch.write()
    return written


def make(path: Path, database: RocksDatabase, kind: str, **options: Any) -> PastReader:
    options.setdefault("window_bytes", 1 << 20)
    options.setdefault("held_bytes_max", 4 << 20)
    return PastReader(Lake(str(path / "to"), kind), database.format.database_id, **options)


def pages(
    reader: Callable[[], PastReader],
    topic_filter: str,
    *,
    after: int = 0,
    until: int = UNTIL,
    rows: int = 7,
    size: int = 1 << 20,
    between: Callable[[int], object] = lambda _: None,
) -> tuple[list[Message], list[str]]:
    """All pages of a range, as the broker gets them, and what they say is missing."""
    found: list[Message] = []
    missing: list[str] = []
    number = 0
    while after < until:
        number += 1
        answer = reader().page(PageRequest(number, topic_filter, after, until, rows, size))
        told = parse_answer(framed(answer)[4:])
        assert told.number == number
        got = messages_of(told)
        assert len(got) <= rows
        assert all(after < each.offset <= told.through_offset for each in got)
        assert after < told.through_offset <= until
        found += got
        after = told.through_offset
        if told.missing:
            missing.append(told.missing)
        between(number)
    return found, missing


def wanted(written: list[Message], topic_filter: str, after: int = 0) -> list[Message]:
    return [each for each in written if each.offset > after and matches(topic_filter, each.topic)]


@pytest.mark.parametrize("kind", FORMATS)
def test_pages_have_all_once_in_order(kind: str, database: RocksDatabase, tmp_path: Path) -> None:
    chance = random.Random(1)
    written: list[Message] = []
    for hour in range(3):
        written += record(database, 200, at=START + hour * 3_600 * SECOND, chance=chance)
        archive(tmp_path, database, kind)
    end = written[-1].offset
    reader = make(tmp_path, database, kind)
    for topic_filter in FILTERS:
        found, missing = pages(lambda: reader, topic_filter, until=end)
        assert found == wanted(written, topic_filter)
        assert not missing
    for _ in range(20):
        topic_filter, after = chance.choice(FILTERS), chance.choice(written).offset
        size, rows = chance.choice((1, 500, 1 << 20)), chance.choice((1, 10, 1_000))
        found, _ = pages(lambda: reader, topic_filter, after=after, until=end, rows=rows, size=size)
        assert found == wanted(written, topic_filter, after)


def test_windows_are_bounded_and_grow(
    database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = record(database, 3_000, at=START, chance=random.Random(2))
    archive(tmp_path, database)
    sizes: list[int] = []
    plain = module.PastReader._read

    def noted(*arguments: Any) -> Any:
        through, rows = plain(*arguments)
        sizes.append(rows.num_rows)
        return through, rows

    monkeypatch.setattr(module.PastReader, "_read", noted)
    reader = make(tmp_path, database, "parquet", window_bytes=1 << 30)
    found, _ = pages(lambda: reader, "#", until=written[-1].offset, rows=50)
    assert found == wanted(written, "#")
    assert sizes[:3] == [64, 256, 1024]
    sizes.clear()
    reader = make(tmp_path, database, "parquet", window_bytes=4_096)
    found, _ = pages(lambda: reader, "#", until=written[-1].offset, rows=50)
    assert found == wanted(written, "#")
    assert max(sizes) <= 64


@pytest.mark.parametrize("kind", FORMATS)
def test_files_move_under_it(kind: str, database: RocksDatabase, tmp_path: Path) -> None:
    """Maintenance puts files together and deletes the old ones; the archive goes on; the process is
    another one."""
    chance = random.Random(3)
    written = record(database, 300, at=START, chance=chance)
    archive(tmp_path, database, kind)
    sink = sink_of(kind, tmp_path / "to", database.format.database_id)
    made = make(tmp_path, database, kind, window_bytes=4_096)
    at = START

    def between(number: int) -> None:
        nonlocal made, at
        if number % 11 == 5 and len(written) < 700:
            at += 3_600 * SECOND
            written.extend(record(database, 40, at=at, chance=chance))
            archive(tmp_path, database, kind)
        if number % 7 == 3:
            state = load_state(tmp_path / "to")
            assert state is not None
            for spec in state.tables:
                maintain(sink, spec, before_us=4_000_000_000_000_000)
        if number % 13 == 0:
            made = make(tmp_path, database, kind, window_bytes=4_096)

    after, found = 0, []
    while not found or found[-1].offset < written[-1].offset:
        until = written[-1].offset
        got, _ = pages(lambda: made, "#", after=after, until=until, between=between)
        found += got
        after = until
    assert found == wanted(written, "#")


def test_a_rare_topic_opens_no_payloads_of_others(
    database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Message] = []
    for hour in range(20):
        batch = Staged(database)
        for number in range(100):
            now = START + hour * 3_600 * SECOND + number
            topic = "q/rare" if hour == 13 and number == 50 else f"p/{number % 7}"
            message = Message(topic, b"x" * 100, 1, published_at_us=now)
            batch.append(message, now)
            written.append(message)
        batch.write()
        archive(tmp_path, database)
    looked: list[int] = []
    plain = archive_parts._has_any

    def noted(file: Any, number: int, matcher: Any) -> bool:
        looked.append(number)
        return plain(file, number, matcher)

    monkeypatch.setattr(archive_parts, "_has_any", noted)
    reader = make(tmp_path, database, "parquet")
    found, _ = pages(lambda: reader, "q/rare", until=written[-1].offset)
    assert [each.topic for each in found] == ["q/rare"]
    # One row group of twenty may have it by its statistics.
    assert len(looked) == 1


def test_a_long_look_ends_early(
    database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row group takes a second: a page says how far was looked."""
    written: list[Message] = []
    for hour in range(6):
        written += record(database, 60, at=START + hour * 3_600 * SECOND, chance=random.Random(4))
        archive(tmp_path, database)
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.6
        return now

    reader = make(tmp_path, database, "parquet", clock=clock)
    counts: list[int] = []
    found, _ = pages(
        lambda: reader, "rare/#", until=written[-1].offset, rows=100, between=counts.append
    )
    assert found == wanted(written, "rare/#")
    assert len(counts) > 3


def test_what_is_not_there_is_passed_over_and_told(database: RocksDatabase, tmp_path: Path) -> None:
    written = record(database, 200, at=START, chance=random.Random(5))
    archive(tmp_path, database)
    state = load_state(tmp_path / "to")
    assert state is not None
    gap = Gap(written[50].offset, written[60].offset)
    save_state(tmp_path / "to", msgspec.structs.replace(state, gaps=(gap,)))
    reader = make(tmp_path, database, "parquet")
    found, missing = pages(lambda: reader, "#", until=written[-1].offset)
    expected = [
        e for e in wanted(written, "#") if not gap.after_offset < e.offset <= gap.until_offset
    ]
    assert found == expected
    assert len(missing) == 1
    assert "were not archived" in missing[0]


def test_an_archive_that_is_behind_is_waited_for(database: RocksDatabase, tmp_path: Path) -> None:
    written = record(database, 50, at=START, chance=random.Random(6))
    archive(tmp_path, database)
    written += record(database, 50, at=START + 10 * SECOND, chance=random.Random(6))
    now = 0.0
    reader = make(tmp_path, database, "parquet", clock=lambda: now)
    middle, end = written[49].offset, written[-1].offset
    with pytest.raises(StorageUnavailable, match="the log begins behind it"):
        pages(lambda: reader, "#", until=end)
    now += BEHIND_S - 1
    # The round that had read it comes to its end.
    archive(tmp_path, database)
    found, missing = pages(lambda: reader, "#", after=middle, until=end)
    assert (found, missing) == (wanted(written, "#", middle), [])
    # What nobody brings in time is told, and passed over.
    beyond = end + 1_000
    with pytest.raises(StorageUnavailable):
        reader.page(PageRequest(1, "#", end, beyond, 10, 1_000))
    now += BEHIND_S
    found, missing = pages(lambda: reader, "#", after=end, until=beyond)
    assert found == []
    assert missing == [f"the archive ends at offset {end}"]


def test_an_archive_that_is_none(database: RocksDatabase, tmp_path: Path) -> None:
    reader = make(tmp_path, database, "parquet")
    request = PageRequest(1, "#", 0, UNTIL, 10, 1_000)
    with pytest.raises(ConfigError, match="holds no archive"):
        reader.page(request)
    record(database, 5, at=START, chance=random.Random(7))
    archive(tmp_path, database)
    other = PastReader(Lake(str(tmp_path / "to"), "parquet"), "x", window_bytes=1, held_bytes_max=1)
    with pytest.raises(ConfigError, match="another log"):
        other.page(request)


def test_only_some_topics_were_archived(database: RocksDatabase, tmp_path: Path) -> None:
    written = record(database, 100, at=START, chance=random.Random(8))
    archive(tmp_path, database, filter_sets=(("a/#",),))
    end = load_state(tmp_path / "to").position.offset  # type: ignore[union-attr]
    reader = make(tmp_path, database, "parquet")
    found, missing = pages(lambda: reader, "#", until=end)
    assert found == wanted(written, "a/#")
    assert missing
    assert "only a/# was archived" in missing[0]


@pytest.mark.parametrize("held_bytes_max", [1, 20_000])
def test_few_rows_are_held(held_bytes_max: int, database: RocksDatabase, tmp_path: Path) -> None:
    written = record(database, 100, at=START, chance=random.Random(9))
    archive(tmp_path, database)
    reader = make(tmp_path, database, "parquet", held_bytes_max=held_bytes_max)
    at = dict.fromkeys(FILTERS[:5], 0)
    found: dict[str, list[Message]] = {each: [] for each in at}
    end = written[-1].offset
    while any(after < end for after in at.values()):
        for topic_filter, after in at.items():
            if after < end:
                answer = reader.page(PageRequest(1, topic_filter, after, end, 3, 1 << 20))
                found[topic_filter] += messages_of(answer)
                at[topic_filter] = answer.through_offset
        held = [each.rows.nbytes for each in reader._windows.values()]
        assert reader._held_bytes == sum(held)
        assert len(held) <= 1 or sum(held) <= held_bytes_max
    assert set(reader._left) == set(reader._windows)
    assert reader._left_bytes == reader._held_bytes
    assert sum(map(len, reader._begins.values())) == len(reader._windows)
    assert found == {each: wanted(written, each) for each in at}


@pytest.mark.parametrize("rows", [20, 200])
@pytest.mark.parametrize("filters", [("a/#",), ("a/#", "a/+/t", "b/1/t", "#", "x", "+/#")])
def test_windows_of_many_clients_do_not_push_each_other_out(
    filters: tuple[str, ...],
    rows: int,
    database: RocksDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that ask for the same share windows, wherever they began."""
    written = record(database, 1_200, at=START, chance=random.Random(10))
    archive(tmp_path, database)
    windows = 0
    plain = module.PastReader._read

    def noted(*arguments: Any) -> Any:
        nonlocal windows
        windows += 1
        return plain(*arguments)

    monkeypatch.setattr(module.PastReader, "_read", noted)
    reader = make(tmp_path, database, "parquet", held_bytes_max=2 << 20)
    end = written[-1].offset
    at = {number: written[number].offset for number in range(30)}
    asks = {number: filters[number % len(filters)] for number in at}
    found: dict[int, list[Message]] = {number: [] for number in at}
    count = 0
    while any(after < end for after in at.values()):
        for number, after in at.items():
            if after < end:
                answer = reader.page(PageRequest(1, asks[number], after, end, rows, 1 << 20))
                found[number] += messages_of(answer)
                at[number] = answer.through_offset
                count += 1
    assert found == {number: wanted(written, asks[number], written[number].offset) for number in at}
    assert windows <= count / 3


def test_row_groups_by_topic() -> None:
    from perdure.pipeline.row_groups import Topics

    group = RowGroup(0, 1, 2, "a/1/t", "a/9", 10)
    for topic_filter, expected in (
        ("a/5", True),
        ("a/+/t", True),
        ("a/#", True),
        ("b/#", False),
        ("a", False),
        ("#", True),
        ("+/5", True),
        ("a/99/x", False),
        ("A/#", False),
    ):
        assert Topics(((topic_filter,),)).may_be_in(group.low, group.high) is expected
    assert Topics((("b", "a/#"), ("a/+",))).may_be_in(group.low, group.high)
    assert not Topics((("b", "a/#"), ("b",))).may_be_in(group.low, group.high)
    assert Topics((("b",),)).may_be_in(None, None)
