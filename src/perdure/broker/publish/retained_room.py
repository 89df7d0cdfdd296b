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
    """What was let in of a batch, and may not be written yet.

    Attributes:
        batch: the open one; None = nothing was let in so far.
        sizes: by topic, bytes; 0 = it is cleared.
        count, size: by how much it changes what there is, messages and bytes.
    """

    def __init__(
        self, batch: Batch | None, sizes: dict[str, int], count: int = 0, size: int = 0
    ) -> None:
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
        self._open = RetainedMark(None, {})

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
        if core.committer.batch is not self._open.batch:
            # What was let in before has been written, and the database counts it.
            self._open = RetainedMark(core.committer.batch, {})
        let_in = self._open
        known = let_in.sizes.get(topic, -1)
        old = known if known >= 0 else database.retained_size_of(topic)
        size = 0
        if payload:
            size = RETAINED_OVERHEAD_BYTES + len(topic.encode()) + len(payload) + len(properties)
            if not old and count_max and database.retained_count + let_in.count >= count_max:
                return "limits.retained_messages_max"
            total = database.retained_bytes + let_in.size + size - old
            if bytes_max and size > old and total > bytes_max:
                return "limits.retained_bytes_max"
        elif not old:
            return ""
        let_in.sizes[topic] = size
        let_in.count += bool(size) - bool(old)
        let_in.size += size - old
        return ""

    def mark(self) -> RetainedMark:
        """To come back to if what is let in from here on is not taken after all."""
        let_in = self._open
        return RetainedMark(let_in.batch, dict(let_in.sizes), let_in.count, let_in.size)

    def back_to(self, mark: RetainedMark) -> None:
        """Forget what was let in since."""
        self._open = mark
