"""Who waits for a commit, and who is told how far commits have come.

Waiters of one batch are called in the order in which they came, and fail together. What one of them
does about it is not to keep it from those behind.
"""

from __future__ import annotations

from typing import Final, Protocol, final

from perdure.broker.dispatch.items import Item
from perdure.broker.runtime.scheduler import Gate
from perdure.errors import StorageError
from perdure.storage.batch import Batch

LEVEL_MEMORY: Final = 0
LEVEL_OS: Final = 1
LEVEL_FSYNC: Final = 2
LEVELS: Final = {"memory": LEVEL_MEMORY, "os": LEVEL_OS, "fsync": LEVEL_FSYNC}
"""What a waiter waits for: nothing, the write, or the sync."""


class Waiter(Protocol):
    """Something that happens only after a commit."""

    def committed(self) -> None:
        """The batch is durable at the level that was asked for."""
        ...

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """The batch is not durable.

        Args:
            error: what the store said.
            in_doubt: it was written and the sync failed: it may or may not survive.
        """
        ...

    def broke(self, error: Exception) -> None:
        """Hearing of it has failed as nobody expected, which costs this one alone."""
        ...


class CommitListener:
    """Who is told how far commits have come: the turn. This one makes nothing of it."""

    __slots__ = ()

    def sequenced(self, items: list[Item]) -> None:
        """A batch has its offsets: what was taken with it may be dispatched."""

    def lost(self, items: list[Item]) -> None:
        """The store has failed before it gave a batch back: these are not dispatched."""

    def refused(self, client_id: str, epoch: int) -> None:
        """A session has a later owner than the one that something was submitted for."""

    def silenced(self, batch: Batch) -> None:
        """Messages of a batch do not count, for their publishers have later owners."""

    def regrouped(self, batch: Batch) -> None:
        """What groups gave in a batch went back, or another node has given it."""

    def commit_due(self) -> None:
        """The spacing may be over: ``gathers`` tells."""

    def synced(self) -> None:
        """A sync has finished, or a batch came back late: more may be dispatched."""

    def storage_failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """The store refuses writes from now on; ``in_doubt``: what was not synced may be lost."""


@final
class Signal:
    """A waiter for a coroutine."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.error: StorageError | None = None

    def committed(self) -> None:
        """Let it go on."""
        self.gate.open()

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """Let it go on, with an error to look at."""
        self.error = error
        self.gate.open()

    def broke(self, error: Exception) -> None:
        """Opening a gate does not fail."""
        raise error


def notify(waiters: list[Waiter]) -> None:
    """Say that a batch is durable: what one does about it is not to keep it from those behind."""
    for waiter in waiters:
        try:
            waiter.committed()
        except Exception as error:  # noqa: BLE001 - it costs the client that it is about
            waiter.broke(error)


def notify_failed(waiters: list[Waiter], reason: StorageError, *, in_doubt: bool) -> None:
    """Say that a batch is not durable."""
    for waiter in waiters:
        try:
            waiter.failed(reason, in_doubt=in_doubt)
        except Exception as error:  # noqa: BLE001 - as above
            waiter.broke(error)


@final
class Waiters:
    """Who waits, in order, and for how much: one may stand for many messages."""

    __slots__ = ("count", "waiters")

    def __init__(self) -> None:
        self.waiters: list[Waiter] = []
        self.count: int = 0

    def add(self, waiter: Waiter, count: int) -> None:
        """Add one who waits for ``count`` things, at least one."""
        self.waiters.append(waiter)
        self.count += count

    def join(self, others: Waiters) -> None:
        """Take over all of ``others``."""
        # As ``take``: this runs for each commit, twice.
        self.count += others.count
        self.waiters += others.waiters
        others.waiters = []
        others.count = 0

    def take(self) -> list[Waiter]:
        """All of them, who wait here no more."""
        waiters = self.waiters
        self.waiters = []
        self.count = 0
        return waiters
