"""Nodes on a toy log, stepped by a test: the product's ``Replica`` on stores that can die."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar, final

from perdure.storage.memory import MemoryDatabase
from perdure.storage.ordered.contract import OrderedLog
from perdure.storage.ordered.digest import digest
from perdure.storage.ordered.local import Local
from perdure.storage.ordered.replica import Replica
from tests.support.shared_log import LogEnd, SharedLog

T = TypeVar("T")


@final
class SteppedGate:
    """A gate of nobody's loop: whoever drives the coroutine sees that it is open."""

    def __init__(self) -> None:
        self.is_open = False

    def open(self) -> None:
        self.is_open = True

    def __await__(self) -> Generator[SteppedGate, None, None]:
        while not self.is_open:
            yield self


def drive(work: Coroutine[Any, Any, T] | Awaitable[T], pump: Callable[[], object]) -> T:
    """Run a coroutine; ``pump`` lets the log go on while it waits."""
    steps = work.__await__()
    for _ in itertools.count():
        try:
            gate = next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        for _ in range(1000):
            if gate.is_open:
                break
            pump()
        else:
            raise AssertionError("it waits for what does not come")
    raise AssertionError


class SteppedReplica(Replica):
    """A node's database; the log moves when the test says so.

    Args:
        log: the log.
        name: of the node.
        local: what it has applied so far; None = nothing.
        incarnations: numbers of processes.
        cpu_us: as the replica is told.

    Attributes:
        end: its end of the log, from ``open`` on.
    """

    def __init__(
        self,
        log: SharedLog,
        name: str,
        local: Local | None = None,
        incarnations: itertools.count[int] | None = None,
        cpu_us: Callable[[], int] = lambda: 0,
    ) -> None:
        self.log = log
        self.name = name
        self.local: Local = local or MemoryDatabase()
        self.incarnations = incarnations or itertools.count(1)
        self.end: LogEnd | None = None

        async def open_log() -> OrderedLog:
            self.end = log.end()
            return self.end

        super().__init__(
            self.local,
            open_log,
            node=name,
            incarnation=lambda: next(self.incarnations),
            later=lambda call: call(),
            gate=SteppedGate,
            cpu_us=cpu_us,
        )

    def join(self) -> SteppedReplica:
        """Open it, and let the log go on until it is a member."""
        drive(self.open(), self.log.take_all)
        return self

    def sequence_all(self) -> None:
        """Let the log give back all that was submitted."""
        self.log.take_all()

    async def sweep_retained(self, now_us: int, *, limit: int) -> int:
        self.log.now_us = max(self.log.now_us, now_us)
        count = await super().sweep_retained(now_us, limit=limit)
        self.sequence_all()
        return count

    def submit(self, batch: Any, now_us: int) -> None:
        # The clock of the log is the tests' clock.
        self.log.now_us = max(self.log.now_us, now_us)
        super().submit(batch, now_us)

    def digest(self) -> str:
        """See ``storage.ordered.digest``."""
        return drive(digest(self.local), lambda: None)

    def close(self) -> None:
        """Leave the cluster, and close."""
        if not self.has_failed:
            drive(self.leave(), self.log.take_all)
        drive(self.shut(), lambda: None)
        super().close()
