"""Who waits is called in order, and counted."""

from __future__ import annotations

import pytest

from perdure.broker.commit.log_pace import LATE_US_MIN
from perdure.broker.commit.submissions import SUBMITTED_MAX, Submission, Submissions
from perdure.broker.commit.waiters import Waiters, notify, notify_failed
from perdure.errors import StorageError, StorageUnavailable
from perdure.model import Message
from perdure.storage.batch import Batch
from perdure.storage.memory import MemoryDatabase
from tests.support.clock import VirtualClock


class Named:
    """A waiter that writes down what it hears; ``!`` in its name cannot bear it."""

    def __init__(self, name: str, heard: list[str]) -> None:
        self._name = name
        self._heard = heard

    def committed(self) -> None:
        self._hear("")

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        self._hear(" in doubt" if in_doubt else " failed")

    def broke(self, error: Exception) -> None:
        self._heard.append(f"{self._name} broke")

    def _hear(self, what: str) -> None:
        if "!" in self._name:
            raise ValueError
        self._heard.append(self._name + what)


def test_all_join_in_their_order() -> None:
    heard: list[str] = []
    first, second = Waiters(), Waiters()
    for waiters, name, count in ((first, "a", 1), (second, "b", 3), (second, "c", 2)):
        waiters.add(Named(name, heard), count)
    first.join(second)
    assert (first.count, second.count, second.take()) == (6, 0, [])
    notify(first.take())
    assert (heard, first.count) == (["a", "b", "c"], 0)


@pytest.mark.parametrize("in_doubt", [True, False])
def test_one_that_breaks_keeps_it_from_nobody(in_doubt: bool) -> None:
    heard: list[str] = []
    waiters = [Named(name, heard) for name in ("a", "!", "b")]
    notify(list(waiters))
    assert heard == ["a", "! broke", "b"]
    heard.clear()
    notify_failed(list(waiters), StorageUnavailable("gone"), in_doubt=in_doubt)
    what = "in doubt" if in_doubt else "failed"
    assert heard == [f"a {what}", "! broke", f"b {what}"]


def test_what_submits_nothing_waits_for_what_stands_before_it_alone() -> None:
    gone: list[Submission] = []
    submissions = Submissions(gone.append, VirtualClock())
    batch = Batch()
    batch.append(Message("t", b"", 1))
    first, late, last = (Submission(each, [], [], Waiters()) for each in (None, batch, None))
    submissions.append(first)
    submissions.sequence()
    assert gone == [first]
    submissions.append(late)
    submissions.append(last)
    submissions.sequence()
    assert gone == [first]
    MemoryDatabase().submit(batch, 0)
    submissions.sequence()
    assert gone == [first, late, last]
    assert not submissions.queue


def test_a_batch_follows_one_that_is_late_and_some_at_most() -> None:
    clock = VirtualClock()
    submissions = Submissions(lambda submission: None, clock)
    assert submissions.follows_us() == 0  # nothing is on its way
    batches: list[Batch] = []
    for number in range(SUBMITTED_MAX):
        batch = Batch()
        batch.append(Message("t", b"", 1))
        batches.append(batch)
        submissions.append(Submission(batch, [], [], Waiters()))
        if number + 1 < SUBMITTED_MAX:
            assert submissions.follows_us() == clock.monotonic_us() + LATE_US_MIN
            clock.advance_us(LATE_US_MIN)
    assert submissions.follows_us() == -1  # however late
    MemoryDatabase().submit(batches[0], 0)
    submissions.sequence()
    assert submissions.follows_us() >= clock.monotonic_us() + LATE_US_MIN
