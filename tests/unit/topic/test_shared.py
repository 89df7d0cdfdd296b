"""Unit tests of the strategies of shared subscriptions."""

from __future__ import annotations

import random
from collections import Counter
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.topic.shared import NOBODY, Chooser, Strategy, make_chooser

STRATEGIES: list[Strategy] = list(get_args(Strategy))


class FakeMember:
    def __init__(self, client_id: str, inflight_count: int = 0, is_available: bool = True) -> None:
        self.client_id = client_id
        self.inflight_count = inflight_count
        self.is_available = is_available


def group(count: int) -> list[FakeMember]:
    return [FakeMember(f"client-{number}") for number in range(count)]


def chooser(strategy: Strategy, seed: int = 1) -> Chooser:
    return make_chooser(strategy, random.Random(seed).randrange)


def choose(
    chooser_: Chooser, members: list[FakeMember], topic: str = "t", publisher: str = "p"
) -> str:
    return members[chooser_.choose(members, topic=topic, publisher=publisher)].client_id


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_empty_group_has_nobody(strategy: Strategy) -> None:
    assert chooser(strategy).choose([], topic="t", publisher="p") == NOBODY


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(
    calls=st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=5),
            st.sampled_from(["a", "b"]),
        ),
        max_size=20,
    ),
    seed=st.integers(0, 3),
)
def test_only_available_members_are_chosen(
    strategy: Strategy, calls: list[tuple[list[tuple[int, bool]], str]], seed: int
) -> None:
    each = chooser(strategy, seed)
    for shown, key in calls:
        members = [FakeMember(f"c{n}", load, ok) for n, (load, ok) in enumerate(shown)]
        index = each.choose(members, topic=key, publisher=key)
        if any(member.is_available for member in members):
            assert members[index].is_available
        else:
            assert index == NOBODY


def test_an_unknown_strategy_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        make_chooser("fastest", random.Random(1).randrange)  # type: ignore[arg-type]


def test_round_robin_takes_turns_and_skips() -> None:
    each, members = chooser("round_robin"), group(4)
    assert [choose(each, members)[-1] for _ in range(6)] == list("012301")
    members[2].is_available = False
    assert [choose(each, members)[-1] for _ in range(4)] == list("3013")
    del members[1:]
    assert choose(each, members)[-1] == "0"


def test_random_is_uniform_among_the_available() -> None:
    each, members = chooser("random"), group(4)
    members[1].is_available = False
    counts = Counter(choose(each, members) for _ in range(3000))
    assert set(counts) == {"client-0", "client-2", "client-3"}
    assert min(counts.values()) > 850


def test_sticky_stays_until_the_member_cannot_take_more() -> None:
    each, members = chooser("sticky"), group(5)
    first = choose(each, members)
    assert {choose(each, members) for _ in range(20)} == {first}
    # Others come and go around it.
    members.insert(0, FakeMember("new"))
    assert choose(each, members) == first
    members = [member for member in members if member.client_id == first] + group(1)
    assert choose(each, members) == first
    members[0].is_available = False
    second = choose(each, members)
    assert second != first
    members[0].is_available = True
    assert choose(each, members) == second


def test_sticky_chooses_again_when_the_member_has_left() -> None:
    each, members = chooser("sticky"), group(3)
    first = choose(each, members)
    rest = [member for member in members if member.client_id != first]
    assert choose(each, rest) in {member.client_id for member in rest}
    assert len({choose(each, rest) for _ in range(10)}) == 1


@pytest.mark.parametrize(("strategy", "by"), [("hash_topic", "topic"), ("hash_publisher", "pub")])
def test_a_hash_depends_on_its_key_only(strategy: Strategy, by: str) -> None:
    members = group(8)
    keys = [f"key/{number}" for number in range(50)]
    for other in ("x", "y"):
        each = chooser(strategy)
        for key in keys:
            topic, publisher = (key, other) if by == "topic" else (other, key)
            expected = choose(chooser(strategy), members, topic, publisher)
            assert choose(each, members[::-1], topic, publisher) == expected
    spread = {
        choose(chooser(strategy), members, *((key, "x") if by == "topic" else ("x", key)))
        for key in keys
    }
    assert len(spread) > 4


def test_a_hash_is_even_and_the_same_in_every_process() -> None:
    each, members = chooser("hash_topic"), group(7)
    chosen = [choose(each, members, f"devices/{number}/t") for number in range(7000)]
    counts = Counter(chosen)
    assert len(counts) == 7
    assert min(counts.values()) > 850
    assert max(counts.values()) < 1150
    # Golden: a change would move every key when a broker is upgraded.
    assert "".join(each_[-1] for each_ in chosen[:20]) == "62550441113026121143"


def test_a_member_that_comes_or_goes_moves_only_its_own_keys() -> None:
    each, members = chooser("hash_topic"), group(5)
    keys = [f"k{number}" for number in range(500)]
    before = {key: choose(each, members, key) for key in keys}
    members[2].is_available = False
    without = {key: choose(each, members, key) for key in keys}
    assert all(without[key] == before[key] for key in keys if before[key] != "client-2")
    members[2].is_available = True
    assert {key: choose(each, members, key) for key in keys} == before
    members.append(FakeMember("client-9"))
    after = {key: choose(each, members, key) for key in keys}
    assert {after[key] for key in keys if after[key] != before[key]} == {"client-9"}


def test_a_hash_forgets_members_that_have_gone() -> None:
    each = chooser("hash_topic")
    for number in range(1000):
        choose(each, [FakeMember(f"passing-{number}")])
    assert len(each._hashes) < 30  # type: ignore[attr-defined]


def test_members_with_equal_hashes_are_told_apart_by_their_ids() -> None:
    # These two texts have the same CRC-32.
    members = [FakeMember("plumless"), FakeMember("buckeroo")]
    assert choose(chooser("hash_topic"), members) == "buckeroo"
    assert choose(chooser("hash_topic"), members[::-1]) == "buckeroo"


def test_least_inflight_takes_the_least_loaded_in_turn_among_equals() -> None:
    each, members = chooser("least_inflight"), group(3)
    assert [choose(each, members)[-1] for _ in range(4)] == list("0120")
    members[0].inflight_count = 2
    members[1].inflight_count = 1
    members[2].inflight_count = 2
    assert [choose(each, members)[-1] for _ in range(2)] == list("11")
    members[1].is_available = False
    assert [choose(each, members)[-1] for _ in range(3)] == list("202")


@given(
    available=st.lists(st.booleans(), max_size=6),
    counts=st.lists(st.integers(0, 60), max_size=4),
)
def test_in_stretches_members_get_as_many_as_one_by_one(
    available: list[bool], counts: list[int]
) -> None:
    members = [FakeMember(f"c{number}", 0, ok) for number, ok in enumerate(available)]
    at_once, one_by_one = chooser("round_robin"), chooser("round_robin")
    got: Counter[int] = Counter()
    expected: Counter[int] = Counter()
    for count in counts:
        length, in_stretches = at_once.stretches(members, count)
        assert length >= 1
        assert 0 <= in_stretches <= count
        assert in_stretches % length == 0
        given_out = 0
        while given_out < count:
            part = length if given_out < in_stretches else 1
            got[at_once.choose(members, topic="t", publisher="p")] += part
            given_out += part
        for _ in range(count):
            expected[one_by_one.choose(members, topic="t", publisher="p")] += 1
        assert got == expected


def test_few_messages_are_given_one_by_one() -> None:
    assert chooser("round_robin").stretches(group(5), 19) == (1, 0)
    assert chooser("round_robin").stretches(group(5), 21) == (4, 20)
    assert chooser("sticky").stretches(group(5), 21) == (21, 21)


@pytest.mark.parametrize("strategy", ["random", "hash_publisher", "hash_topic", "least_inflight"])
def test_where_each_message_decides_there_are_no_stretches(strategy: Strategy) -> None:
    assert chooser(strategy).stretches(group(1), 1000) == (1, 0)
