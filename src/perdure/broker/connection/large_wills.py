"""When a large will is written: with its CONNECT, and again when its connection is lost.

Each time it is a part of its session's record. A thousand clients that come or go at one instant,
with 60 KB each, would have 60 MB in one write, for which everybody stands a quarter of a second. So
they wait for their turn: some of them in each turn of the loop, and none while the disk has enough
(``LogSync.is_large``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from perdure.broker.runtime.turn_budget import BULK_BYTES

if TYPE_CHECKING:
    from perdure.broker.commit.committer import Committer
    from perdure.broker.commit.pipeline import CommitPipeline
    from perdure.broker.runtime.turn_budget import TurnBudget

TURN_BYTES: Final = 256 * 1024
"""Bytes of large wills in one turn; one is written in any case."""


@final
class LargeWills:
    """Gives large wills their turns.

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
        """Whether so many bytes may be written now, in this turn.

        Args:
            size: of a will and what comes with it.
        """
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


@final
class Waiting:
    """A client that waits to begin or to end; a ``turn_budget.Worker``.

    Args:
        wills: who gives it its turn.
        size: of its will, bytes.
        write: goes on then; returns whether there is more to do.
    """

    __slots__ = ("_size", "_wills", "_write")

    def __init__(self, wills: LargeWills, size: int, write: Callable[[], bool]) -> None:
        self._wills: LargeWills = wills
        self._size: int = size
        self._write: Callable[[], bool] = write

    def work_on(self) -> bool:
        """Its turn, perhaps."""
        if self._wills.may_write(self._size):
            return self._write()
        self._wills.wait(self)
        return False

    def commits_caught_up(self) -> None:
        """The disk has."""
        self._wills.wait(self)
