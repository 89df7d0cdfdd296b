"""The skip-scan: every way to read a stream gives the same, and collisions do no harm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageCorrupt
from perdure.model import Message
from perdure.storage.contract import Finding
from perdure.storage.rocksdb import layout_v1, layout_v1_scan
from perdure.storage.rocksdb.effort import ROWS_MAX, Effort
from perdure.storage.rocksdb.engine import Engine, Operations
from perdure.storage.rocksdb.layout import table_names
from perdure.storage.rocksdb.layout_v1 import SkipScanLayout
from perdure.storage.rocksdb.layout_v1_scan import Scanner
from perdure.topic.filter_set import FilterSet
from perdure.topic.matching import matches
from perdure.topic.structure import StructureTrie

DATA, INDEX = table_names(1)
TOKENS = st.sampled_from(["", "a", "b", "c"])


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path / "d", RocksdbConfig())
    for name in table_names(1):
        engine.create_table(name)
    yield engine
    engine.close()


def layout_of(engine: Engine, *thresholds: int) -> SkipScanLayout:
    return SkipScanLayout(lambda: engine, 1, StructureTrie(thresholds=thresholds))


def write(engine: Engine, layout: SkipScanLayout, topics: list[str]) -> None:
    operations: Operations = []
    messages = [Message(topic, b"p", offset=offset) for offset, topic in enumerate(topics, 1)]
    layout.append(operations, messages)
    engine.write(operations + layout.unpersisted())
    layout.mark_persisted()


def scan(
    layout: SkipScanLayout, *filters: str, after: int = 0, until: int = 10**6
) -> list[tuple[int, str]]:
    found = layout.scan(filters, after_offset=after, until_offset=until)
    return [(message.offset, message.topic) for message in found]


@settings(
    max_examples=80,
)
@given(
    topics=st.lists(
        st.tuples(st.lists(TOKENS, min_size=3, max_size=4), st.sampled_from([1, 1, 2, 5, 70])),
        min_size=1,
        max_size=40,
    ),
    filters=st.lists(
        st.lists(TOKENS | st.just("+"), min_size=3, max_size=4), min_size=1, max_size=4
    ),
    after=st.integers(0, 200),
    length=st.integers(0, 200) | st.just(10**6),
    leaps_max=st.sampled_from([0, 256]),
    merged_max=st.sampled_from([0, 256]),
    indexed_levels=st.sampled_from([1, 2, 16]),
    rows_max=st.sampled_from([0, 1, 5, 100]),
)
def test_leaping_and_trying_agree_with_matching(
    engine: Engine,
    topics: list[tuple[list[str], int]],
    filters: list[list[str]],
    after: int,
    length: int,
    leaps_max: int,
    merged_max: int,
    indexed_levels: int,
    rows_max: int,
) -> None:
    for table in table_names(1):
        for key in list(engine.keys(table, b"", b"\xff")):
            engine.write([table, key, None])
    trie = StructureTrie(thresholds=(1, 0, 0, 0))
    scanner = Scanner(lambda: engine, DATA, INDEX, leaps_max=leaps_max, merged_max=merged_max)
    layout = SkipScanLayout(lambda: engine, 1, trie, scanner=scanner)
    names = ["x/" + "/".join(topic) for topic, times in topics for _ in range(times)]
    until = after + length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout_v1, "INDEXED_LEVELS", indexed_levels)
        patch.setattr(layout_v1_scan, "INDEXED_LEVELS", indexed_levels)
        check_filters(engine, layout, names, filters, after, until)
        wanted = ["x/" + "/".join(levels) for levels in filters]
        assert in_pages(layout, wanted, after, until, rows_max) == scan(
            layout, *wanted, after=after, until=until
        )


def in_pages(
    layout: SkipScanLayout, filters: Sequence[str], after: int, until: int, rows_max: int
) -> list[tuple[int, str]]:
    """What reads give that look at little each and go on where the one before has ended."""
    found: list[tuple[int, str]] = []
    while after < until:
        effort = Effort(rows_max, part_rows_min=1)
        page = layout.scan(filters, after_offset=after, until_offset=until, effort=effort)
        found += [(message.offset, message.topic) for message in page]
        if effort.through_offset < 0:
            break
        assert after < effort.through_offset <= until, "each read comes further"
        after = effort.through_offset
    return found


def test_a_read_looks_at_so_many_rows_in_vain_and_says_how_far_it_came(engine: Engine) -> None:
    layout = layout_of(engine, 1, 0)
    topics = [f"x/{number % 500}/{number % 3}" for number in range(20_000)]
    write(engine, layout, topics)
    wanted = FilterSet([f"x/no-{number}/+" for number in range(400)] + ["x/499/+"])
    effort = Effort()
    first = list(layout.scan(wanted, after_offset=0, until_offset=10**6, effort=effort))
    assert effort.through_offset == ROWS_MAX
    assert [message.offset for message in first] == list(range(500, ROWS_MAX + 1, 500))
    expected = [at for at in enumerate(topics, 1) if at[1].startswith("x/499/")]
    assert in_pages(layout, wanted, 0, 10**6, 100) == expected


def test_two_tokens_that_are_frequent_and_seldom_meet_are_no_long_read(engine: Engine) -> None:
    layout = layout_of(engine, 1, 0, 0)
    write(engine, layout, [f"y/{number % 2}/{number % 2}" for number in range(20_000)])
    effort = Effort()
    never = layout.scan(["y/0/1"], after_offset=0, until_offset=10**6, effort=effort)
    assert list(never) == []
    assert 0 < effort.through_offset < 20_000


def test_what_filters_want_is_found_out_once_while_the_streams_are_the_same(
    engine: Engine,
) -> None:
    layout = layout_of(engine, 1, 0)
    write(engine, layout, ["x/1/a", "x/2/a"])
    wanted = FilterSet([f"+/{number}/#" for number in range(20)])
    plan = layout.plan(wanted)
    assert layout.plan(wanted) is plan
    write(engine, layout, ["x/1/a", "y/2/a"])
    assert set(plan) < set(layout.plan(wanted))


def check_filters(
    engine: Engine,
    layout: SkipScanLayout,
    names: list[str],
    filters: list[list[str]],
    after: int,
    until: int,
) -> None:
    write(engine, layout, names)
    wanted = ["x/" + "/".join(levels) for levels in filters]
    expected = [
        (offset, topic)
        for offset, topic in enumerate(names, 1)
        if after < offset <= until and any(matches(each, topic) for each in wanted)
    ]
    assert scan(layout, *wanted, after=after, until=until) == expected
    count = layout.count(wanted, after_offset=after, until_offset=until, limit=10**6)
    assert count == len(expected)
    assert layout.count(wanted, after_offset=after, until_offset=until, limit=3) == min(3, count)
    assert list(layout.check(since_offset=0, until_offset=10**6)) == [len(names)]


def test_only_the_first_varying_levels_are_indexed(engine: Engine) -> None:
    """A level's number has one byte in a key, and a topic may have 65,536 levels."""
    layout = layout_of(engine, 0)
    long = "/".join(str(n) for n in range(300))
    other = long.removesuffix("299") + "x"
    write(engine, layout, [long, other, long])
    assert len(list(engine.keys(INDEX, b"", b"\xff"))) == 3 * layout_v1_scan.INDEXED_LEVELS
    assert scan(layout, long) == [(1, long), (3, long)]
    assert scan(layout, "+/" * 299 + "x") == [(2, other)]
    assert scan(layout, "+/" * 255 + "255/#") == [(1, long), (2, other), (3, long)]
    assert scan(layout, "+/" * 20 + "7/#") == []
    assert list(layout.check(since_offset=0, until_offset=9)) == [3]


def test_rows_of_an_earlier_release_have_more_index_entries(engine: Engine) -> None:
    layout = layout_of(engine, 0)
    topics = ["/".join("abcdefghijklmnopqrstuvw"), "/".join("abcdefghijklmnopqrstuvx")]
    write(engine, layout, topics)
    for key in list(engine.keys(DATA, b"", b"\xff")):
        for level, token in enumerate(layout_v1_scan.tokens_of(key)):
            prefix = layout_v1_scan.index_prefix(key[:8], level, token)
            engine.write([INDEX, prefix + key[8:16], b""])
    assert len(list(engine.keys(INDEX, b"", b"\xff"))) == 2 * 23
    layout.ended()
    assert scan(layout, "+/" * 22 + "x") == [(2, topics[1])]
    assert scan(layout, "a/#") == [(1, topics[0]), (2, topics[1])]
    assert list(layout.check(since_offset=0, until_offset=9)) == [2]


def test_colliding_hashes_do_not_mix_topics(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (layout_v1, layout_v1_scan):
        monkeypatch.setattr(module, "token_hash", lambda token: b"same----")
    layout = layout_of(engine, 0)
    write(engine, layout, ["a/1", "b/1", "a/2", "c/1"])
    assert scan(layout, "a/1") == [(1, "a/1")]
    assert scan(layout, "a/+") == [(1, "a/1"), (3, "a/2")]
    assert scan(layout, "+/1") == [(1, "a/1"), (2, "b/1"), (4, "c/1")]
    assert layout.count(["+/1"], after_offset=0, until_offset=9, limit=9) == 3


def test_a_page_of_a_large_stream_is_cheap(engine: Engine) -> None:
    """The reader stops where the page ends: it does not gather what follows."""
    layout = layout_of(engine, 0)
    write(engine, layout, [f"d/{n % 7}/t" for n in range(3_000)])
    seen: list[bytes] = []
    kept = engine.items

    def counting(table: str, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for row in kept(table, first, end):
            seen.append(row[0])
            yield row

    engine.items = counting  # type: ignore[method-assign]
    rows = layout.scan(["d/+/t"], after_offset=100, until_offset=10**6)
    assert [next(rows).offset for _ in range(5)] == [101, 102, 103, 104, 105]
    assert len(seen) <= 6


def test_missing_rows_are_reported(engine: Engine) -> None:
    layout = layout_of(engine, 0)
    write(engine, layout, ["a/1", "a/2", "a/1"])
    data = list(engine.keys(DATA, b"", b"\xff"))
    index = list(engine.keys(INDEX, b"", b"\xff"))
    engine.write([DATA, data[0], None, INDEX, index[-1], None])
    with pytest.raises(StorageCorrupt):
        scan(layout, "a/1")
    findings = list(layout.check(since_offset=0, until_offset=10**6))
    assert findings.pop() == 2
    assert {found.table for found in findings if isinstance(found, Finding)} == {DATA, INDEX}


def test_a_key_without_a_stream_is_corrupt(engine: Engine) -> None:
    layout = layout_of(engine, 9)
    write(engine, layout, ["a/1"])
    (row,) = engine.items(DATA, b"", b"\xff")
    foreign = (2**40).to_bytes(8) + row[0][8:]
    engine.write([DATA, foreign, row[1]])
    (finding, count) = layout.check(since_offset=0, until_offset=10**6)
    assert isinstance(finding, Finding)
    assert count == 2


def test_keys_are_kept_of_topics_that_come_again(engine: Engine) -> None:
    layout = layout_of(engine, 0)
    write(engine, layout, [f"once/{n}" for n in range(1_000)])
    # Some may be taken for one that came before.
    assert len(layout._keys) < 100
    for _ in range(2):
        write(engine, layout, ["often/1"])
    assert "often/1" in layout._keys


def test_keys_of_long_topics_are_not_kept(engine: Engine) -> None:
    layout = layout_of(engine, 0)
    topics = [f"{n}/" + "x" * 600 for n in range(20)] * 3
    write(engine, layout, topics)
    assert not layout._keys
    assert scan(layout, "#") == list(enumerate(topics, 1))
    assert not layout._topics


def test_bounded_memories_are_refilled(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_v1, "_TOPICS_MAX", 3)
    monkeypatch.setattr(layout_v1, "_FILTERS_MAX", 2)
    layout = layout_of(engine, 0)
    topics = [f"a/{n % 9}" for n in range(40)]
    write(engine, layout, topics)
    assert scan(layout, "#") == list(enumerate(topics, 1))
    for n in range(9):
        assert len(scan(layout, f"a/{n}")) == topics.count(f"a/{n}")
