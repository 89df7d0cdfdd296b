"""What a backend can do besides, or does in another way than a store in this process.

Whoever depends on one of them asks for it by name, so that a backend may have any of them: nobody
asks what or where a backend *is*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, final

from perdure.storage.peers import Peers
from perdure.storage.results import ReadResult


class SessionQueues(Protocol):
    """A queue for each durable session, of the messages that its subscriptions match.

    The database fills it as messages are appended. A session reads that; the log is for backfills,
    shared groups and sessions in memory. What is queued is kept when the log is trimmed. A queue
    keeps a message's expiry as its distance from the time of publishing, so that one must be in
    steady time.
    """

    async def read_queue(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int, bytes_max: int
    ) -> ReadResult:
        """Messages that a session's queue holds, as ``Database.read`` returns those of the log.

        Every message that the session is owed is there. There may be others: a subscription may
        have ended at an offset that is lower than theirs.
        """
        ...


class LoopSync(Protocol):
    """A sync that is waited for on the event loop, which must not stand still meanwhile."""

    @property
    def is_full(self) -> bool:
        """Whether so many bytes wait to be synced that peers must pause."""
        ...

    def begin_sync(self, done: Callable[[BaseException | None], None]) -> None:
        """What ``Database.sync`` does, without a thread: ``done`` is called on the loop."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend has; the defaults are those of a store in this process."""

    queues: SessionQueues | None = None
    """None = what a session is owed is read from the log."""
    loop_sync: LoopSync | None = None
    """None = ``Database.sync`` is called in a thread."""
    keeps_written: bool = True
    """What was written survives the death of this process. Else only what was synced does, and
    the level ``os`` is worth what ``fsync`` is."""
    sequences_late: bool = False
    """A batch may be sequenced after ``Database.submit`` has returned."""
    peers: Peers | None = None
    """Other nodes write to the same log; None = this broker alone does."""
    time_step_us: int = 1
    """The log's time goes in steps of so many microseconds: what was taken at a moment may have an
    offset that is less than one before it."""
    may_be_taken: bool = False
    """Another broker can take it, or it can go, while nothing is written: it must be watched."""

    def offset_before(self, at_us: int) -> int:
        """The offset behind which all is that was taken at a moment or later, >= 0.

        Args:
            at_us: microseconds since the epoch.
        """
        return max(0, at_us - at_us % self.time_step_us - 1)


EMBEDDED: Final = Capabilities()
"""A store in this process."""
