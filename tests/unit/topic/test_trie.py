"""Unit tests of the trie of filters; ``test_shapes`` holds it against the reference."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.topic.matching import matches
from perdure.topic.shapes import shape_of
from perdure.topic.trie import FilterTrie

FILTERS = ["a/+", "a/#", "a/b", "+/b", "#", "a/+/c/#", "+/+/+", "a//c"]


def trie_of(filters: list[str]) -> FilterTrie[str]:
    trie: FilterTrie[str] = FilterTrie()
    for each in filters:
        trie.put(each.split("/"), shape_of(each), each, is_new=True)
    return trie


def collect(trie: FilterTrie[str], topic: str) -> list[str]:
    found: list[str] = []
    levels = topic.split("/")
    trie.collect([*levels, "+", "#"], len(levels), found)
    return sorted(found)


def test_collect_finds_what_matches() -> None:
    trie = trie_of(FILTERS)
    for topic in ("a", "a/b", "a/x/c", "a//c", "a/x/c/d/e", "b/b", "/", "x/y/z/w"):
        assert collect(trie, topic) == sorted(f for f in FILTERS if matches(f, topic))


LEVELS = ["", "a", "b"]
DEEP_TOPICS = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=6).map("/".join)
DEEP_FILTERS = st.builds(
    lambda levels, tail: "/".join(levels + tail),
    st.lists(st.sampled_from([*LEVELS, "+"]), min_size=1, max_size=6),
    st.sampled_from([[], ["#"]]),
)


@given(st.lists(DEEP_FILTERS, unique=True), st.lists(DEEP_FILTERS), st.lists(DEEP_TOPICS))
def test_collect_agrees_with_the_reference(
    filters: list[str], removed: list[str], topics: list[str]
) -> None:
    trie = trie_of(filters)
    left = [each for each in filters if each not in removed]
    for each in filters:
        if each in removed:
            trie.remove(each.split("/"), shape_of(each))
    for topic in topics:
        assert collect(trie, topic) == sorted(f for f in left if matches(f, topic))


def test_a_long_filter_alone_needs_one_node() -> None:
    long = "/".join(["a"] * 100)
    trie = trie_of([long])
    assert not trie._root.children["a"].children
    trie.put(long.split("/"), shape_of(long), "new", is_new=False)
    assert collect(trie, long) == ["new"]
    # Another one with the same beginning splits it there.
    trie.put(["a", "a", "b"], "...", "other", is_new=True)
    trie.put(["a", "a"], "..", "short", is_new=True)
    assert collect(trie, long) == ["new"]
    assert collect(trie, "a/a/b") == ["other"]
    assert collect(trie, "a/a") == ["short"]


def test_only_the_topics_own_levels_are_looked_at() -> None:
    assert collect(trie_of(["a/+/#", "a/+/+"]), "a") == []


def test_put_replaces_and_counts_once() -> None:
    trie = trie_of(["a/+"])
    trie.put(["a", "+"], ".+", "new", is_new=False)
    assert collect(trie, "a/b") == ["new"]
    assert trie.shapes == {".+": 1}


def test_remove_leaves_no_empty_nodes_and_no_shapes() -> None:
    trie = trie_of(FILTERS)
    for count, each in enumerate(FILTERS, 1):
        trie.remove(each.split("/"), shape_of(each))
        assert collect(trie, "a/b") == sorted(f for f in FILTERS[count:] if matches(f, "a/b"))
    assert trie.shapes == {}
    assert not trie._root.children


def test_a_search_says_how_much_it_looked_at() -> None:
    """Filters that differ from a topic in their last level are given up at once."""
    trie: FilterTrie[str] = FilterTrie()
    levels = ["a"] * 100
    for at in range(90):
        filtered = [*levels[:at], "+", *levels[at + 1 :], "z"]
        trie.put(filtered, f"{at}", str(at), is_new=True)
    found: list[str] = []
    missed = trie.collect([*levels, "x", "+", "#"], 101, found)
    assert not found
    hit = trie.collect([*levels, "z", "+", "#"], 101, found)
    assert len(found) == 90
    assert missed < 300
    assert hit > missed + 90 * 5
