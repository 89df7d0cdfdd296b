"""Filters that are read for together: each once, known by what they are."""

from __future__ import annotations

from perdure.topic.filter_set import FilterSet


def test_it_is_a_sequence_of_each_filter_once() -> None:
    wanted = FilterSet(["a", "b", "a"])
    assert (list(wanted), len(wanted), wanted[1], wanted[:1]) == (["a", "b"], 2, "b", ("a",))
    assert FilterSet.of(wanted) is wanted
    assert FilterSet.of(["a"]).filters == ("a",)
    assert wanted != FilterSet(wanted), "one by what it is"
    assert wanted.is_exact
    assert not FilterSet(["a", "+"]).is_exact


def test_any_of_them_may_match() -> None:
    wanted = FilterSet(["a/+", "b"])
    assert wanted.any.matches("a/1")
    assert not wanted.any.matches("c")
    assert wanted.any is wanted.any, "made once"
