"""Room for retained messages, up to the limits; also what is let in and not written yet counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from perdure.storage.batch import Batch

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore

RETAINED_OVERHEAD_BYTES: Final = 20
"""What the record of a retained message has besides topic, payload and properties, at least: what
is as large as the message before it must never seem larger."""


@final
class RetainedMark:
    """What was let in when it was made, to come back to.

    Args:
        batch: the open one.
        sizes: by topic; 0 = it is cleared.
        count, size: of what they change.
    """

    def __init__(self, batch: Batch | None, sizes: dict[str, int], count: int, size: int) -> None:
        self.batch = batch
        self.sizes = sizes
        self.count: int = count
        self.size: int = size


@final
class RetainedRoom:
    """Lets retained messages in. Who asks takes what was let in, in the same order and batch.

    Args:
        core: what every part stands on.
    """

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        # What was let in and may not be written yet.
        self._batch: Batch | None = None
        self._sizes: dict[str, int] = {}
        self._count: int = 0
        self._bytes: int = 0

    def refuses(self, topic: str, payload: bytes, properties: bytes) -> str:
        """Whether a quota leaves no room for a retained message; else its room is taken.

        A message in the place of one that is as large is always let in, and so is one that clears
        its topic: its place is free for the next.

        Returns:
            The setting that refuses it; empty = it may be retained.
        """
        core = self._core
        limits, database = core.limits_config, core.database
        count_max, bytes_max = limits.retained_messages_max, limits.retained_bytes_max
        if not count_max and not bytes_max:
            return ""
        batch = core.committer.batch
        if batch is not self._batch:
            # What was let in before has been written, and the database counts it.
            self._batch = batch
            self._sizes = {}
            self._count = self._bytes = 0
        known = self._sizes.get(topic, -1)
        old = known if known >= 0 else database.retained_size_of(topic)
        if not payload:
            if old:
                self._let_in(topic, 0, old)
            return ""
        size = RETAINED_OVERHEAD_BYTES + len(topic.encode()) + len(payload) + len(properties)
        if not old and count_max and database.retained_count + self._count >= count_max:
            return "limits.retained_messages_max"
        total = database.retained_bytes + self._bytes + size - old
        if bytes_max and size > old and total > bytes_max:
            return "limits.retained_bytes_max"
        self._let_in(topic, size, old)
        return ""

    def mark(self) -> RetainedMark:
        """To come back to if what is let in from here on is not taken after all."""
        return RetainedMark(self._batch, dict(self._sizes), self._count, self._bytes)

    def back_to(self, mark: RetainedMark) -> None:
        """Forget what was let in since."""
        self._batch = mark.batch
        self._sizes = mark.sizes
        self._count = mark.count
        self._bytes = mark.size

    def _let_in(self, topic: str, size: int, old: int) -> None:
        self._sizes[topic] = size
        self._count += bool(size) - bool(old)
        self._bytes += size - old
