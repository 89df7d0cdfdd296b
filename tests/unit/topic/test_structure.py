"""Unit tests of learned topic structure."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import StorageCorrupt, UsageError
from perdure.topic.matching import matches
from perdure.topic.records import DOLLAR_ROOT_ID, FIRST_NODE_ID, ROOT_ID, NodeRecord
from perdure.topic.structure import FULL, StructureTrie

LEVELS = ["", "a", "b", "c", "d", "$", "$a", "$b"]
TOPICS = (
    st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4)
    .map("/".join)
    .filter(lambda topic: topic != "")
)
FILTERS = st.builds(
    lambda levels, tail: "/".join(levels + tail),
    st.lists(st.sampled_from([*LEVELS, "+", "+"]), max_size=4),
    st.sampled_from([[], ["#"]]),
).filter(lambda topic_filter: topic_filter != "")
THRESHOLDS = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)


def learned(topics: list[str], *thresholds: int, nodes_max: int = 1000) -> StructureTrie:
    trie = StructureTrie(thresholds=thresholds or (2, 2), nodes_max=nodes_max)
    for topic in topics:
        trie.resolve(topic)
    return trie


def dump(trie: StructureTrie) -> list[NodeRecord]:
    """All records of a trie of which nothing was marked persisted."""
    return list(trie.unpersisted())


def place(trie: StructureTrie, topic: str) -> tuple[str, tuple[str, ...]]:
    resolved = trie.resolve(topic)
    return trie.pattern(resolved.stream), resolved.varying


def test_levels_with_many_tokens_become_plus() -> None:
    trie = StructureTrie(thresholds=(100, 2))
    for number in range(5):
        trie.resolve(f"devices/{number}/temperature")
    assert [pattern for _, pattern in trie.streams()] == [
        "devices/0/temperature",
        "devices/1/temperature",
        "devices/+/temperature",
    ]
    assert place(trie, "devices/1/temperature") == ("devices/1/temperature", ())
    assert place(trie, "devices/4/temperature") == ("devices/+/temperature", ("4",))
    assert place(trie, "devices/x/y/z") == ("devices/+/y/z", ("x",))


def test_a_known_topic_creates_nothing() -> None:
    trie = StructureTrie(thresholds=(1,))
    for topic in ("a/b", "c/d", "e/f"):
        first = trie.resolve(topic)
        again = trie.resolve(topic)
        assert again.created == ()
        assert (again.stream, again.varying) == (first.stream, first.varying)


def test_created_holds_each_new_node_once_in_order_and_the_new_stream() -> None:
    trie = StructureTrie()
    created = trie.resolve("a/b").created
    assert created == (
        NodeRecord(node_id=2, parent_id=ROOT_ID, token="a", is_stream=False),
        NodeRecord(node_id=3, parent_id=2, token="b", is_stream=True),
    )
    assert trie.resolve("a").created == (
        NodeRecord(node_id=2, parent_id=ROOT_ID, token="a", is_stream=True),
    )
    assert trie.resolve("$a").created == (
        NodeRecord(node_id=4, parent_id=DOLLAR_ROOT_ID, token="$a", is_stream=True),
    )


@pytest.mark.trap(27)
@given(st.lists(TOPICS, max_size=40), THRESHOLDS, st.integers(0, 12))
def test_a_topic_never_moves_to_another_stream(
    topics: list[str], thresholds: tuple[int, ...], nodes_max: int
) -> None:
    trie = StructureTrie(thresholds=thresholds, nodes_max=nodes_max)
    first: dict[str, tuple[int, tuple[str, ...]]] = {}
    for topic in topics:
        resolved = trie.resolve(topic)
        assert trie.topic(resolved.stream, resolved.varying) == topic
        expected = first.setdefault(topic, (resolved.stream, resolved.varying))
        assert (resolved.stream, resolved.varying) == expected
    # Nor when it is loaded, under other thresholds.
    again = StructureTrie.load(dump(trie), thresholds=(5,), nodes_max=10_000)
    for topic, expected in first.items():
        for each in (trie, again):
            resolved = each.resolve(topic)
            assert (resolved.stream, resolved.varying) == expected
            assert resolved.created == ()
    # Two topics never share a stream and its varying tokens.
    assert len(set(first.values())) == len(first)


@pytest.mark.trap(27)
def test_an_existing_token_keeps_its_static_edge_when_a_wildcard_is_learned() -> None:
    trie = StructureTrie(thresholds=(9, 1))
    before = trie.resolve("d/1/t").stream
    assert place(trie, "d/2/t") == ("d/+/t", ("2",))
    assert trie.resolve("d/1/t").stream == before
    # New topics below the old token stay below it too.
    assert place(trie, "d/1/u")[1] == ("u",)
    assert place(trie, "d/2/t") == ("d/+/t", ("2",))


def check_streams_matching(trie: StructureTrie, topics: list[str], topic_filter: str) -> None:
    found = trie.streams_matching(topic_filter)
    assert [each.stream for each in found] == sorted({each.stream for each in found})
    by_stream = {each.stream: each for each in found}
    for topic in topics:
        resolved = trie.resolve(topic)
        match = by_stream.get(resolved.stream)
        is_found = match is not None and all(
            resolved.varying[index] == token for index, token in match.constraints
        )
        assert is_found is matches(topic_filter, topic)
    for match in found:
        assert "/".join(match.pattern) == trie.pattern(match.stream)
        # The number of a varying level is its place among the pattern's `+`.
        assert all(index < match.pattern.count("+") for index, _ in match.constraints)


@pytest.mark.trap(28)
@settings(max_examples=300)
@given(
    st.lists(TOPICS, max_size=30),
    st.lists(FILTERS, max_size=5),
    THRESHOLDS,
    st.booleans(),
    st.sampled_from([0, 2, 5, 1000]),
)
def test_streams_matching_finds_exactly_the_topics_that_match(
    topics: list[str],
    filters: list[str],
    thresholds: tuple[int, ...],
    is_reloaded: bool,
    nodes_max: int,
) -> None:
    trie = learned(topics, *thresholds, nodes_max=nodes_max)
    if is_reloaded:
        trie = StructureTrie.load(dump(trie), thresholds=thresholds)
    for topic_filter in filters:
        check_streams_matching(trie, topics, topic_filter)


@pytest.mark.trap(28)
def test_dollar_topics_have_their_own_root() -> None:
    topics = ["a/x", "b/x", "c/x", "$SYS/x", "$SYS/y", "$replay/x", "$other/x"]
    trie = learned(topics, 0, 2)
    assert place(trie, "a/x") == ("+/x", ("a",))
    assert place(trie, "$SYS/x") == ("+/x", ("$SYS",))
    assert trie.resolve("a/x").stream != trie.resolve("$SYS/x").stream
    assert [m.stream for m in trie.streams_matching("#")] == [trie.resolve("a/x").stream]
    assert [m.stream for m in trie.streams_matching("+/x")] == [trie.resolve("a/x").stream]
    only_dollar = trie.streams_matching("$SYS/x")
    assert [(m.stream, m.constraints) for m in only_dollar] == [
        (trie.resolve("$SYS/x").stream, ((0, "$SYS"),))
    ]


@pytest.mark.trap(28)
def test_hash_matches_the_level_above_it() -> None:
    trie = learned(["a", "a/b", "a/b/c"], 9)
    patterns = [trie.pattern(match.stream) for match in trie.streams_matching("a/#")]
    assert patterns == ["a", "a/b", "a/b/c"]
    assert [trie.pattern(m.stream) for m in trie.streams_matching("a/b/c/#")] == ["a/b/c"]
    assert trie.streams_matching("a/b/c/d/#") == []


def test_constraints_name_the_varying_levels_that_the_filter_fixes() -> None:
    trie = learned(["x/1/2/t"], 1, 0, 0, 1)
    (match,) = trie.streams_matching("x/+/2/t")
    assert match.constraints == ((1, "2"),)
    assert match.pattern == ("x", "+", "+", "t")
    (match,) = trie.streams_matching("x/7/2/#")
    assert match.constraints == ((0, "7"), (1, "2"))
    (match,) = trie.streams_matching("x/#")
    assert match.constraints == ()


def test_a_filter_without_wildcards_is_in_one_stream_at_most() -> None:
    trie = learned(["d/1/t", "d/2/t", "d/3/t"], 9, 1)
    assert [trie.pattern(m.stream) for m in trie.streams_matching("d/1/t")] == ["d/1/t"]
    assert [trie.pattern(m.stream) for m in trie.streams_matching("d/7/t")] == ["d/+/t"]
    assert trie.streams_matching("e/1/t") == []


@given(
    st.lists(TOPICS, max_size=40),
    st.lists(TOPICS, max_size=40),
    THRESHOLDS,
    st.randoms(),
    st.sampled_from([0, 4, 1000]),
)
def test_a_loaded_trie_goes_on_as_the_first_would(
    before: list[str],
    after: list[str],
    thresholds: tuple[int, ...],
    chance: random.Random,
    nodes_max: int,
) -> None:
    trie = learned(before, *thresholds, nodes_max=nodes_max)
    records = dump(trie)
    shuffled = sorted(records, key=lambda _: chance.random())
    again = StructureTrie.load(shuffled, thresholds=thresholds, nodes_max=nodes_max)
    assert (again.node_count, again.stream_count) == (trie.node_count, trie.stream_count)
    assert again.unpersisted() == ()
    assert again.streams() == trie.streams()
    for topic in after:
        mine, its = trie.resolve(topic), again.resolve(topic)
        assert (mine.stream, mine.varying, mine.created) == (its.stream, its.varying, its.created)


def test_what_was_not_persisted_is_handed_out_again() -> None:
    trie = StructureTrie()
    created = trie.resolve("a/b").created
    # The write failed; the next message of the topic creates nothing but depends on them.
    assert trie.resolve("a/b").created == ()
    assert trie.unpersisted() == created
    later = trie.resolve("a/c").created
    assert trie.unpersisted() == created + later
    trie.mark_persisted(created)
    assert trie.unpersisted() == later
    trie.mark_persisted(later)
    assert trie.unpersisted() == ()


def test_a_node_that_changed_after_it_was_handed_out_stays_unpersisted() -> None:
    trie = StructureTrie()
    written = trie.resolve("a/b").created
    changed = trie.resolve("a").created
    trie.mark_persisted(written)
    assert trie.unpersisted() == changed
    assert [record.is_stream for record in changed] == [True]


@given(st.lists(TOPICS, max_size=30), THRESHOLDS, st.data())
def test_what_was_written_before_a_crash_is_enough_for_what_was_written(
    topics: list[str], thresholds: tuple[int, ...], data: st.DataObject
) -> None:
    """Batches fail at random; whatever one that did not fail relied on can be loaded."""
    trie = StructureTrie(thresholds=thresholds)
    disk: dict[int, NodeRecord] = {}
    log: list[tuple[str, int, tuple[str, ...]]] = []
    for topic in topics:
        resolved = trie.resolve(topic)
        records = trie.unpersisted()
        if data.draw(st.booleans()):
            disk.update({record.node_id: record for record in records})
            log.append((topic, resolved.stream, resolved.varying))
            trie.mark_persisted(records)
    again = StructureTrie.load(disk.values(), thresholds=thresholds)
    for topic, stream, varying in log:
        resolved = again.resolve(topic)
        assert (resolved.stream, resolved.varying, resolved.created) == (stream, varying, ())


def test_inherit_keeps_wildcards_and_what_leads_to_them() -> None:
    trie = learned(
        ["d/1/t", "d/2/t", "d/3/t/x", "d/4/t/y", "d/5/t/z", "d/3/u", "s/one", "q"], 9, 2, 9, 2
    )
    assert [pattern for _, pattern in trie.streams()] == [
        "d/1/t",
        "d/2/t",
        "d/+/t/x",
        "d/+/t/y",
        "d/+/t/+",
        "d/+/u",
        "s/one",
        "q",
    ]
    heir = trie.inherit()
    assert heir.streams() == []
    assert [(r.node_id, r.parent_id, r.token) for r in heir.unpersisted()] == [
        (2, 0, "d"),
        (3, 2, "+"),
        (4, 3, "t"),
        (5, 4, "+"),
    ]
    assert place(heir, "d/1/t/x") == ("d/+/t/+", ("1", "x"))
    assert place(heir, "s/one") == ("s/one", ())
    assert place(heir, "d/9/u") == ("d/+/u", ("9",))


@given(st.lists(TOPICS, max_size=40), THRESHOLDS)
def test_an_heir_varies_where_its_parent_did(
    topics: list[str], thresholds: tuple[int, ...]
) -> None:
    trie = learned(topics, *thresholds)
    heir = trie.inherit()
    assert heir.stream_count == 0
    again = StructureTrie.load(heir.unpersisted(), thresholds=thresholds, nodes_max=1000)
    for topic in topics:
        old = trie.pattern(trie.resolve(topic).stream).split("/")
        new = heir.resolve(topic)
        pattern = heir.pattern(new.stream).split("/")
        for index, level in enumerate(pattern):
            if level != "+" and old[:index] == pattern[:index]:
                assert old[index] != "+"
        its = again.resolve(topic)
        assert (its.stream, its.varying) == (new.stream, new.varying)
    assert heir.inherit().node_count <= heir.node_count


def test_dollar_wildcards_are_inherited_under_their_own_root() -> None:
    trie = learned(["$a/1", "$a/2", "$a/3"], 9, 1)
    heir = trie.inherit()
    assert place(heir, "$a/1") == ("$a/+", ("1",))
    assert place(heir, "a/1") == ("a/1", ())


def test_memory_is_bounded_by_the_thresholds() -> None:
    trie = StructureTrie(thresholds=(2, 3))
    for number in range(2000):
        trie.resolve(f"{number % 40}/{number}")
    # 3 nodes in the first level, each with 4 below it.
    assert trie.node_count == 3 + 3 * 4
    assert trie.stream_count == 3 * 4


def test_memory_is_bounded_by_nodes_max() -> None:
    trie = StructureTrie(thresholds=(1000,), nodes_max=10)
    for number in range(500):
        trie.resolve(f"a/{number}/{number}")
    # "a", then 4 pairs and one more node; the rest is `a/+/+`, and `+` below the last node.
    assert trie.node_count <= 10 + 3
    assert place(trie, "a/499/1") == ("a/+/+", ("499", "1"))


def test_topics_that_part_at_every_level_do_not_grow_it() -> None:
    """One client could else have a long branch at each of the static nodes: gigabytes."""
    trie = StructureTrie(thresholds=(1000,), nodes_max=50)
    stem = [str(level) for level in range(49)]
    trie.resolve("/".join(stem))
    for depth in range(49):
        for number in range(3):
            trie.resolve("/".join([*stem[:depth], f"x{number}", *stem[depth + 1 :]]))
    assert trie.node_count <= FULL * 50 + 49
    assert trie.has_overflowed
    # What had a place keeps it, and what would need one has the overflow from now on, however
    # little it needs.
    assert place(trie, "/".join(stem)) == ("/".join(stem), ())
    assert place(trie, "0/1") == ("0/1", ())
    assert place(trie, "y") == ("+", ("y",))
    assert place(trie, "0/y/z") == ("+/+/+", ("0", "y", "z"))
    assert place(trie, "$y/z") == ("+/+", ("$y", "z"))
    assert [m.pattern for m in trie.streams_matching("+/z")] == []
    assert [m.constraints for m in trie.streams_matching("$y/+")] == [((0, "$y"),)]
    assert trie.inherit().node_count == 0


def test_long_tokens_vary_and_are_not_kept() -> None:
    trie = StructureTrie(thresholds=(100, 10))
    pad = "t" * 13_000
    for number in range(400):
        trie.resolve("/".join(f"{pad}{number * step}" for step in range(1, 6)))
    assert trie.node_count == 5
    assert trie.stream_count == 1
    assert sum(len(record.token) for record in trie.unpersisted()) == 5
    trie.resolve(f"a/{'b' * 256}/c")
    trie.resolve(f"a/{'b' * 257}/c")
    assert place(trie, f"b/{'b' * 300}/c") == ("+/+/+", ("b", "b" * 300, "c"))
    assert place(StructureTrie(), "a/b") == ("a/b", ())


def test_deep_topics_need_no_deep_stack() -> None:
    topic = "/".join(["x"] * 5000)
    trie = StructureTrie(nodes_max=100_000)
    trie.resolve(topic)
    trie.resolve("x")
    assert len(trie.streams_matching("#")) == 2
    assert len(trie.streams_matching(topic)) == 1
    assert trie.inherit().node_count == 0


def test_misuse_is_told() -> None:
    trie = learned(["a/b", "c/d", "e/f"], 1, 9)
    stream = trie.resolve("e/f").stream
    assert trie.topic(stream, ("e",)) == "e/f"
    for wrong in ((), ("e", "f")):
        with pytest.raises(UsageError):
            trie.topic(stream, wrong)
    with pytest.raises(UsageError):
        trie.pattern(999)
    with pytest.raises(UsageError):
        StructureTrie(thresholds=())
    with pytest.raises(UsageError):
        StructureTrie(thresholds=(1, -1))


def record(node_id: int, parent_id: int, token: str) -> NodeRecord:
    return NodeRecord(node_id=node_id, parent_id=parent_id, token=token, is_stream=True)


@pytest.mark.parametrize(
    "records",
    [
        [record(3, 2, "a")],
        [record(FIRST_NODE_ID - 1, ROOT_ID, "a")],
        [record(2, 0, "a"), record(2, 0, "b")],
        [record(2, 0, "a"), record(3, 0, "a")],
        [record(2, 0, "+"), record(3, 0, "+")],
        [record(2, 3, "a"), record(3, 0, "b")],
    ],
)
def test_records_that_make_no_trie_are_refused(records: list[NodeRecord]) -> None:
    with pytest.raises(StorageCorrupt):
        StructureTrie.load(records)


def test_seeded_levels_vary_from_the_first_topic_on() -> None:
    trie = StructureTrie(thresholds=(2, 2))
    trie.seed(["rooms/+/t", "$SYS/+", "+/+/+/x", "rooms/+/h"])
    assert trie.streams() == []
    assert trie.streams_matching("#") == []
    resolved = trie.resolve("rooms/7/t")
    assert (trie.pattern(resolved.stream), resolved.varying) == ("rooms/+/t", ("7",))
    assert trie.pattern(trie.resolve("$SYS/up").stream) == "$SYS/+"
    assert trie.pattern(trie.resolve("a/b/c/x").stream) == "+/+/+/x"
    # What was not proposed is learned as ever: below a level that varies, too.
    assert trie.pattern(trie.resolve("rooms/8/new").stream) == "rooms/+/+"
    assert trie.pattern(trie.resolve("rooms/8/h").stream) == "rooms/+/h"


@given(st.lists(FILTERS.filter(lambda each: "#" not in each), max_size=6), st.lists(TOPICS))
def test_a_seeded_trie_is_one_that_learned(patterns: list[str], topics: list[str]) -> None:
    trie = StructureTrie(thresholds=(2, 1))
    trie.seed(patterns)
    found = [(trie.pattern(r.stream), r.varying) for r in map(trie.resolve, topics)]
    loaded = StructureTrie.load(dump(trie), thresholds=(5,))
    again = [(loaded.pattern(r.stream), r.varying) for r in map(loaded.resolve, topics)]
    assert again == found
    for topic, (pattern, varying) in zip(topics, found, strict=True):
        stream = loaded.resolve(topic).stream
        assert loaded.topic(stream, varying) == topic
        assert loaded.pattern(stream) == pattern
