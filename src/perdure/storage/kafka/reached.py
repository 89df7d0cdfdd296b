"""How far a node has read, and whether the log still has what it read last.

Kafka says "offset out of range" in two cases. The log was cut off below the node (an election of a
broker that lacked its tail), and may have grown again since. Or a Kafka broker stood still, wakes,
and answers for a moment as the leader that it no longer is. The record that was read last tells
them apart: in the second case it is where it was.

Invariant: what ``take`` gives is contiguous, over all doubts.
"""

from __future__ import annotations

from typing import Final, final

from perdure.errors import LogShorter
from perdure.storage.ordered.contract import LogRecord

LOST_HINT: Final = "stop all nodes, keep their data, and see what Kafka has lost before you go on"


@final
class Reached:
    """Where a node is in its topic.

    Args:
        topic: for messages.
        position: of what it reads first.

    Attributes:
        position: of what comes next.
    """

    def __init__(self, topic: str, position: int) -> None:
        self.position = position
        self._topic = topic
        self._last: LogRecord | None = None
        self._is_doubted = False

    def resume_at(self, first: int) -> int:
        """Where to read on: at what was read last, where the log may have something else by now.

        Args:
            first: position of the log's first record.
        """
        last = self._last
        self._is_doubted = last is not None and last.position >= first
        return last.position if last is not None and self._is_doubted else self.position

    def take(self, records: list[LogRecord]) -> list[LogRecord]:
        """What is new of the records that were read.

        Raises:
            LogShorter: the log has something else where this node has read.
        """
        if self._is_doubted and records:
            if records[0] != self._last:
                raise LogShorter(
                    f"topic {self._topic} does not have what this node has read at "
                    f"{self.position - 1}: Kafka has lost its tail, and others have written since",
                    hint=LOST_HINT,
                )
            self._is_doubted = False
            records = records[1:]
        if records:
            self._last = records[-1]
            self.position = records[-1].position + 1
        return records
