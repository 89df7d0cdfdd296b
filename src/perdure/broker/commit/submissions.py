"""Batches on their way through the log, and who waits for each.

Where the store is in this process a batch is sequenced while it is submitted; elsewhere the log
gives it back later, in the order of submission. Before that nothing in it has an offset, and nobody
is told of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, final

from perdure.broker.commit.log_pace import LogPace
from perdure.broker.commit.waiters import Waiter, Waiters
from perdure.broker.dispatch.items import InboxDelivery, Item
from perdure.clock import Clock
from perdure.storage.batch import Batch

SUBMITTED_MAX: Final = 3
"""Submissions that wait for a log that is somewhere else, beyond which the open batch gathers
however late they are."""


@final
class Submission:
    """A batch on its way through the log, and what happens when it is sequenced.

    Args:
        batch: what was submitted; None = there was nothing to submit, and what is here waits for
            what stands before it.
        items: to be dispatched.
        written: who waits for the write.
        waiting: who waits for a sync after it.

    Attributes:
        submitted_us: monotonic time; -1 = nothing was, or it was back at once.
    """

    __slots__ = ("batch", "items", "submitted_us", "waiting", "written")

    def __init__(
        self, batch: Batch | None, items: list[Item], written: list[Waiter], waiting: Waiters
    ) -> None:
        self.batch: Batch | None = batch
        self.items: list[Item] = items
        self.written: list[Waiter] = written
        self.waiting: Waiters = waiting
        self.submitted_us: int = -1

    def counting_items(self) -> list[Item]:
        """The items, but for messages that do not count."""
        batch = self.batch
        if batch is None or not (batch.silenced or batch.has_regrouped):
            return self.items
        counting: list[Item] = []
        silent = batch.silent()
        for item in self.items:
            if isinstance(item, InboxDelivery) and not batch.gives(item.entry):
                # It went to another node, or back to its group.
                item.session.inbox_queued -= 1
            elif id(item) not in silent:
                counting.append(item)
        return counting


@final
class Submissions:
    """What was submitted and not gone on with yet.

    Args:
        go_on: called with each submission that is sequenced and next.
        clock: monotonic time.

    Attributes:
        queue: in order.
    """

    __slots__ = ("_clock", "_go_on", "_last_us", "_pace", "_sequencing", "queue", "waiting_count")

    def __init__(self, go_on: Callable[[Submission], None], clock: Clock) -> None:
        self._go_on: Callable[[Submission], None] = go_on
        self._clock: Clock = clock
        self._pace: LogPace = LogPace()
        self._last_us: int = 0
        """When the last batch was submitted that was not back at once."""
        self.queue: deque[Submission] = deque()
        self._sequencing: bool = False
        self.waiting_count: int = 0
        """Things that are waited for a sync of in what is here."""

    def append(self, submission: Submission) -> None:
        """Add what was submitted just now."""
        batch = submission.batch
        if batch is not None and not batch.is_sequenced:
            self._last_us = submission.submitted_us = self._clock.monotonic_us()
        self.waiting_count += submission.waiting.count
        self.queue.append(submission)

    def follows_us(self) -> int:
        """When the next batch may be submitted, monotonic; -1 = when one is back."""
        if not self.queue:
            return 0
        late_us = self._pace.late_us
        if late_us < 0 or len(self.queue) >= SUBMITTED_MAX:
            return -1
        return self._last_us + late_us

    def sequence(self) -> None:
        """Go on with what has passed the log, in the order in which it was submitted."""
        if self._sequencing:
            return  # what one of its waiters has caused comes after it
        self._sequencing = True
        try:
            while self.queue:
                batch = self.queue[0].batch
                if batch is not None and not batch.is_sequenced:
                    break
                submission = self.queue.popleft()
                self.waiting_count -= submission.waiting.count
                if submission.submitted_us >= 0:
                    self._pace.took(self._clock.monotonic_us() - submission.submitted_us)
                self._go_on(submission)
        finally:
            self._sequencing = False

    def wait_for_words(self, client_id: str, waiter: Waiter) -> bool:
        """Call a waiter when the log has given back all that a publisher has said so far; False if
        none of it is on its way."""
        for submission in reversed(self.queue):
            if submission.batch is not None and submission.batch.speaks(client_id):
                submission.written.append(waiter)
                return True
        return False

    def take(self) -> deque[Submission]:
        """All of them: the log does not give them back."""
        queue = self.queue
        self.queue = deque()
        self.waiting_count = 0
        return queue
