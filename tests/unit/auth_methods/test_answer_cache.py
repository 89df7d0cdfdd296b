"""Answers are remembered for as long as they hold, and as many as there may be."""

from __future__ import annotations

from perdure.auth_methods.answer_cache import AnswerCache
from tests.support.clock import VirtualClock


def made(size_max: int = 2) -> tuple[AnswerCache[str], VirtualClock]:
    clock = VirtualClock()
    return AnswerCache(clock, bytes(32), size_max=size_max), clock


def test_an_answer_holds_for_its_time_and_may_be_given_anew() -> None:
    cache, clock = made()
    cache.put(b"q", "first", holds_s=10)
    clock.advance_us(9_999_999)
    assert cache.get(b"q") == "first"
    clock.advance_us(1)
    assert (cache.get(b"q"), len(cache)) == (None, 0)
    cache.put(b"q", "second", holds_s=10)
    clock.advance_us(5_000_000)
    cache.put(b"q", "third", holds_s=10)
    clock.advance_us(9_000_000)
    assert cache.get(b"q") == "third"
    cache.put(b"q", "fourth", holds_s=0)
    assert cache.get(b"q") is None, "an answer without a time takes the earlier one's place too"


def test_the_oldest_make_room() -> None:
    cache, _ = made(size_max=2)
    for question in (b"a", b"b", b"c"):
        cache.put(question, question.decode(), holds_s=10)
    assert [cache.get(each) for each in (b"a", b"b", b"c")] == [None, "b", "c"]
    none, _ = made(size_max=0)
    none.put(b"a", "a", holds_s=10)
    assert len(none) == 0


def test_some_or_all_are_forgotten_and_no_question_is_kept() -> None:
    cache, _ = made()
    cache.put(b"secret", "ada", holds_s=10)
    cache.put(b"other", "bob", holds_s=10)
    assert b"secret" not in repr(vars(cache)).encode()
    cache.drop(lambda answer: answer == "ada")
    assert (cache.get(b"secret"), cache.get(b"other")) == (None, "bob")
    cache.clear()
    assert len(cache) == 0
