"""TurnBudget: those with work left take turns, and all of them leave room for everybody else."""

from __future__ import annotations

import random

from perdure.broker.runtime.turn_budget import (
    BEGUN_MAX,
    DELIVERIES_MAX,
    FEW,
    FEWEST,
    GONE_MAX,
    LEARNT_US,
    LEFTOVER_US,
    NO_LIMIT,
    REST_MAX_US,
    REST_MIN_US,
    SLICE,
    SLICE_MIN,
    SLICES_MAX,
    STEPS_MAX,
    TURN_US,
    UNITS_FIRST,
    WIDE,
    Allowance,
    Beginning,
    FanOut,
    TurnBudget,
)
from tests.support.clock import VirtualClock
from tests.support.scheduler import VirtualLoop, VirtualScheduler


class Hall:
    """A queue on a loop whose turns are counted."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.loop = VirtualLoop(self.clock)
        self.scheduler = VirtualScheduler(self.loop, random.Random(0))
        self.shifts = TurnBudget(self.scheduler, self.clock)
        self.done: list[str] = []

    def next_turn(self) -> None:
        """Run what is ready now and nothing that it causes."""
        for _ in range(len(self.loop._ready)):
            self.loop._ready.popleft()()


class Busy:
    def __init__(
        self, hall: Hall, name: str, slices: int, *, cost_us: int = 0, is_new: bool = False
    ) -> None:
        self.hall = hall
        self.name = name
        self.left = slices
        self.cost_us = cost_us
        self.is_closed = False
        if is_new:
            hall.shifts.add_newcomer(self)
        else:
            hall.shifts.add(self)

    def work_on(self) -> bool:
        self.hall.done.append(self.name)
        self.hall.clock.advance_us(self.cost_us)
        self.left -= 1
        return self.left > 0


def test_who_is_closed_keeps_nobody_waiting() -> None:
    """Each turn has time for one slice; of clients that are gone only so many leave in it."""
    hall = Hall()
    gone = [Busy(hall, "gone", 1, is_new=number % 2 == 0) for number in range(GONE_MAX)]
    Busy(hall, "new", 1, cost_us=LEFTOVER_US, is_new=True)
    Busy(hall, "here", 1, cost_us=LEFTOVER_US)
    for worker in gone:
        worker.is_closed = True
    hall.next_turn()
    assert hall.done == ["new", "here"]


def test_of_who_is_closed_so_many_leave_in_a_turn() -> None:
    hall = Hall()
    gone = [Busy(hall, "gone", 1) for _ in range(3 * GONE_MAX)]
    Busy(hall, "here", 1)
    for worker in gone:
        worker.is_closed = True
    gone[GONE_MAX].cost_us = LEFTOVER_US  # the first that is not forgotten without a slice
    hall.next_turn()
    assert hall.done == ["gone"]
    hall.next_turn()
    hall.next_turn()
    assert "here" in hall.done


def test_so_many_clients_begin_in_a_turn() -> None:
    shifts = Hall().shifts
    for turn in (0, 1):
        begins = [shifts.may_begin(turn) for _ in range(BEGUN_MAX + 2)]
        assert begins == [True] * BEGUN_MAX + [False] * 2


def test_it_is_crowded_with_so_many_newcomers() -> None:
    hall = Hall()
    Busy(hall, "A", 1, is_new=True)
    Busy(hall, "B", 1, is_new=True)
    Busy(hall, "c", 1)
    crowded = []
    for most in (0, 3, 2, 1):
        hall.shifts.newcomers_max = most
        crowded.append(hall.shifts.is_crowded)
    assert crowded == [False, False, True, True]
    hall.loop.run_ready()
    assert not hall.shifts.is_crowded


def test_workers_take_turns() -> None:
    hall = Hall()
    Busy(hall, "a", 3)
    Busy(hall, "b", 1)
    Busy(hall, "c", 2)
    assert hall.shifts.is_busy
    hall.loop.run_ready()
    assert hall.done == ["a", "b", "c", "a", "c", "a"]
    assert not hall.shifts.is_busy


def test_a_turn_has_so_much_time_for_all_of_them() -> None:
    hall = Hall()
    for name in "abc":
        Busy(hall, name, 100, cost_us=LEFTOVER_US // 4)
    hall.next_turn()
    assert hall.done == ["a", "b", "c", "a"]
    hall.next_turn()
    assert hall.done[4:] == ["b", "c", "a", "b"]


def test_some_newcomers_begin_in_a_turn_however_many_wait_and_others_have_theirs() -> None:
    hall = Hall()
    for number in range(100):
        Busy(hall, f"w{number}", 1)
        Busy(hall, f"n{number}", 1, is_new=True)
    hall.shifts.taken = hall.shifts.allowance.messages = 1  # so one worker a turn
    hall.next_turn()
    assert hall.done == [*(f"n{number}" for number in range(BEGUN_MAX)), "w0"]


def test_newcomers_leave_a_slice_for_others() -> None:
    hall = Hall()
    for number in range(BEGUN_MAX):
        Busy(hall, f"n{number}", 1, is_new=True, cost_us=LEFTOVER_US // 4)
        Busy(hall, f"w{number}", 1, cost_us=LEFTOVER_US // 4)
    hall.next_turn()
    assert hall.done == ["n0", "n1", "n2", "n3", "w0"]


def test_who_waits_has_a_slice_also_when_all_is_spent() -> None:
    """What is spent may be handed out with what it sends next only: the loop went in circles."""
    hall = Hall()
    Busy(hall, "a", 3)
    hall.shifts.taken = hall.shifts.allowance.messages = 1
    assert hall.shifts.is_spent
    hall.next_turn()
    assert hall.done == ["a"]


def test_a_turn_has_so_many_slices_whatever_the_clock_says() -> None:
    hall = Hall()
    Busy(hall, "a", 10 * SLICES_MAX)
    hall.next_turn()
    assert len(hall.done) == SLICES_MAX


def test_long_work_goes_on_in_steps_and_no_owner_has_two_of_them_before_another_has_one() -> None:
    hall = Hall()

    async def work(name: str) -> None:
        for _ in range(2):
            await hall.shifts.step(name[0])
            hall.done.append(name)

    names = ["a1", "a2", "a3", "b", "c", "d", "e"]
    for name in names:
        hall.scheduler.spawn(work(name), name=name)
    hall.loop.run_ready()
    assert sorted(hall.done) == sorted(names * 2)
    assert sorted(hall.done[:STEPS_MAX]) == ["a1", "b", "c", "d"]
    assert hall.done[STEPS_MAX] == "e"
    assert not hall.shifts.is_busy


def test_who_is_gone_takes_no_steps_from_others() -> None:
    hall = Hall()
    gone = [f"gone{number}" for number in range(50)]

    async def work(name: str) -> None:
        await hall.shifts.step(name)
        hall.done.append(name)

    for name in (*gone, "here"):
        hall.scheduler.spawn(work(name), name=name)
    hall.next_turn()  # all wait now
    for name in (*gone, "nobody"):
        hall.shifts.release(name)
    hall.next_turn()
    hall.next_turn()
    assert sorted(hall.done) == sorted([*gone, "here"])


def test_a_turn_causes_so_many_deliveries() -> None:
    hall = Hall()

    class Loud(Busy):
        def work_on(self) -> bool:
            hall.shifts.will_cause(DELIVERIES_MAX // 2, 1)
            return super().work_on()

    Loud(hall, "a", 3)
    Loud(hall, "b", 3)
    hall.next_turn()
    assert hall.done == ["a", "b"]
    assert hall.shifts.is_full(1)
    assert not hall.shifts.is_full(2)
    hall.loop.run_ready()
    assert hall.done == ["a", "b"] * 3


def test_who_publishes_to_many_has_short_slices_for_as_long_as_it_does() -> None:
    hall = Hall()
    fan = FanOut()
    assert fan.units() == SLICE
    fan.learn(0, 10, hall.shifts, 1)
    assert (fan.each, fan.units()) == (0, SLICE)
    fan.learn(10 * 40, 10, hall.shifts, 2)
    assert (fan.each, fan.units()) == (40, SLICE // 11)
    assert hall.shifts.deliveries == 40 * 10
    fan.learn(10 * 1_000, 10, hall.shifts, 3)
    assert fan.units() == SLICE_MIN
    fan.learn(10 * WIDE // 4, 10, hall.shifts, 3)
    assert fan.units() == 4
    fan.learn(10 * WIDE * 4, 10, hall.shifts, 3)
    assert fan.units() == 1
    for turn in range(200):
        fan.learn(0, 10, hall.shifts, turn)
    assert (fan.each, fan.units()) == (0, SLICE)


def test_who_publishes_to_many_waits_where_a_turn_has_enough_to_deliver() -> None:
    hall = Hall()
    much, little = FanOut(), FanOut()
    for fan, published in ((much, 100), (little, FEW)):
        fan.learn(0, published, hall.shifts, 1)
        fan.learn(published * 400, published, hall.shifts, 2)
    assert hall.shifts.is_full(2)
    assert much.waits(hall.shifts, 2)
    assert not little.waits(hall.shifts, 2)  # exempt, and not counted either
    assert hall.shifts.deliveries == 100 * 400
    little.learn(FEW * 100_000, FEW, hall.shifts, 2)
    assert little.waits(hall.shifts, 2)  # what few messages cause may be much
    assert hall.shifts.deliveries == 100 * 400 + FEW * 100_000
    assert not much.waits(hall.shifts, 3)


def test_who_begins_to_publish_has_short_slices() -> None:
    """What its messages cause is not known before they are dispatched, at the end of the turn."""
    hall = Hall()
    beginning = Beginning()
    assert beginning.units == UNITS_FIRST
    assert not beginning.had(UNITS_FIRST, hall.shifts, 1)
    assert hall.shifts.is_full(1)
    units = beginning.units
    assert not beginning.had(UNITS_FIRST, hall.shifts, 1)
    assert beginning.units == units  # the same turn has told nothing
    turn = 2
    while not beginning.had(1, hall.shifts, turn):
        assert beginning.units <= SLICE // 2
        turn += 1
    assert turn == 5
    silent = Beginning()
    for _ in range(4):
        assert not silent.had(0, hall.shifts, 7)
    assert silent.had(0, hall.shifts, 7)
    assert not hall.shifts.is_full(7)


def test_who_begins_has_no_longer_slices_while_turns_are_long() -> None:
    hall = Hall()
    beginning = Beginning()
    for turn, each_us in enumerate((TURN_US, TURN_US, 1)):
        beginning.had(UNITS_FIRST, hall.shifts, turn)
        hall.shifts.many(UNITS_FIRST)
        hall.shifts.handed_out(UNITS_FIRST, 0, UNITS_FIRST * each_us)
    assert beginning.units == 2 * UNITS_FIRST
    beginning.had(UNITS_FIRST, hall.shifts, 3)
    assert beginning.units == 4 * UNITS_FIRST


def _learnt(allowance: Allowance, messages: int, each_us: int, *, turns: int = 2) -> int:
    for _ in range(turns):
        allowance.is_used = True
        allowance.took(messages, messages * each_us)
    return allowance.messages


def test_costly_messages_are_few_in_a_turn() -> None:
    allowance = Allowance()
    assert _learnt(allowance, SLICE, 2) == NO_LIMIT
    assert _learnt(allowance, SLICE, 100) == TURN_US // 100
    assert _learnt(allowance, TURN_US // 100, 1_000) == TURN_US // 1_000
    assert _learnt(allowance, 1, 10 * TURN_US) == 1


def test_a_limit_ends_once_messages_are_cheap() -> None:
    allowance = Allowance()
    assert _learnt(allowance, 10, TURN_US) == 1
    seen = [_learnt(allowance, allowance.messages, 2, turns=1) for _ in range(40)]
    assert seen[:4] == [2, 3, 4, 6]
    assert seen[-1] == NO_LIMIT


def test_a_turn_that_was_held_up_once_teaches_nothing() -> None:
    allowance = Allowance()
    assert _learnt(allowance, 10, 10 * TURN_US, turns=1) == NO_LIMIT
    assert _learnt(allowance, SLICE, 4) == NO_LIMIT


def test_turns_of_those_who_send_little_teach_nothing() -> None:
    allowance = Allowance()
    _learnt(allowance, 10, TURN_US)
    for _ in range(10):
        allowance.took(1, 10)
        allowance.took(1, 10 * TURN_US)
    assert allowance.messages == 1
    assert _learnt(allowance, 1, LEARNT_US - 1, turns=1) == 2


def _shared_turns(hall: Hall, *, gathered: int, others: int, work: int) -> int:
    """What is allowed to who has sent 5 messages in turns of 20 ms, beside those of others."""
    for _ in range(2):
        hall.shifts.many(5)
        hall.shifts.gathered = gathered
        hall.shifts.handed_out(5 + others, work, 5 * TURN_US)
    return hall.shifts.allowance.messages


def test_the_time_of_a_turn_is_that_of_whose_messages_cause_the_work() -> None:
    """Cheap messages of others in the same turn do not make the costly ones look cheap."""
    assert _shared_turns(Hall(), gathered=0, others=0, work=0) == 1
    assert _shared_turns(Hall(), gathered=25_000, others=45, work=25_000) == 1
    # Nor are those who send many cheap ones to blame for what others cause.
    assert _shared_turns(Hall(), gathered=0, others=45, work=25_000) == 10
    # But to that what others send takes little: the rest of the time is theirs.
    assert _shared_turns(Hall(), gathered=0, others=45, work=0) == 1
    assert _shared_turns(Hall(), gathered=0, others=1_000, work=0) == 201


def test_a_slow_turn_says_nothing_of_messages_of_which_none_was_written() -> None:
    """All that somebody has sent was refused, and the next turn has one message of another."""
    hall = Hall()
    for sent, written in ((5, 0), (0, 3), (0, 3), (0, 3)):
        if sent:
            hall.shifts.many(sent)
        hall.shifts.handed_out(written, 0, 10 * TURN_US)
    assert not hall.shifts.allowance.is_used
    assert hall.shifts.allowance.messages == NO_LIMIT


def test_what_was_taken_is_enough_until_it_is_handed_out() -> None:
    hall = Hall()
    _learnt(hall.shifts.allowance, 10, TURN_US // 5)
    assert hall.shifts.allowance.messages == 5
    hall.shifts.many(4)
    assert not hall.shifts.is_spent
    hall.shifts.many(1)
    assert hall.shifts.is_spent
    hall.shifts.handed_out(5, 0, 10)
    assert not hall.shifts.is_spent
    for turn in range(40):
        Beginning().had(FEW, hall.shifts, turn)
    assert not hall.shifts.is_spent
    for turn in range(2):
        assert not hall.shifts.is_spent
        Beginning().had(UNITS_FIRST // 2 + 1, hall.shifts, turn)
    assert hall.shifts.is_spent
    assert not hall.shifts.is_full(1)


def _ended(hall: Hall, *, many: int, others: int, elapsed_us: int) -> None:
    """A turn in which one client sent ``many`` messages, or large ones."""
    hall.shifts.many(many)
    hall.shifts.handed_out(many + others, 0, elapsed_us)


def test_a_message_that_takes_long_is_followed_by_a_rest_of_those_who_send_much() -> None:
    hall = Hall()
    _ended(hall, many=1, others=100, elapsed_us=20_000)
    assert hall.shifts.rests()
    Busy(hall, "a", 2)
    Busy(hall, "b", 1)
    hall.loop.run_ready()
    assert hall.done == []
    assert not hall.shifts.is_busy, "the loop may gather meanwhile"
    began_us = hall.clock.monotonic_us()
    assert hall.loop.run_until(lambda: len(hall.done) == 3, limit_us=REST_MAX_US)
    assert hall.done == ["a", "b", "a"]
    assert hall.clock.monotonic_us() - began_us == 18_000  # the others had 20 us each
    assert not hall.shifts.rests()


def test_who_is_alone_does_not_rest() -> None:
    hall = Hall()
    _ended(hall, many=1, others=0, elapsed_us=20_000)
    assert not hall.shifts.rests()


def test_nobody_rests_where_fewer_messages_are_the_remedy_or_none_is_needed() -> None:
    hall = Hall()
    _ended(hall, many=FEWEST + 1, others=100, elapsed_us=20_000)
    assert not hall.shifts.rests()
    _ended(hall, many=1, others=100, elapsed_us=REST_MIN_US)
    assert not hall.shifts.rests()
    hall.shifts.handed_out(100, 0, 20_000)  # nobody sent much
    assert not hall.shifts.rests()


def test_a_rest_has_an_end_and_steps_of_long_packets_have_none() -> None:
    hall = Hall()
    _ended(hall, many=1, others=1_000, elapsed_us=10_000_000)
    steps = []

    async def long_work() -> None:
        for step in range(3):
            await hall.shifts.step("s")
            steps.append(step)

    hall.scheduler.spawn(long_work(), name="long")
    Busy(hall, "a", 1)
    began_us = hall.clock.monotonic_us()
    assert hall.loop.run_until(lambda: bool(hall.done), limit_us=2 * REST_MAX_US)
    assert steps == [0, 1, 2]
    assert hall.clock.monotonic_us() - began_us <= REST_MAX_US
