"""When clients begin or end whose coming or going writes much: some in each turn of the loop.

A large will is written with its CONNECT and again when its connection is lost, as a part of its
session's record; a thousand of 60 KB that go at one instant are 60 MB in one write. A member of a
shared group that leaves gives back what it has not acknowledged, entry by entry; five hundred with
a thousand each are seconds. Ten thousand filters that are taken out are 10 ms. So they wait for
their turn, and none has it while the disk has enough (``LogSync.is_large``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from perdure.broker.runtime.turn_budget import BULK_BYTES
from perdure.broker.sessions.counts import will_size

if TYPE_CHECKING:
    from perdure.broker.commit.committer import Committer
    from perdure.broker.commit.pipeline import CommitPipeline
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.runtime.turn_budget import TurnBudget

TURN_BYTES: Final = 256 * 1024
"""Bytes of those that begin or end in one turn; one does in any case."""
ENTRY_BYTES: Final = 512
"""What an entry counts that goes back to its group: a tombstone, a row of the group, and the time
of half a KiB."""

FILTER_BYTES: Final = 64
"""What a subscription counts: it writes nothing, and taking it out has its time."""


def weight(session: LiveSession | None) -> int:
    """What a session's going writes, bytes about, or what else takes its time."""
    if session is None:
        return 0
    entries = sum(map(len, session.group_runs))
    return will_size(session.record.will) + ENTRY_BYTES * entries + FILTER_BYTES * len(session.subs)


@final
class HeavyTurns:
    """Gives turns to those that write much.

    Args:
        pipeline: counts the turns, and tells when the disk has caught up.
        committer: knows what waits for the disk.
        budget: has the queue.
    """

    __slots__ = ("_budget", "_committer", "_pipeline", "_turn", "_turn_bytes")

    def __init__(self, pipeline: CommitPipeline, committer: Committer, budget: TurnBudget) -> None:
        self._pipeline: CommitPipeline = pipeline
        self._committer: Committer = committer
        self._budget: TurnBudget = budget
        self._turn: int = -1
        self._turn_bytes: int = 0

    def may_write(self, size: int) -> bool:
        """Whether so many bytes may be written now, in this turn."""
        if size <= BULK_BYTES:
            return True
        if self._committer.log_sync.is_large():
            return False
        turn = self._pipeline.number
        if turn != self._turn:
            self._turn, self._turn_bytes = turn, 0
        if self._turn_bytes and self._turn_bytes + size > TURN_BYTES:
            return False
        self._turn_bytes += size
        return True

    def wait(self, waiting: Waiting) -> None:
        """Join the queue, now or when the disk has caught up."""
        if self._committer.log_sync.is_large():
            self._pipeline.pause(waiting)
        else:
            self._budget.add(waiting)
            # Who had a part of this turn may have written nothing that would end it: its client has
            # come back meanwhile.
            self._pipeline.schedule()


@final
class Waiting:
    """A client that waits to begin or to end; a ``turn_budget.Worker``.

    Args:
        turns: who gives it its turn.
        size: of what it writes, bytes.
        write: goes on then; returns whether there is more to do.
    """

    __slots__ = ("_size", "_turns", "_write")

    def __init__(self, turns: HeavyTurns, size: int, write: Callable[[], bool]) -> None:
        self._turns: HeavyTurns = turns
        self._size: int = size
        self._write: Callable[[], bool] = write

    @property
    def is_closed(self) -> bool:
        """Who ends has still to end."""
        return False

    def work_on(self) -> bool:
        """Its turn, perhaps."""
        if self._turns.may_write(self._size):
            return self._write()
        self._turns.wait(self)
        return False

    def commits_caught_up(self) -> None:
        """The disk has."""
        self._turns.wait(self)
