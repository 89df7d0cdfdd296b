"""The skip-scan: every way to read a stream gives the same, and collisions do no harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageCorrupt
from perdure.model import Message
from perdure.storage.contract import Counted, Finding
from perdure.storage.rocksdb import layout_v1, layout_v1_index, layout_v1_keys, layout_v1_scan
from perdure.storage.rocksdb.effort import ROWS_MAX, Effort
from perdure.storage.rocksdb.engine import Engine, Operations
from perdure.storage.rocksdb.layout import table_names
from perdure.storage.rocksdb.layout_v1 import LAYOUT, SINGLES_LAYOUT, SkipScanLayout
from perdure.storage.rocksdb.layout_v1_keys import (
    RUN_OFFSETS_MAX,
    RUN_SPAN,
    index_prefix,
    pack_offset,
    run_of,
    unpack_data,
)
from perdure.storage.rocksdb.layout_v1_scan import Constraints, Scanner
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


def counts(
    layout: SkipScanLayout,
    filters: Sequence[str],
    after: int,
    until: int,
    limit: int,
    rows_max: int,
) -> int:
    """What counts give together that count and look at little each."""
    found, position = 0, after
    while position < until:
        page = layout.count(
            filters,
            after_offset=position,
            until_offset=until,
            limit=limit,
            effort=Effort(rows_max, part_rows_min=1),
        )
        assert page.count <= limit
        assert position < page.through_offset <= until, "each count comes further"
        assert page.count == len(scan(layout, *filters, after=position, until=page.through_offset))
        found, position = found + page.count, page.through_offset
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
    assert counts(layout, wanted, after, until, 10**6, 10**6) == len(expected)
    for limit, rows_max in ((3, 10**6), (10**6, 2), (2, 3)):
        assert counts(layout, wanted, after, until, limit, rows_max) == len(expected)
    assert list(layout.check(since_offset=0, until_offset=10**6)) == [len(names)]


def test_only_the_first_varying_levels_are_indexed(engine: Engine) -> None:
    """A level's number has one byte in a key, and a topic may have 65,536 levels."""
    layout = layout_of(engine, 0)
    long = "/".join(str(n) for n in range(300))
    other = long.removesuffix("299") + "x"
    write(engine, layout, [long, other, long])
    # The three share those of the first levels.
    assert len(list(engine.keys(INDEX, b"", b"\xff"))) == layout_v1_keys.INDEXED_LEVELS
    assert scan(layout, long) == [(1, long), (3, long)]
    assert scan(layout, "+/" * 299 + "x") == [(2, other)]
    assert scan(layout, "+/" * 255 + "255/#") == [(1, long), (2, other), (3, long)]
    assert scan(layout, "+/" * 20 + "7/#") == []
    assert list(layout.check(since_offset=0, until_offset=9)) == [3]


def test_rows_of_an_earlier_release_have_more_index_entries(engine: Engine) -> None:
    trie = StructureTrie(thresholds=(0,))
    layout = SkipScanLayout(lambda: engine, 1, trie, layout=SINGLES_LAYOUT)
    topics = ["/".join("abcdefghijklmnopqrstuvw"), "/".join("abcdefghijklmnopqrstuvx")]
    write(engine, layout, topics)
    for key in list(engine.keys(DATA, b"", b"\xff")):
        for level, token in enumerate(layout_v1_keys.tokens_of(key)):
            prefix = layout_v1_keys.index_prefix(key[:8], level, token)
            engine.write([INDEX, prefix + key[8:16], b""])
    assert len(list(engine.keys(INDEX, b"", b"\xff"))) == 2 * 23
    layout.ended()
    assert scan(layout, "+/" * 22 + "x") == [(2, topics[1])]
    assert scan(layout, "a/#") == [(1, topics[0]), (2, topics[1])]
    assert list(layout.check(since_offset=0, until_offset=9)) == [2]


def test_colliding_hashes_do_not_mix_topics(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (layout_v1_index, layout_v1_keys):
        monkeypatch.setattr(module, "token_hash", lambda token: b"same----")
    layout = layout_of(engine, 0)
    write(engine, layout, ["a/1", "b/1", "a/2", "c/1"])
    assert scan(layout, "a/1") == [(1, "a/1")]
    assert scan(layout, "a/+") == [(1, "a/1"), (3, "a/2")]
    assert scan(layout, "+/1") == [(1, "a/1"), (2, "b/1"), (4, "c/1")]
    assert layout.count(["+/1"], after_offset=0, until_offset=9, limit=9) == Counted(3, 9)


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
    put(engine, layout, [(1, "a/1"), (2, "a/2")])
    put(engine, layout, [(3, "a/1")])
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


# -- runs ----------------------------------------------------------------------------------


def put(engine: Engine, layout: SkipScanLayout, rows: list[tuple[int, str]]) -> None:
    """One write of messages: offsets and topics. No two are a bundle."""
    operations: Operations = []
    messages = [
        Message(topic, b"p", published_at_us=at, offset=offset)
        for at, (offset, topic) in enumerate(rows)
    ]
    layout.append(operations, messages)
    engine.write(operations + layout.unpersisted())
    layout.mark_persisted()


def runs(engine: Engine, table: str = INDEX) -> list[tuple[int, ...]]:
    """Of all index entries, by key."""
    return [run_of(key, value) for key, value in engine.items(table, b"", b"\xff")]


def test_rows_of_one_write_share_an_entry(engine: Engine) -> None:
    layout = layout_of(engine, 0)
    put(engine, layout, [(5, "a/1"), (7, "b/1"), (9, "a/1"), (11, "a/1")])
    put(engine, layout, [(12, "a/1"), (20, "a/1")])
    # a, b, and twice 1, of two streams if a and b were no tokens.
    assert sorted(runs(engine)) == [
        (5, 7, 9, 11),
        (5, 9, 11),
        (7,),
        (12, 20),
        (12, 20),
    ]
    assert scan(layout, "a/1") == [(at, "a/1") for at in (5, 9, 11, 12, 20)]
    assert scan(layout, "+/1", after=5, until=12) == [
        (7, "b/1"),
        *((at, "a/1") for at in (9, 11, 12)),
    ]


@pytest.mark.parametrize("step", [1, 10_000, RUN_SPAN // 3, RUN_SPAN // 2, RUN_SPAN])
def test_runs_are_bounded(engine: Engine, step: int) -> None:
    layout = layout_of(engine, 9)
    layout.seed(("d/+/t",))
    count = 2 * RUN_OFFSETS_MAX + 7
    put(engine, layout, [(1 + step * at, f"d/{at % 2}/t") for at in range(2 * count)])
    found = runs(engine)
    for tokens in (found[0][0] % (2 * step), 1 + step):
        of_one = [run for run in found if run[0] % (2 * step) == tokens % (2 * step)]
        assert len([at for run in of_one for at in run]) == count
        assert sorted(of_one) == of_one
        most = min(RUN_OFFSETS_MAX, RUN_SPAN // (2 * step) + 1)
        assert {len(run) for run in of_one[:-1]} == {most}
    assert scan(layout, "d/1/t", until=2**62) == [
        (1 + step * at, "d/1/t") for at in range(1, 2 * count, 2)
    ]
    assert list(layout.check(since_offset=0, until_offset=2**62)) == [2 * count]


def test_a_run_spans_so_much_and_no_more(engine: Engine) -> None:
    layout = layout_of(engine, 9)
    layout.seed(("d/+/t",))
    ends = [1, 1 + RUN_SPAN, 2 + 2 * RUN_SPAN, 3 + 3 * RUN_SPAN, 4 + 3 * RUN_SPAN]
    put(engine, layout, [(at, "d/1/t") for at in ends])
    assert runs(engine) == [tuple(ends[:2]), (ends[2],), tuple(ends[3:])]


@pytest.mark.parametrize("number", [SINGLES_LAYOUT, LAYOUT])
def test_index_entries_are_written_in_the_order_of_their_keys(engine: Engine, number: int) -> None:
    trie = StructureTrie(thresholds=(0,))
    layout = SkipScanLayout(lambda: engine, 1, trie, layout=number)
    operations: Operations = []
    topics = [f"{at * 7 % 10}/{at % 3}" for at in range(30)]
    layout.append(operations, [Message(topic, b"", offset=at) for at, topic in enumerate(topics)])
    written = [
        key for table, key in zip(operations[::3], operations[1::3], strict=True) if table == INDEX
    ]
    assert written == sorted(written)
    assert len(written) == (60 if number == SINGLES_LAYOUT else 10 + 3)


def test_a_generation_of_layout_1_writes_single_entries(engine: Engine) -> None:
    trie = StructureTrie(thresholds=(0,))
    layout = SkipScanLayout(lambda: engine, 1, trie, layout=SINGLES_LAYOUT)
    put(engine, layout, [(at, "a/1") for at in (1, 3, 3 + 2 * RUN_SPAN)])
    put(engine, layout, [(at + 4 * RUN_SPAN, "a/1") for at in (1, 3, 5)])
    assert {len(run) for run in runs(engine)} == {1}
    assert len(runs(engine)) == 12
    operations: Operations = []
    layout.append(operations, [Message("a/1", b"p", offset=2**40 + at) for at in (1, 3)])
    assert operations[2::3][-4:] == [b""] * 4
    assert operations[1::3][-4:] == sorted(operations[1::3][-4:])
    # The next one is as new ones are, unless it is told.
    assert layout.successor(2)._run_max == RUN_OFFSETS_MAX
    assert layout.successor(2, layout=SINGLES_LAYOUT)._run_max == 1


STEPS = st.sampled_from([1, 1, 1, 2, 5, 1_000, RUN_SPAN // 2, RUN_SPAN, 3 * RUN_SPAN])


@settings(
    max_examples=120,
)
@given(
    batches=st.lists(
        st.lists(
            st.tuples(STEPS, st.lists(TOKENS, min_size=2, max_size=3)), min_size=1, max_size=30
        ),
        min_size=1,
        max_size=6,
    ),
    many=st.sampled_from([1, 1, 30]),
    filters=st.lists(
        st.lists(TOKENS | st.just("+"), min_size=2, max_size=3), min_size=1, max_size=4
    ),
    bounds=st.tuples(st.integers(-1, 200), st.integers(-1, 2), st.integers(-1, 200)),
    rows_max=st.sampled_from([0, 1, 5, 100]),
    limit=st.integers(1, 40),
    merged_max=st.sampled_from([0, 256]),
)
def test_runs_and_single_entries_give_the_same(
    engine: Engine,
    batches: list[list[tuple[int, list[str]]]],
    many: int,
    filters: list[list[str]],
    bounds: tuple[int, int, int],
    rows_max: int,
    limit: int,
    merged_max: int,
) -> None:
    both = [layout_in(engine, 1, SINGLES_LAYOUT, merged_max)]
    both.append(layout_in(engine, 2, LAYOUT, merged_max))
    rows: list[tuple[int, str]] = []
    last = 0
    for batch in batches:
        written = []
        for step, levels in batch * many:
            last += step
            written.append((last, "x/" + "/".join(levels)))
        for layout in both:
            put(engine, layout, written)
        rows += written
    wanted = ["x/" + "/".join(levels) for levels in filters]
    after = rows[bounds[0]][0] + bounds[1] if 0 <= bounds[0] < len(rows) else 0
    until = rows[bounds[2]][0] + bounds[1] if 0 <= bounds[2] < len(rows) else 2**62
    expected = [
        (at, topic)
        for at, topic in rows
        if after < at <= until and any(matches(each, topic) for each in wanted)
    ]
    single, joined = (outcome(each, wanted, after, until, rows_max, limit) for each in both)
    assert joined == single
    assert joined["all"] == joined["pages"] == expected
    assert joined["count"] == len(expected)
    assert joined["check"] == [len(rows)]


def layout_in(engine: Engine, generation: int, number: int, merged_max: int) -> SkipScanLayout:
    """An empty generation."""
    for table in table_names(generation):
        if table not in engine.tables:
            engine.create_table(table)
        for key in list(engine.keys(table, b"", b"\xff")):
            engine.write([table, key, None])
    scanner = Scanner(lambda: engine, *table_names(generation), merged_max=merged_max)
    trie = StructureTrie(thresholds=(1, 0, 0, 0))
    return SkipScanLayout(lambda: engine, generation, trie, layout=number, scanner=scanner)


def outcome(
    layout: SkipScanLayout, wanted: list[str], after: int, until: int, rows_max: int, limit: int
) -> dict[str, object]:
    """All that readers of a layout learn."""
    found: dict[str, object] = {
        "all": scan(layout, *wanted, after=after, until=until),
        "pages": in_pages(layout, wanted, after, until, rows_max),
        "count": counts(layout, wanted, after, until, limit, rows_max),
        "check": list(layout.check(since_offset=0, until_offset=2**62)),
    }
    effort = Effort(rows_max, part_rows_min=1)
    page = layout.scan(wanted, after_offset=after, until_offset=until, effort=effort)
    found["first"] = [each.offset for each in page], effort.through_offset
    for stream, constraints in layout.plan(wanted).items():
        if constraints is None:
            continue
        for each in constraints:
            found[f"entries {stream} {each}"] = layout.scanner.entries(
                stream, each, after, until, limit
            )
        if layout.is_picked(stream, constraints):
            row_keys = layout.scanner.picked(stream, constraints, after, until, 10**6)
            assert row_keys is not None
            found[f"picked {stream}"] = list(layout.scanner.picked_rows(row_keys))
    return found


def written(engine: Engine) -> tuple[SkipScanLayout, bytes]:
    """Rows of two tokens by turns in one write; what entries of the first begin with."""
    layout = layout_of(engine, 9)
    layout.seed(("d/+/t",))
    put(engine, layout, [(at, f"d/{at % 2}/t") for at in range(10, 30)])
    (stream,) = {key[:8] for key in engine.keys(DATA, b"", b"\xff")}
    assert runs(engine) in (
        [(*range(10, 30, 2),), (*range(11, 30, 2),)],
        [(*range(11, 30, 2),), (*range(10, 30, 2),)],
    )
    return layout, index_prefix(stream, 0, "0")


def findings(layout: SkipScanLayout) -> list[tuple[str, str]]:
    found = list(layout.check(since_offset=0, until_offset=99))
    assert found.pop() == 20
    return [(each.table, each.problem) for each in found if isinstance(each, Finding)]


NO_ENTRY = (DATA, "a varying level has no index entry")


@pytest.mark.parametrize(
    ("change", "problems", "missing"),
    [
        (lambda value: value[:-1], ["wrong length"], 10),
        (lambda value: value[8:] + value[:8], ["do not ascend"], 10),
        (lambda value: pack_offset(1) + value, ["has no message"], 0),
        (lambda value: pack_offset(11) + value[8:], ["belongs to another token"], 1),
        (lambda value: value[:8] + value[16:], [], 1),
        (lambda value: value[:16] + value[32:], [], 2),
        (lambda _value: b"", [], 9),
    ],
)
def test_a_damaged_run_is_found_and_mended(
    engine: Engine, change: Callable[[bytes], bytes], problems: list[str], missing: int
) -> None:
    layout, prefix = written(engine)
    key = prefix + pack_offset(28)
    value = engine.get(INDEX, key)
    assert value is not None
    engine.write([INDEX, key, change(value)])
    found = findings(layout)
    assert [each for each in found if each == NO_ENTRY] == [NO_ENTRY] * missing
    rest = [problem for table, problem in found if table == INDEX]
    assert len(rest) == len(problems)
    assert all(one in other for one, other in zip(problems, rest, strict=True))
    # As ``mend`` does, whose passes are bounded.
    for _ in range(3):
        operations: Operations = []
        for each in layout.check(since_offset=0, until_offset=99):
            if isinstance(each, Finding):
                row = bytes.fromhex(each.key)
                index = each.table == INDEX
                operations += [INDEX, row, None] if index else layout.index_entries.mended(row)
        engine.write(operations)
        # Where nothing contradicts the rows, nothing has to be deleted first.
        assert problems or findings(layout) == []
    assert findings(layout) == []
    assert scan(layout, "d/0/t") == [(at, "d/0/t") for at in range(10, 30, 2)]
    assert scan(layout, "d/1/t") == [(at, "d/1/t") for at in range(11, 30, 2)]
    row = next(engine.keys(DATA, b"", b"\xff"))
    assert layout.index_entries.mended(row) == []


def test_a_damaged_entry_is_not_written_over_by_mending(engine: Engine) -> None:
    """It is deleted as a finding of its own, and is kept beside."""
    layout, prefix = written(engine)
    engine.write([INDEX, prefix + pack_offset(28), b"x"])
    (row,) = (key for key in engine.keys(DATA, b"", b"\xff") if unpack_data(key)[1] == 28)
    assert layout.index_entries.mended(row) == []


def test_levels_that_miss_nothing_are_not_mended(engine: Engine) -> None:
    layout = layout_of(engine, 0)
    put(engine, layout, [(at, f"a/{at % 2}") for at in range(10, 20)])
    (row,) = (key for key in engine.keys(DATA, b"", b"\xff") if unpack_data(key)[1] == 14)
    assert layout.index_entries.mended(row) == []
    level = index_prefix(row[:8], 1, "0")
    lost = level + pack_offset(18)
    engine.write([INDEX, lost, None, INDEX, level + pack_offset(12), pack_offset(10)])
    assert layout.index_entries.mended(row) == [INDEX, level + pack_offset(14), b""]


def test_runs_that_overlap_are_found(engine: Engine) -> None:
    layout, prefix = written(engine)
    engine.write([INDEX, prefix + pack_offset(22), pack_offset(20)])
    # Who looks for rows in front of the first one finds it.
    *hidden, (table, problem) = findings(layout)
    assert hidden == [NO_ENTRY] * 5
    assert table == INDEX
    assert "begins within the one before it" in problem


def test_a_cut_leaves_entries_of_what_stays(engine: Engine) -> None:
    layout, prefix = written(engine)
    operations: Operations = []
    for key in engine.keys(DATA, b"", b"\xff"):
        if unpack_data(key)[1] > 19:
            operations += (DATA, key, None, *layout.index_entries.cut(key, 19))
    engine.write(operations)
    assert list(layout.check(since_offset=0, until_offset=20)) == [10]
    assert {len(run) for run in runs(engine)} == {1}
    assert scan(layout, "d/0/t") == [(at, "d/0/t") for at in range(10, 20, 2)]
    engine.write([INDEX, prefix + pack_offset(18), b"x"])
    with pytest.raises(StorageCorrupt, match="wrong length"):
        layout.index_entries.cut(prefix[:8] + pack_offset(18) + b"0", 15)


def test_a_constraint_reads_from_the_runs_of_its_level(engine: Engine) -> None:
    """Runs of two levels are cut at different rows; a page ends within both."""
    layout = layout_of(engine, 0, 0)
    rows = [(at, f"{at % 3}/{at % 5}") for at in range(1, 2_000)]
    for first in range(0, len(rows), 700):
        put(engine, layout, rows[first : first + 700])
    expected = [each for each in rows if each[1] == "1/2"]
    assert scan(layout, "1/2") == expected
    for after in (0, 6, 7, 8, 300, 771, 1_500):
        read = layout.scan(["1/2"], after_offset=after, until_offset=1_600)
        page = [each.offset for each, _ in zip(read, range(10), strict=False)]
        assert page == [at for at, _ in expected if after < at <= 1_600][:10]
    constraints: Constraints = ((0, "1"), (1, "2"))
    (stream,) = layout.plan(["1/2"])
    row_keys = layout.scanner.picked(stream, {constraints}, 6, 300, 1_000)
    assert row_keys is not None
    assert [unpack_data(key)[1] for key in row_keys] == [at for at, _ in expected if 6 < at <= 300]
