"""Unit tests of the matcher: against ``matching.matches``, through every place and the cache."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from perdure.topic.matching import matches
from perdure.topic.shapes import (
    CACHE_TOPIC_LENGTH_MAX,
    CandidateBuilder,
    FilterIndex,
    candidates,
    shape_of,
)

LEVELS = ["", "a", "b", "$", "$a"]

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


class IndexMachine(RuleBasedStateMachine):
    """A FilterIndex against a dict and ``matches``, with few shapes allowed and a tiny cache."""

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[str, int] = {}
        self.number = 0

    @initialize(shapes_max=st.sampled_from([0, 1, 2, 8]), cache_max=st.sampled_from([0, 2, 4, 64]))
    def open(self, shapes_max: int, cache_max: int) -> None:
        self.index: FilterIndex[int] = FilterIndex(cache_max=cache_max, shapes_max=shapes_max)

    @rule(topic_filter=FILTERS)
    def put(self, topic_filter: str) -> None:
        self.number += 1
        self.model[topic_filter] = self.number
        self.index.put(topic_filter, self.number)

    @rule(topic_filter=FILTERS)
    def remove(self, topic_filter: str) -> None:
        assert self.index.remove(topic_filter) == self.model.pop(topic_filter, None)

    @rule(data=st.data())
    def remove_one_that_is_there(self, data: st.DataObject) -> None:
        if self.model:
            topic_filter = data.draw(st.sampled_from(sorted(self.model)))
            assert self.index.remove(topic_filter) == self.model.pop(topic_filter)

    @rule(topic=TOPICS)
    def match(self, topic: str) -> None:
        expected = sorted(v for f, v in self.model.items() if matches(f, topic))
        assert sorted(self.index.match(topic)) == expected
        assert sorted(self.index.match(topic)) == expected
        assert sorted(self.index.match_uncached(topic)) == expected

    @rule(topic_filter=FILTERS)
    def get(self, topic_filter: str) -> None:
        assert self.index.get(topic_filter) == self.model.get(topic_filter)
        assert (topic_filter in self.index) is (topic_filter in self.model)

    @invariant()
    def holds_the_same(self) -> None:
        assert len(self.index) == len(self.model)
        assert dict(self.index.items()) == self.model


IndexMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
test_index_against_a_dict = IndexMachine.TestCase


@given(st.lists(FILTERS, unique=True, max_size=30), TOPICS)
def test_candidates_are_the_matching_filters(filters: list[str], topic: str) -> None:
    built = candidates(topic, [shape_of(each) for each in filters])
    assert len(built) == len(set(built))
    assert all(matches(each, topic) for each in built)
    expected = {each for each in filters if matches(each, topic)}
    assert expected == set(built) & set(filters)


def test_shape_of() -> None:
    assert shape_of("devices/+/temperature") == ".+."
    assert shape_of("#") == "#"
    assert shape_of("/") == ".."
    assert shape_of("+/a/#") == "+.#"


def test_a_builder_serves_many_topics() -> None:
    builder = CandidateBuilder(["...", ".+.", ".#", "#", "+", "."])
    assert sorted(builder.build("a/b/c")) == ["#", "a/#", "a/+/c", "a/b/c"]
    assert sorted(builder.build("a")) == ["#", "+", "a", "a/#"]
    assert sorted(builder.build("$a")) == ["$a", "$a/#"]
    assert sorted(builder.build("a/b/c/d/e/f")) == ["#", "a/#"]


@pytest.mark.trap(28)
def test_wildcards_in_the_first_level_do_not_match_dollar_topics() -> None:
    for shapes_max in (0, 8):
        index: FilterIndex[str] = FilterIndex(shapes_max=shapes_max)
        for each in ("#", "+/x", "+/#", "$SYS/#", "$SYS/x"):
            index.put(each, each)
        assert sorted(index.match("$SYS/x")) == ["$SYS/#", "$SYS/x"]
        assert sorted(index.match("a/x")) == ["#", "+/#", "+/x"]


def random_filters(chance: random.Random, count: int) -> list[str]:
    def level() -> str:
        return "+" if chance.random() < 0.4 else chance.choice("abc")

    found = []
    for _ in range(count):
        levels = [level() for _ in range(chance.randint(1, 6))]
        if chance.random() < 0.3:
            levels.append("#")
        found.append("/".join(levels))
    return found


def test_many_shapes_in_one_first_level_stay_correct_while_they_come_and_go() -> None:
    chance = random.Random(7)
    index: FilterIndex[str] = FilterIndex(cache_max=0)
    there: set[str] = set()
    everything = random_filters(chance, 600)
    for step, topic_filter in enumerate(everything + everything[::2]):
        if topic_filter in there and step >= len(everything):
            there.discard(topic_filter)
            assert index.remove(topic_filter) == topic_filter
        else:
            there.add(topic_filter)
            index.put(topic_filter, topic_filter)
        if step % 20 == 0:
            topic = "/".join(chance.choice("abc") for _ in range(chance.randint(1, 6)))
            assert sorted(index.match(topic)) == sorted(f for f in there if matches(f, topic))
    for topic_filter in sorted(there):
        index.remove(topic_filter)
    assert index.match("a/b/c") == []
    assert not index._groups
    assert list(index._shape_sets) == [()]
    assert index._nowhere.users == 0


def test_candidates_of_one_topic_are_bounded() -> None:
    index: FilterIndex[int] = FilterIndex(shapes_max=3)
    for number in range(64):
        levels = ["+" if number >> bit & 1 else "x" for bit in range(6)]
        index.put("a/" + "/".join(levels) + "/+", number)
    group = index._groups["a"]
    assert len(group.shape_set.shapes) == 3
    assert group.trie is not None
    assert sum(group.trie.shapes.values()) == 61
    assert sorted(index.match("a/x/x/x/x/x/x/y")) == list(range(64))


def test_removing_what_is_not_there_changes_nothing() -> None:
    index: FilterIndex[int] = FilterIndex()
    index.put("a/+", 1)
    assert index.remove("a/#") is None
    assert index.remove("a/b") is None
    assert index.match("a/b") == [1]


def test_a_hit_is_counted_and_returns_the_same_list() -> None:
    index: FilterIndex[int] = FilterIndex()
    index.put("a/+", 1)
    index.match("a/b")
    index.match("c")
    first = index.match("a/b")
    assert index.match("a/b") is first
    index.match("c")
    assert index.match("a/b") is first
    assert (index.lookup_count, index.miss_count) == (6, 4)


def test_no_match_is_cached_too() -> None:
    index: FilterIndex[int] = FilterIndex()
    for _ in range(3):
        assert index.match("a/b") == []
        assert index.match("c") == []
    assert index.miss_count == 4


def test_the_last_answer_is_given_again_until_a_filter_changes() -> None:
    """A burst on one topic asks once, also where nothing is cached."""
    index: FilterIndex[int] = FilterIndex(cache_max=0)
    topic = "a/b"
    for _ in range(3):
        assert index.match(topic) == []
    assert index.miss_count == 1
    index.put("a/b", 1)
    assert index.match(topic) == [1]
    index.remove("a/b")
    assert index.match(topic) == []


def test_the_cache_is_bounded_and_what_is_asked_for_survives() -> None:
    index: FilterIndex[int] = FilterIndex(cache_max=20)
    index.match("hot")
    for number in range(1000):
        topic = f"cold/{number}"
        for _ in range(2):
            index.match("hot")
            index.match(topic)
    assert len(index._young) + len(index._old) <= 20
    # Twice for "hot", and for each of the others, but for those that share the bit of another one.
    assert 1950 < index.miss_count <= 2002


@pytest.mark.parametrize("topic_filter", ["a/x", "a/+", "a/#", "+/x", "#"])
def test_a_change_is_seen_wherever_the_old_result_is_kept(topic_filter: str) -> None:
    for later_topics in range(8):
        index: FilterIndex[int] = FilterIndex(cache_max=4)
        for _ in range(2):
            assert index.match("a/x") == []
            for number in range(later_topics):
                index.match(f"later/{number}")
        index.put(topic_filter, 1)
        assert index.match("a/x") == [1]
        for number in range(later_topics):
            index.match(f"later/{number}")
        index.put(topic_filter, 2)
        assert index.match("a/x") == [2]
        for number in range(later_topics):
            index.match(f"later/{number}")
        index.remove(topic_filter)
        assert index.match("a/x") == []


def test_long_topics_are_not_cached() -> None:
    index: FilterIndex[int] = FilterIndex()
    topic = "x" * (CACHE_TOPIC_LENGTH_MAX + 1)
    index.match(topic)
    index.match("y")
    index.match(topic)
    assert index.miss_count == 3


def test_a_change_forgets_only_its_first_level() -> None:
    index: FilterIndex[int] = FilterIndex()
    for topic in ("a/x", "b/x", "a/y") * 2:
        index.match(topic)
    before = index.miss_count
    index.put("a/+", 1)
    assert index.match("a/x") == [1]
    assert index.match("b/x") == []
    assert index.miss_count == before + 1
    index.put("a/y", 2)
    index.match("a/x")
    assert index.miss_count == before + 1
    assert sorted(index.match("a/y")) == [1, 2]
    assert index.miss_count == before + 2


def test_changes_under_cached_topics_do_not_grow_the_cache_lists() -> None:
    index: FilterIndex[int] = FilterIndex(cache_max=100)
    for number in range(10_000):
        index.put("a/x", number)
        assert index.match("a/x") == [number]
    assert sum(len(topics) for topics in index._young_firsts.values()) <= 50
    assert sum(len(topics) for topics in index._old_firsts.values()) <= 50


def test_topics_that_come_once_are_not_kept() -> None:
    index: FilterIndex[int] = FilterIndex()
    index.put("t/+", 1)
    for number in range(10_000):
        assert index.match(f"t/{number}") == [1]
    # Some share the bit of another one.
    assert len(index._young) < 500
    for _ in range(3):
        index.match("often")
        index.match("another")
    assert "often" in index._young


def test_a_shape_more_makes_no_other_anew() -> None:
    """Eight shapes for each of 190 depths: all of them were made anew for each that came or went,
    and 10,000 filters of one session that went at once took two seconds."""
    index: FilterIndex[int] = FilterIndex()
    filters = [
        "/".join(["a", *["x"] * number, "+", *["x"] * (depth - number)])
        for depth in range(20)
        for number in range(min(8, depth + 1))
    ]
    made: set[int] = set()
    kept = []
    for change in (lambda each: index.put(each, 1), index.remove):
        for topic_filter in filters:
            change(topic_filter)
            group = index._groups.get("a")
            if group is not None:
                assert group.trie is None
                kept.append(group.shape_set)  # so that no identity comes again
                made.update(map(id, group.shape_set._pickers))
    assert len(made) == len(filters)
