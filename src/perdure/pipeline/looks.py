"""How a stream looks at its log, again and again. Knows no Spark.

Of a directory one view is kept, which follows the broker. Once the end of the log was reached, a
look waits: without a pause between triggers Spark plans, and asks, as often as it can. That is a
core's work for some messages each, which the broker lacks if it has the same cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, final

from perdure.pipeline.log_index import LogIndex, ask
from perdure.pipeline.options import ReadOptions
from perdure.storage.rocksdb.following import Follower

INTERVAL_S: Final = 0.5
"""From one micro-batch to the next, where the first one reached the end of the log."""

IDLE_WAIT_S: Final = 0.1
"""How long a look waits for a message once there was none, in a directory."""

T = TypeVar("T")


@final
class Looks:
    """The looks of one stream, in one process."""

    def __init__(self) -> None:
        self._follower: Follower | None = None
        self._end: dict[str, Any] | None = None
        self._idles = False
        self._looked_s = 0.0

    def ask(self, options: ReadOptions, question: Callable[[LogIndex], T]) -> T:
        """The answer to a question about the log as it is now; raises as ``log_index.ask``."""
        if options.remote is not None:
            return ask(options, question)
        if self._follower is None:
            self._follower = Follower(Path(options.path))
        with self._follower.look() as files:
            return question(files)

    def ended(self, start: dict[str, Any], end: dict[str, Any], *, at_newest: bool) -> None:
        """Take note of a micro-batch between two positions.

        Args:
            at_newest: the log had nothing behind it.
        """
        self._end = end if at_newest else None
        self._idles = start == end
        self._looked_s = time.monotonic()

    def pause(self, start: dict[str, Any]) -> None:
        """Wait before a look for what follows a position, if it was the end of the log."""
        if self._end is None or start != self._end:
            return
        if self._idles and self._follower is not None:
            self._follower.wait(IDLE_WAIT_S)
            return
        left_s = self._looked_s + INTERVAL_S - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)

    def close(self) -> None:
        """Let go of the directory."""
        if self._follower is not None:
            self._follower.close()
