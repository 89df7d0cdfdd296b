"""How much is taken in a turn while sessions are behind whose clients are ready for more.

A loop that reads all that publishers send leaves a fast subscriber waiting: it gets one window or
one page of the log in a turn that takes thousands of messages, and falls ever further behind
although its client does nothing but wait. So while such sessions are behind, a turn takes no more
than a *limit* of messages: who has published then queues, and some of the queue are read from in
each turn, in their order. Turns get short, and each of them gives every session its window.

The limit is learned: it shrinks as long as the lag does not, and grows when it is small or when
nobody waits. What counts is that the client is *ready*: it has taken most of what it may have, or
as good as all that came. One that is slow, stuck, or has a small window is behind by its own
doing; it never slows the publishers.

It knows no clock: the time is an argument. Invariant: who queues is read from again, soon, whatever
becomes of the sessions.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol, final

LAG_HIGH_US: Final = 20_000
"""Behind by more than this, a session has to come nearer."""

LAG_LOW_US: Final = 10_000
"""Behind by less than this, it needs no help."""

LIMIT_MIN: Final = 256
"""A turn takes so many messages whatever the lag: with fewer its own costs would show, and intake
has its share of the loop beside a session that reads a backlog of millions."""

LIMIT_MAX: Final = 16_384
"""A larger limit is none."""

SERVED_MIN: Final = 64
"""Messages that a client has to have taken since the last look to be ready for more."""

LOOK_US: Final = 2_000
"""Time between two looks, at least."""


class Paused(Protocol):
    """A peer whose reading was paused until commits have caught up."""

    def commits_caught_up(self) -> None:
        """Read on."""
        ...


class Follower(Protocol):
    """A session or a group that may be behind what is dispatched."""

    served: int
    """Messages sent to it while it was behind, since the last look."""

    def lag_us(self, fence: int) -> int:
        """How old the next message is that it is to be sent: offsets count microseconds."""
        ...

    def took_all(self, served: int) -> bool:
        """Whether so many messages are most of what it can be sent at once."""
        ...


@final
class Admission:
    """Decides who is read from.

    Attributes:
        taken: messages taken in this turn.
        limit: most that a turn takes; 0 = no limit.
    """

    __slots__ = (
        "_ceiling",
        "_each",
        "_followers",
        "_looked_us",
        "_queue",
        "_readers",
        "_taken",
        "_turns",
        "_worst_us",
        "limit",
        "taken",
    )

    def __init__(self) -> None:
        self.taken: int = 0
        self.limit: int = 0
        self._ceiling: int = 0
        """A limit that was too large for those behind."""
        self._queue: deque[Paused] = deque()
        self._each: int = 1
        """Messages that a peer brings when it is read from."""
        self._readers: int = 0
        """Peers that have published in this turn."""
        self._followers: list[Follower] = []
        self._looked_us: int = 0
        self._worst_us: int = 0
        """The largest lag at the last look."""
        self._taken: int = 0
        """Messages taken since the last look, in turns that had a limit or somebody behind."""
        self._turns: int = 0
        """So many such turns."""

    def published(self, peer: Paused) -> bool:
        """A peer has published in this turn. Whether it must not be read from until it is told:
        where turns are limited all queue, so that each of them has its turn."""
        self._readers += 1
        if not self.limit:
            return False
        self._queue.append(peer)
        return True

    def served(self, follower: Follower, count: int) -> None:
        """Messages were sent to who is behind."""
        if not follower.served:
            self._followers.append(follower)
        follower.served += count

    def end_turn(self, now_us: int, fence: int) -> bool:
        """Learn from the turn, and let some of the queue be read from.

        Args:
            now_us: monotonic time.
            fence: ``Dispatcher.offset``.

        Returns:
            Whether peers are left in the queue, so that another turn must come.
        """
        taken, readers = self.taken, self._readers
        self.taken = self._readers = 0
        if readers:
            self._each = max(1, taken // readers)
        if self.limit or self._followers:
            self._taken += taken
            self._turns += 1
            if now_us - self._looked_us >= LOOK_US:
                self._look(now_us, fence)
        queue = self._queue
        if not queue:
            return False
        if not self.limit:
            admitted = len(queue)
        else:
            admitted = min(len(queue), max(1, self.limit // self._each))
        for _ in range(admitted):
            queue.popleft().commits_caught_up()
        return len(queue) > 0

    def _look(self, now_us: int, fence: int) -> None:
        """Set the limit by how far those are behind who are ready for more."""
        elapsed_us = now_us - self._looked_us
        self._looked_us = now_us
        taken, turns = self._taken, self._turns
        self._taken = self._turns = 0
        followers = self._followers
        self._followers = []
        worst_us = 0
        least = LIMIT_MAX
        for follower in followers:
            served = follower.served
            follower.served = 0
            if served < SERVED_MIN:
                continue
            if served * 4 >= taken or follower.took_all(served // turns):
                lag_us = follower.lag_us(fence)
                worst_us = max(worst_us, lag_us)
                if lag_us > LAG_HIGH_US:
                    least = min(least, served // turns)
        before_us = self._worst_us
        self._worst_us = worst_us
        if worst_us > LAG_HIGH_US:
            # Who was not ready at the last look says nothing about whether it comes nearer.
            if not before_us or worst_us + min(elapsed_us, worst_us) // 2 > before_us:
                # What a client takes in a turn is as good as bounded by its window, so to take
                # more than that in a turn is to fall behind.
                self._ceiling = min(least, self.limit or taken // turns)
                self.limit = max(LIMIT_MIN, self._ceiling // 2)
        elif self.limit and worst_us < LAG_LOW_US:
            # Fast up to where there was trouble, and with care beyond.
            near = self.limit * 8 >= self._ceiling * 7
            self.limit += self.limit // 64 + 1 if near else self.limit // 4
            if self.limit > LIMIT_MAX:
                self.limit = 0
