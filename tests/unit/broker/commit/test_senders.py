"""Who is written to, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.broker.commit.senders import LONG_US, SENT_AT_ONCE, Flushed, Senders
from tests.support.clock import VirtualClock

SLOW_US = -(-LONG_US // SENT_AT_ONCE)


class Polled:
    """A scheduler that is only asked what was finished.

    Attributes:
        finished: what happens then; nothing = nothing was.
        count: how often it was asked.
    """

    def __init__(self) -> None:
        self.finished: list[Callable[[], None]] = []
        self.count = 0

    def poll_finished(self) -> bool:
        self.count += 1
        if not self.finished:
            return False
        self.finished.pop(0)()
        return True


class Desk:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.scheduler: Any = Polled()
        self.senders = Senders(self.scheduler, self.clock)
        self.written: list[int] = []

    def add(self, *numbers: int, took_us: int = 0, then: Callable[[], None] | None = None) -> None:
        for number in numbers:
            self.senders.add(_Sender(self, number, took_us, then))


class _Sender(Flushed):
    def __init__(
        self, desk: Desk, number: int, took_us: int, then: Callable[[], None] | None
    ) -> None:
        self._desk, self._number, self._took_us, self._then = desk, number, took_us, then

    def flush_turn(self) -> None:
        self._desk.clock.advance_us(self._took_us)
        self._desk.written.append(self._number)
        if self._then is not None:
            self._then()


def test_whom_an_answer_is_for_comes_first() -> None:
    desk = Desk()
    desk.add(1, 2)
    desk.scheduler.finished.append(lambda: desk.add(3))
    desk.senders.hear()
    desk.senders.send(hears=True)
    assert desk.written == [3, 1, 2]


@pytest.mark.parametrize("took_us", [SLOW_US - 1, SLOW_US])
def test_it_is_asked_again_where_writing_takes_long(took_us: int) -> None:
    desk = Desk()
    many = list(range(2 * SENT_AT_ONCE))
    desk.add(*many, took_us=took_us)
    desk.scheduler.finished.append(lambda: desk.add(-1))
    desk.senders.send(hears=True)
    first = SENT_AT_ONCE if took_us == SLOW_US else len(many)
    late = [-1] if took_us == SLOW_US else []
    assert desk.written == many[:first] + late + many[first:]


def test_nothing_is_asked_behind_the_last_one() -> None:
    desk = Desk()
    desk.add(*range(SENT_AT_ONCE), took_us=SLOW_US)
    desk.senders.send(hears=True)
    assert not desk.scheduler.count


def test_who_gathers_more_while_it_is_written_to_waits_for_the_next_turn() -> None:
    desk = Desk()
    desk.add(1, then=lambda: desk.add(1))
    desk.add(*range(2, 3 * SENT_AT_ONCE), took_us=SLOW_US)
    desk.senders.send(hears=True)
    assert desk.written.count(1) == 1
    assert desk.scheduler.count
    desk.senders.send(hears=True)
    assert desk.written.count(1) == 2


def test_what_fails_meanwhile_leaves_the_others_for_the_next_turn() -> None:
    desk = Desk()

    def fails() -> None:
        raise KeyboardInterrupt

    many = list(range(3 * SENT_AT_ONCE))
    desk.add(*many, took_us=SLOW_US)
    desk.scheduler.finished.append(fails)
    with pytest.raises(KeyboardInterrupt):
        desk.senders.send(hears=True)
    desk.senders.send(hears=True)
    assert desk.written == many


@given(
    counts=st.lists(st.integers(0, 4), max_size=4 * SENT_AT_ONCE),
    took_us=st.sampled_from([0, SLOW_US, LONG_US]),
    answers=st.lists(st.integers(0, 3), max_size=4),
    hears=st.booleans(),
)
def test_everybody_is_written_to_as_often_as_it_was_added(
    counts: list[int], took_us: int, answers: list[int], hears: bool
) -> None:
    """Each gathers again while it is written to, so often; answers bring others in between."""
    desk = Desk()
    left = dict(enumerate(counts))

    def again(number: int) -> Callable[[], None]:
        def gathers() -> None:
            if left[number]:
                left[number] -= 1
                desk.add(number, took_us=took_us, then=again(number))

        return gathers

    for number in left:
        desk.add(number, took_us=took_us, then=again(number))
    for answer in answers:
        desk.scheduler.finished.append(lambda answer=answer: desk.add(*[-1] * answer))
    for _ in range(6):
        before = len(desk.written)
        desk.senders.send(hears=hears)
        if not hears:
            turn = desk.written[before:]
            assert len(turn) == len(set(turn))
    asked = len(answers) - len(desk.scheduler.finished)
    assert desk.written.count(-1) == sum(answers[:asked])
    assert [desk.written.count(number) for number in left] == [1 + count for count in counts]
