"""When a cursor that moved is written; what comes of it is in ``test_committer.py``."""

from __future__ import annotations

import random

from perdure.broker.commit.committer import Committer
from perdure.broker.commit.cursors import (
    CURSOR_DELAY_US,
    CURSOR_STEP_US,
    MESSAGES_PER_CURSOR,
    POSITION_DELAY_US,
    POSITIONS_PER_BATCH,
    TRIM_INTERVAL_US,
    CursorWriter,
)
from perdure.broker.dispatch.router import GroupSubscriber, Subscriber
from perdure.model import Message, SessionRecord
from perdure.observe.metrics import Metrics
from perdure.storage.batch import Batch
from tests.support.clock import VirtualClock
from tests.support.scheduler import VirtualLoop, VirtualScheduler
from tests.support.storage import FaultyDatabase


class Session(Subscriber):
    """One that says when its cursor is put into a batch."""

    def __init__(self, name: str, put: list[str]) -> None:
        super().__init__(
            SessionRecord(name, 1, 0, 0, connected=True, changed_at_us=0), durable=True
        )
        self._put = put

    def put_cursor(self, batch: Batch) -> None:
        self._put.append(self.client_id)

    def trim(self, batch: Batch) -> None:
        self._put.append(f"trim {self.client_id}")
        batch.trim_inbox(self.client_id, 1, epoch=1)


class Desk:
    """A writer of cursors and its batch."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.loop = VirtualLoop(self.clock)
        scheduler = VirtualScheduler(self.loop, random.Random(1), blocking_us=(1, 1))
        self.committer = Committer(
            FaultyDatabase(), scheduler, self.clock, Metrics(), interval_us=0, messages_max=100
        )
        self.turns = 0
        self.cursors = CursorWriter(scheduler, self.committer, self._schedule)
        self.put: list[str] = []

    def _schedule(self) -> None:
        self.turns += 1

    def session(self, name: str) -> Session:
        return Session(name, self.put)

    def moved(self, *names: str) -> list[Session]:
        self.cursors.arrived_us = self.clock.monotonic_us()
        sessions = [self.session(name) for name in names]
        for session in sessions:
            self.cursors.moved(session)
        return sessions


def test_the_oldest_join_a_batch_that_is_written_anyway() -> None:
    desk = Desk()
    sessions = desk.moved("a", "b", "c", "d")
    desk.cursors.join_batch(0)
    assert desk.put == []  # there is nothing in it
    desk.committer.batch.append(Message("t", b"", 1))
    desk.cursors.join_batch(MESSAGES_PER_CURSOR)
    assert desk.put == ["a", "b"]
    assert [session.cursor_waits for session in sessions] == [False, False, True, True]


def test_what_nothing_waits_for_is_written_when_its_time_has_come() -> None:
    desk = Desk()
    desk.moved("a")
    desk.loop.run_for(CURSOR_DELAY_US // 2)
    desk.moved("b")
    desk.loop.run_for(CURSOR_DELAY_US // 2 + CURSOR_STEP_US)
    assert (desk.put, desk.turns) == (["a"], 1)
    desk.loop.run_for(CURSOR_DELAY_US)
    assert (desk.put, desk.turns) == (["a", "b"], 2)


def test_what_is_forgotten_or_written_now_does_not_come_again() -> None:
    desk = Desk()
    gone, now, late = desk.moved("gone", "now", "late")
    desk.cursors.moved_soon(gone)
    desk.cursors.forget(gone)
    desk.cursors.put_now(now)
    assert desk.put == ["now"]
    desk.loop.run_for(2 * CURSOR_DELAY_US)
    assert desk.put == ["now", "late"]
    assert not late.cursor_waits


class Group(GroupSubscriber):
    """A group that writes down when its position is put."""

    def __init__(self, name: str, put: list[str]) -> None:
        super().__init__(name, "t", "")
        self._put = put

    def put(self, batch: Batch) -> None:
        self._put.append(self.key)


def test_members_are_written_with_their_groups() -> None:
    desk = Desk()
    member, group = desk.session("member"), Group("g", desk.put)
    member.groups["g"] = group
    desk.cursors.moved(member)
    desk.cursors.group_moved(group)
    desk.loop.run_for(2 * POSITION_DELAY_US)
    assert (desk.put, desk.turns) == ([], 1)
    assert desk.cursors.positions_due
    desk.cursors.join_batch(0)
    assert desk.put == ["member", "g"]
    assert not desk.cursors.positions_due


def test_a_batch_takes_some_of_the_positions_that_moved_and_all_that_it_needs() -> None:
    desk = Desk()
    groups = [Group(f"g{number}", desk.put) for number in range(POSITIONS_PER_BATCH + 3)]
    for group in groups:
        desk.cursors.group_moved(group)
    for group in reversed(groups[-2:]):
        desk.cursors.group_moved(group, gives=True)
        desk.cursors.group_moved(group)  # is put once
    desk.committer.batch.append(Message("t", b"", 1))
    desk.cursors.join_batch(1)
    names = [group.key for group in groups]
    assert desk.put == [*reversed(names[-2:]), *names[:POSITIONS_PER_BATCH]]
    # The others do not wait for another batch.
    desk.cursors.positions_due = False
    desk.loop.run_for(2 * POSITION_DELAY_US)
    assert desk.cursors.positions_due
    desk.cursors.join_batch(0)
    assert desk.put[-1] == names[-3]
    assert len(desk.put) == len(groups)


def test_a_private_stream_is_trimmed_at_most_so_often() -> None:
    desk = Desk()
    member, gone = desk.session("member"), desk.session("gone")
    assert desk.cursors.may_trim(member)
    assert not desk.cursors.may_trim(member)
    assert desk.cursors.may_trim(gone)
    desk.cursors.forget(gone)
    desk.loop.run_for(TRIM_INTERVAL_US // 2)
    assert desk.put == []
    desk.loop.run_for(TRIM_INTERVAL_US)
    assert (desk.put, desk.turns) == (["trim member"], 1)
    assert desk.cursors.may_trim(member)
    # Its cursor is written meanwhile: the interval goes on.
    desk.cursors.put_now(member)
    assert not desk.cursors.may_trim(member)


def test_what_may_not_be_trimmed_while_the_store_refuses_is_trimmed_when_it_is_there() -> None:
    desk = Desk()
    desk.cursors.may_trim(desk.session("a"))
    desk.committer.writable = False
    desk.loop.run_for(3 * TRIM_INTERVAL_US)
    assert desk.put == []
    desk.committer.writable = True
    desk.loop.run_for(TRIM_INTERVAL_US)
    assert desk.put == ["trim a"]
