"""Cursors that moved, until they are written: who acknowledged much is written once for all of it.

A cursor that nothing waits for joins a later batch, the oldest first, or is written when its time
has come. Positions of groups and the cursors of their members are written together.

Invariant: what is dirty is in a batch, or a timer is under way that puts it into one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final, final

from perdure.broker.commit.committer import Committer
from perdure.broker.dispatch.router import GroupSubscriber, Subscriber
from perdure.broker.runtime.scheduler import Scheduler

CURSOR_DELAY_US: Final = 500_000
"""A cursor that nothing waits for is written after this time, once for all that was acknowledged
meanwhile. What a kill makes of it is a QoS 1 message that comes again with DUP, never a lost one
or a repeated QoS 2 one."""

MESSAGES_PER_CURSOR: Final = 8
"""A batch takes the oldest cursor along, and one more for so many messages: with little to do
cursors are as fresh as the log, and under load they cost little."""

CURSOR_STEP_US: Final = 10_000
"""How often cursors are looked at whose time has come: many sessions are not written at once."""

POSITION_DELAY_US: Final = 5_000
"""The delay of what joins any earlier batch too: positions of shared groups, the cursors of their
members, which move with them, and of sessions that ended a QoS 2 exchange."""

POSITIONS_PER_BATCH: Final = 256
"""Positions of groups that a batch takes along, the oldest, beside those that it must: one message
may move thousands of groups. Of the others a kill makes a QoS 0 message that is given again."""

TRIM_INTERVAL_US: Final = 100_000
"""A private stream is trimmed at most so often: what is to be deleted has to be looked for, which
costs the same for one row as for many. Nobody reads what the cursor has passed."""


@final
class CursorWriter:
    """Puts moved cursors and positions into batches.

    Args:
        scheduler: for the delays.
        committer: has the open batch.
        schedule: has the turn ended that writes it.

    Attributes:
        arrived_us: monotonic time at which something came from a client last.
    """

    def __init__(
        self, scheduler: Scheduler, committer: Committer, schedule: Callable[[], None]
    ) -> None:
        self._scheduler = scheduler
        self._committer = committer
        self._schedule = schedule
        self.arrived_us: int = 0
        # Cursors that moved, and when they first did; in order: the same events, the same batch.
        self._dirty: dict[Subscriber, int] = {}
        self._dirty_soon: dict[Subscriber, None] = {}
        self._dirty_groups: dict[GroupSubscriber, None] = {}
        # Those of which the open batch has entries.
        self._giving_groups: dict[GroupSubscriber, None] = {}
        # Those whose private streams were trimmed in this interval.
        self._trimmed: dict[Subscriber, None] = {}
        self._trim_timer: bool = False
        self._cursor_timer: bool = False
        self._position_timer: bool = False
        self.positions_due: bool = False
        """Positions of groups are to be written, also by themselves."""

    def moved(self, session: Subscriber) -> None:
        """The cursor of a durable session has moved."""
        if session.groups:
            self.moved_soon(session)
        elif session not in self._dirty:
            session.cursor_waits = True
            self._dirty[session] = self.arrived_us
            if not self._cursor_timer:
                self._cursor_timer = True
                self._scheduler.call_later(CURSOR_DELAY_US, self._cursor_timer_over)

    def moved_soon(self, session: Subscriber) -> None:
        """A cursor has moved whose client should not have to repeat what it did: it ended a QoS 2
        exchange, or moved a group."""
        self._dirty_soon[session] = None
        self._start_position_timer()

    def _start_position_timer(self) -> None:
        if not self._position_timer:
            self._position_timer = True
            self._scheduler.call_later(POSITION_DELAY_US, self._position_timer_over)

    def put_now(self, session: Subscriber) -> None:
        """Add a session's cursor to the open batch: something waits for it."""
        if self._committer.writable:
            self._clean(session)
            session.put_cursor(self._committer.batch)

    def may_trim(self, session: Subscriber) -> bool:
        """Whether the private stream may be trimmed now; if not, ``trim`` is called in a moment."""
        if session in self._trimmed:
            return False
        self._trimmed[session] = None
        if not self._trim_timer:
            self._trim_timer = True
            self._scheduler.call_later(TRIM_INTERVAL_US, self._trim_timer_over)
        return True

    def group_moved(self, group: GroupSubscriber, *, gives: bool = False) -> None:
        """A group's position has moved; it is written like a cursor.

        Args:
            gives: the open batch has something of it, and the position goes with that: either
                counts with the other.
        """
        if gives:
            self._dirty_groups.pop(group, None)
            self._giving_groups[group] = None
        elif group not in self._giving_groups:
            self._dirty_groups[group] = None
        self._start_position_timer()

    def group_heard(self, group: GroupSubscriber) -> None:
        """Another node has written the group's record: what the open batch has of the group stands
        on the one before it, and says so, or it would count."""
        self._dirty_groups.pop(group, None)
        if group in self._giving_groups:
            del self._giving_groups[group]
            group.put(self._committer.batch)

    def forget(self, session: Subscriber) -> None:
        """The cursor was written by somebody else, or does not matter any more."""
        self._clean(session)
        self._trimmed.pop(session, None)

    def _clean(self, session: Subscriber) -> None:
        self._dirty.pop(session, None)
        session.cursor_waits = False
        self._dirty_soon.pop(session, None)

    def join_batch(self, messages: int) -> None:
        """The open batch is about to be written, or ``positions_due``: take along what is due, and
        what costs little.

        Args:
            messages: that are in the batch.
        """
        if self._has_positions:
            self._put_positions()
        committer = self._committer
        if self._dirty and committer.writable and not committer.batch.is_empty():
            self._put_cursors(list(islice(self._dirty, 1 + messages // MESSAGES_PER_CURSOR)))

    @property
    def _has_positions(self) -> bool:
        return bool(self._dirty_soon or self._giving_groups or self._dirty_groups)

    def _put_positions(self) -> None:
        self.positions_due = False
        if not self._committer.writable:
            return
        members = self._dirty_soon
        self._dirty_soon = {}
        batch = self._committer.batch
        for session in members:
            session.put_cursor(batch)
        giving = self._giving_groups
        self._giving_groups = {}
        for group in giving:
            group.put(batch)
        dirty = self._dirty_groups
        for group in list(islice(dirty, POSITIONS_PER_BATCH)):
            del dirty[group]
            group.put(batch)
        if dirty:
            self._start_position_timer()

    def _put_cursors(self, sessions: list[Subscriber]) -> None:
        batch = self._committer.batch
        for session in sessions:
            del self._dirty[session]
            session.cursor_waits = False
            session.put_cursor(batch)

    def _position_timer_over(self) -> None:
        self._position_timer = False
        if self._has_positions:
            if not self._committer.writable:
                self._position_timer = True
                self._scheduler.call_later(POSITION_DELAY_US * 20, self._position_timer_over)
                return
            self.positions_due = True
            self._schedule()

    def _trim_timer_over(self) -> None:
        """Trim what may not be trimmed while the interval went on."""
        self._trim_timer = False
        if not self._committer.writable:
            self._trim_timer = True
            self._scheduler.call_later(TRIM_INTERVAL_US, self._trim_timer_over)
            return
        sessions = self._trimmed
        self._trimmed = {}
        batch = self._committer.batch
        for session in sessions:
            session.trim(batch)
        if not batch.is_empty():
            self._schedule()

    def _cursor_timer_over(self) -> None:
        """Write the cursors that moved long enough ago."""
        self._cursor_timer = False
        dirty = self._dirty
        now_us = self._committer.clock.monotonic_us()
        wait_us = CURSOR_DELAY_US
        if self._committer.writable:
            # Early timers must not come again and again for the last millisecond.
            until_us = now_us + CURSOR_STEP_US - CURSOR_DELAY_US
            ripe: list[Subscriber] = []
            for session, since_us in dirty.items():
                if since_us > until_us:
                    wait_us = since_us - until_us
                    break
                ripe.append(session)
            if ripe:
                self._put_cursors(ripe)
                self._schedule()
        if dirty:
            self._cursor_timer = True
            self._scheduler.call_later(max(wait_us, CURSOR_STEP_US), self._cursor_timer_over)
