"""Turns, rests and commits in any order: whoever waits is answered, once and in order."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.broker.commit.committer import Committer
from perdure.broker.commit.pipeline import MANY_SESSIONS, CommitPipeline
from perdure.broker.commit.senders import LONG_US, SENT_AT_ONCE, Flushed
from perdure.broker.commit.spacing import LINGER_US_MAX, LINGER_US_MIN
from perdure.broker.commit.waiters import LEVEL_FSYNC, LEVEL_MEMORY, LEVEL_OS
from perdure.broker.dispatch.dispatcher import Dispatcher
from perdure.broker.dispatch.items import Barrier
from perdure.broker.dispatch.router import Router
from perdure.clock import SteadyClock
from perdure.errors import StorageError, StorageFull, StorageUnavailable
from perdure.model import Message
from perdure.observe.metrics import Metrics
from perdure.storage.capabilities import Capabilities
from tests.support.clock import VirtualClock
from tests.support.scheduler import VirtualTimer
from tests.support.storage import FaultyDatabase

if TYPE_CHECKING:
    from perdure.storage.contract import Database

INTERVAL_US = 2_000
MESSAGES_MAX = 4
SYNC_US = 700


class Gate:
    """A gate that is only looked at."""

    def __init__(self) -> None:
        self.is_open = False

    def open(self) -> None:
        self.is_open = True

    def __await__(self) -> Generator[Gate, None, None]:
        while not self.is_open:
            yield self


class ChosenScheduler:
    """A loop and a commit thread whose next step somebody chooses.

    Attributes:
        choices: what rests do: 0 = they stand still until their time is over, 1 = the same, but a
            sync that is under way ends them, 2 = the loop goes on. Then they stand still.
        rests_us: the rests that were asked for.
        polls: whether a sync has finished whenever somebody asks in a turn.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.ready: deque[Callable[[], None]] = deque()
        self.timers: list[VirtualTimer] = []
        self.works: deque[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = (
            deque()
        )
        self.choices: deque[int] = deque()
        self.rests_us: list[int] = []
        self.turns_ended = 0
        self.polls = True
        self._count = 0
        self._on_loop = False

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.ready.append(callback)

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> VirtualTimer:
        self._count += 1
        timer = VirtualTimer(self.clock.monotonic_us() + delay_us, self._count, callback)
        heapq.heappush(self.timers, timer)
        return timer

    def linger(self, delay_us: int, callback: Callable[[], None]) -> bool:
        assert self._on_loop, "a rest within a rest, or in what somebody else does"
        assert LINGER_US_MIN <= delay_us <= LINGER_US_MAX
        self.rests_us.append(delay_us)
        choice = self.choices.popleft() if self.choices else 0
        if choice == 2:
            self.call_later(delay_us, callback)
            return False
        if choice == 1 and self.works:
            self.clock.advance_us(delay_us // 2)
            self._on_loop = False
            self.finish_work()
            self._on_loop = True
            return True
        self.clock.advance_us(delay_us)
        self.call_soon(callback)
        return False

    def run_blocking(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        self.works.append((work, done))

    def turn_ended(self) -> None:
        self.turns_ended += 1

    def poll_finished(self) -> bool:
        assert self._on_loop, "in what somebody else does"
        if not self.polls or not self.works:
            return False
        self._on_loop = False
        self.finish_work()
        self._on_loop = True
        return True

    def gate(self) -> Gate:
        return Gate()

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        raise AssertionError("nothing here is a task")

    def finish_work(self) -> None:
        """The commit thread has done something."""
        work, done = self.works.popleft()
        failure: BaseException | None = None
        try:
            work()
        except StorageError as error:
            failure = error
        done(failure)

    def poll(self) -> None:
        """One turn of the loop: what is ready or due."""
        now_us = self.clock.monotonic_us()
        while self.timers and self.timers[0].at_us <= now_us:
            timer = heapq.heappop(self.timers)
            if not timer.is_cancelled:
                self.ready.append(timer.callback)
        for _ in range(len(self.ready)):
            callback = self.ready.popleft()
            self._on_loop = True
            callback()
            self._on_loop = False

    def drain(self) -> None:
        """Everything that was asked for happens."""
        for _ in range(10_000):
            if self.ready:
                self.poll()
            elif self.works:
                self.clock.advance_us(SYNC_US)
                self.finish_work()
            elif self.timers:
                self.clock.advance_us(max(0, self.timers[0].at_us - self.clock.monotonic_us()))
                self.poll()
            else:
                return
        raise AssertionError("it never ends")


class Waiting:
    """A waiter that writes down what became of it."""

    def __init__(self, number: int, desk: Desk) -> None:
        self.number = number
        self._desk = desk

    def committed(self) -> None:
        self._desk.answered.append(self.number)
        self._desk.committed.append(self.number)

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        self._desk.answered.append(self.number)

    def broke(self, error: Exception) -> None:
        raise error


class Written(Flushed):
    """A connection that writes down after how many answers it was written to."""

    def __init__(self, desk: Desk, took_us: int = 0) -> None:
        self._desk = desk
        self._took_us = took_us

    def flush_turn(self) -> None:
        self._desk.clock.advance_us(self._took_us)
        self._desk.written.append(len(self._desk.answered))


class Server:
    """What is asked of a store that is in a server."""

    is_full = False

    def __init__(self) -> None:
        self.syncs: list[Callable[[BaseException | None], None]] = []

    def begin_sync(self, done: Callable[[BaseException | None], None]) -> None:
        self.syncs.append(done)


class Served:
    """A database in a server, as far as a committer sees it."""

    def __init__(self, store: FaultyDatabase, server: Server) -> None:
        self.capabilities = Capabilities(loop_sync=server, keeps_written=False)
        self.last_offset = store.last_offset
        self.submit = store.submit


class Desk:
    """A turn and a committer, and who waits for them."""

    def __init__(self, *, interval_us: int = INTERVAL_US, server: Server | None = None) -> None:
        self.clock = VirtualClock()
        self.clock.advance_us(10_000_000)
        self.store = FaultyDatabase()
        self.scheduler = ChosenScheduler(self.clock)
        self.committer = Committer(
            self.store if server is None else cast("Database", Served(self.store, server)),
            self.scheduler,
            self.clock,
            Metrics(),
            interval_us=interval_us,
            messages_max=MESSAGES_MAX,
        )
        self.pipeline = CommitPipeline(
            self.scheduler,
            self.committer,
            SteadyClock(self.clock),
            Metrics(),
            commit_queue_max=1_000,
        )
        self.pipeline.dispatcher = Dispatcher(Router(), Metrics(), offset=0, gate_qos2=True)
        self.asked: list[int] = []
        self.answered: list[int] = []
        self.written: list[int] = []
        self.committed: list[int] = []
        self.gates: list[Gate] = []
        self.levels: dict[int, int] = {}

    def pace(self, *, spaced: bool, rests: bool) -> None:
        """As if the pace had learned it; it judges nothing by itself so soon."""
        self.committer.pacer.written(0, 0, self.clock.monotonic_us())
        self.committer.pacer.spaced = spaced
        self.committer.pacer.lingers = rests

    def publish(self, level: int = LEVEL_FSYNC, qos: int = 1) -> None:
        if not self.committer.writable:
            return
        message = Message("t", b"", qos)
        self.committer.batch.append(message)
        self._wait(level)
        self.pipeline.dispatch(message)

    def wait(self) -> None:
        """For state that is in the batch, or nothing at all."""
        self._wait(LEVEL_FSYNC)
        self.pipeline.schedule()

    def _wait(self, level: int) -> None:
        number = len(self.asked)
        self.asked.append(number)
        self.levels[number] = level
        self.committer.wait(Waiting(number, self), level)

    def sync_now(self) -> None:
        if not self.committer.writable:
            return
        work = self.committer.sync_now()
        try:
            gate = work.send(None)
        except (StopIteration, StorageError):
            return
        assert isinstance(gate, Gate)
        self.gates.append(gate)
        work.close()

    def flush_many(self, count: int) -> None:
        """Connections have something to be sent at the end of the turn: all the same message."""
        assert self.pipeline.dispatcher is not None
        self.pipeline.dispatcher.widest = count
        for _ in range(count):
            self.pipeline.flush_later(Written(self))

    def flush_long(self, count: int) -> None:
        """The same, each something of its own; it takes long."""
        for _ in range(count):
            self.pipeline.flush_later(Written(self, LONG_US // SENT_AT_ONCE + 1))

    def recover(self) -> None:
        self.store.heal()
        if not self.committer.writable:
            self.committer.recovered()

    def check(self) -> None:
        """Everybody was answered, once, and in order at each level."""
        assert sorted(self.answered) == self.asked
        for level in (LEVEL_FSYNC, LEVEL_OS, LEVEL_MEMORY):
            numbers = [number for number in self.committed if self.levels[number] == level]
            assert numbers == sorted(numbers)
        assert all(gate.is_open for gate in self.gates)


STEPS = {
    "publish": lambda desk: desk.publish(),
    "publish twice": lambda desk: (desk.publish(), desk.publish()),
    "publish os": lambda desk: desk.publish(LEVEL_OS),
    "publish memory": lambda desk: desk.publish(LEVEL_MEMORY),
    "publish QoS 2": lambda desk: desk.publish(qos=2),
    "wait": lambda desk: desk.wait(),
    "sync now": lambda desk: desk.sync_now(),
    "run": lambda desk: desk.pipeline.run(),
    "poll": lambda desk: desk.scheduler.poll(),
    "time": lambda desk: desk.clock.advance_us(300),
    "interval": lambda desk: desk.clock.advance_us(INTERVAL_US),
    "sync": lambda desk: desk.scheduler.works and desk.scheduler.finish_work(),
    "spaced": lambda desk: desk.pace(spaced=True, rests=False),
    "rests": lambda desk: desk.pace(spaced=True, rests=True),
    "close": lambda desk: desk.pace(spaced=False, rests=True),
    "flush many": lambda desk: desk.flush_many(MANY_SESSIONS),
    "flush long": lambda desk: desk.flush_long(3 * SENT_AT_ONCE),
    "polls": lambda desk: setattr(desk.scheduler, "polls", True),
    "no polls": lambda desk: setattr(desk.scheduler, "polls", False),
    "write fails": lambda desk: setattr(desk.store, "write_error", StorageFull("full")),
    "sync fails": lambda desk: setattr(desk.store, "sync_error", StorageUnavailable("broken")),
    "lost": lambda desk: desk.committer.lost(StorageUnavailable("gone")),
    "recover": lambda desk: desk.recover(),
}

USUAL = ("publish", "poll", "poll", "sync", "time")
"""More of what happens all the time, so that something else meets all states of it."""


@settings(max_examples=400)
@given(
    st.lists(st.sampled_from([*sorted(STEPS), *USUAL * 4]), max_size=60),
    st.lists(st.integers(0, 2), max_size=40),
)
def test_no_order_of_events_forgets_anybody(steps: list[str], rests: list[int]) -> None:
    desk = Desk()
    desk.pace(spaced=True, rests=True)
    desk.scheduler.choices.extend(rests)
    for step in steps:
        STEPS[step](desk)
    desk.scheduler.drain()
    assert desk.committer.batch.is_empty()
    # What was written before the store failed is synced, or not, when it is there again.
    desk.recover()
    desk.pipeline.schedule()
    desk.scheduler.drain()
    desk.check()
    assert desk.committer.is_idle()


def resting_desk(*choices: int) -> Desk:
    """A desk in the middle of an interval: a message was written, and its sync runs."""
    desk = Desk()
    desk.pace(spaced=True, rests=True)
    desk.scheduler.choices.append(2)
    desk.publish()
    desk.scheduler.poll()
    assert desk.scheduler.works
    desk.scheduler.choices.extend(choices)
    return desk


def test_a_sync_in_a_rest_is_answered_before_the_rest_is_over() -> None:
    desk = resting_desk(1)
    desk.clock.advance_us(200)
    desk.publish()
    begun_us = desk.clock.monotonic_us()
    desk.scheduler.poll()
    assert desk.answered == [0]
    assert desk.scheduler.rests_us[-2:] == [1_800, 900]  # and the rest is gone on with
    assert desk.clock.monotonic_us() - begun_us == 1_800
    assert desk.store.write_count == 1
    desk.scheduler.poll()  # nothing in this turn waits for a timer
    assert desk.store.write_count == 2
    assert desk.scheduler.works


def test_a_turn_has_ended_before_the_loop_rests() -> None:
    """What its process does then is done while a sync runs, not when it has."""
    desk = resting_desk(1)
    ended_when_resting: list[int] = []
    rest = desk.scheduler.linger

    def linger(delay_us: int, callback: Callable[[], None]) -> bool:
        ended_when_resting.append(desk.scheduler.turns_ended)
        return rest(delay_us, callback)

    before = desk.scheduler.turns_ended
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk.scheduler, "linger", linger)
        desk.publish()
        desk.scheduler.poll()
    assert ended_when_resting
    assert set(ended_when_resting) == {before + 1}


def test_a_sync_that_fails_in_a_rest_leaves_nobody_waiting() -> None:
    """The open batch had nothing but this rest to wake it."""
    desk = resting_desk(1)
    desk.publish()
    desk.store.sync_error = StorageUnavailable("broken")
    desk.scheduler.poll()
    assert not desk.committer.writable
    desk.scheduler.drain()
    desk.check()


def test_a_long_rest_is_taken_in_parts() -> None:
    """All else on the loop waits while it rests."""
    desk = Desk(interval_us=4 * LINGER_US_MAX)
    desk.pace(spaced=True, rests=True)
    desk.publish()
    desk.scheduler.poll()
    written_us = desk.clock.monotonic_us() - LINGER_US_MAX
    desk.publish()
    desk.scheduler.drain()
    desk.check()
    assert desk.scheduler.rests_us[:4] == [LINGER_US_MAX] * 4
    assert desk.store.write_count == 2
    assert desk.clock.monotonic_us() >= written_us + 4 * LINGER_US_MAX


def test_who_calls_for_a_turn_himself_is_not_held_up() -> None:
    """As what goes through all sessions does, a turn for each few of them."""
    desk = resting_desk()
    count = len(desk.scheduler.rests_us)
    for _ in range(10):
        desk.publish()
        desk.pipeline.run()
    assert len(desk.scheduler.rests_us) == count
    assert desk.store.write_count == 11


def test_a_server_answers_by_a_loop_that_does_not_stand_still() -> None:
    server = Server()
    desk = Desk(server=server)
    desk.pace(spaced=True, rests=True)
    desk.publish()
    desk.scheduler.poll()
    desk.publish()
    desk.scheduler.poll()  # gathers
    server.syncs.pop()(None)
    assert desk.answered == [0]
    desk.scheduler.drain()
    assert desk.store.write_count == 2
    server.syncs.pop()(None)
    assert desk.answered == [0, 1]
    assert not desk.scheduler.rests_us


@pytest.mark.parametrize(("spaced", "rests"), [(False, True), (True, False)])
def test_there_is_no_rest_where_it_does_not_pay(spaced: bool, rests: bool) -> None:
    desk = Desk()
    desk.pace(spaced=spaced, rests=rests)
    for _ in range(20):
        desk.publish()
        desk.scheduler.poll()
        desk.clock.advance_us(100)
    desk.scheduler.drain()
    desk.check()
    assert not desk.scheduler.rests_us


@pytest.mark.parametrize("count", [MANY_SESSIONS - 1, MANY_SESSIONS])
def test_who_waits_for_a_sync_does_not_wait_for_many_others_to_be_sent_to(count: int) -> None:
    desk = Desk()
    desk.pace(spaced=False, rests=False)
    desk.publish()
    desk.flush_many(count)
    desk.scheduler.poll()
    assert desk.written == [int(count == MANY_SESSIONS)] * count
    desk.scheduler.drain()
    desk.check()


def test_who_waits_for_a_sync_does_not_wait_until_all_others_were_sent_to() -> None:
    desk = Desk()
    desk.pace(spaced=False, rests=False)
    desk.publish()
    desk.flush_long(2 * SENT_AT_ONCE)
    desk.scheduler.poll()
    assert desk.written == [0] * SENT_AT_ONCE + [1] * SENT_AT_ONCE
    desk.scheduler.drain()
    desk.check()


def test_who_calls_for_a_turn_himself_hears_nothing_in_it() -> None:
    desk = Desk()
    desk.publish()
    desk.flush_long(2 * SENT_AT_ONCE)
    desk.pipeline.run()
    assert desk.written == [0] * 2 * SENT_AT_ONCE
    desk.scheduler.drain()
    desk.check()


@pytest.mark.parametrize("spaced", [False, True])
@pytest.mark.parametrize("took_us", [LONG_US - 1, LONG_US])
def test_who_waits_for_a_sync_does_not_wait_for_what_follows_a_long_turn(
    took_us: int, spaced: bool
) -> None:
    desk = Desk()
    desk.pace(spaced=spaced, rests=False)
    gate = Gate()
    gate.open = lambda: desk.clock.advance_us(took_us)  # type: ignore[method-assign]
    desk.publish()
    desk.sync_now()
    desk.pipeline.dispatch_placed(Barrier(gate))
    desk.pipeline.flush_later(Written(desk))
    desk.scheduler.poll()
    assert desk.written == [int(took_us == LONG_US)]
    desk.scheduler.drain()
    desk.check()


def test_many_who_are_sent_something_of_their_own_wait_for_no_sync() -> None:
    """They may be the publishers whom the last sync has answered."""
    desk = Desk()
    desk.pace(spaced=False, rests=False)
    desk.publish()
    desk.flush_many(MANY_SESSIONS)
    assert desk.pipeline.dispatcher is not None
    desk.pipeline.dispatcher.widest = 1
    desk.scheduler.poll()
    assert desk.written == [0] * MANY_SESSIONS


def test_a_turn_within_a_turn_answers_nobody() -> None:
    """Who asks for it is in the middle of something."""
    desk = Desk()
    desk.pace(spaced=False, rests=False)
    desk.publish()
    desk.flush_many(MANY_SESSIONS)
    desk.pipeline.run()
    assert desk.written == [0] * MANY_SESSIONS
    assert desk.scheduler.works


def test_a_sync_begins_before_its_messages_are_dispatched() -> None:
    desk = Desk()
    desk.pace(spaced=False, rests=False)
    begun: list[int] = []
    gate = Gate()
    gate.open = lambda: begun.append(len(desk.scheduler.works))  # type: ignore[method-assign]
    desk.publish()
    desk.pipeline.dispatch_placed(Barrier(gate))
    desk.scheduler.poll()
    assert begun == [1]
