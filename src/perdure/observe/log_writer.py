"""Writes log lines from a thread of its own, so that nothing that logs ever waits.

Standard error may be a pipe that nobody reads, or a terminal that was stopped: a broker that blocks
there serves nobody. Lines wait in a bounded queue; what does not fit is dropped and counted, and
the count is written when there is room again.
"""

from __future__ import annotations

import contextlib
import threading
from queue import SimpleQueue
from typing import Final, TextIO, final

LINES_MAX: Final = 10_000
"""Lines that wait to be written."""

CHARACTERS_MAX: Final = 8 * 1024 * 1024
"""Text that waits to be written."""

LINE_CHARACTERS_MAX: Final = 8_192
"""Longest line; a client id alone may have 65,535 bytes. The rest is cut."""

CLOSE_TIMEOUT_S: Final = 1.0
"""Time for what waits to be written at the end."""


_writers: Final[list[LogWriter]] = []


def flush_all() -> None:
    """Close all that is open: before the process ends without running anything else."""
    while _writers:
        _writers[0].close()  # which takes it off the list


@final
class LogWriter:
    """A stream for log lines that never blocks its caller.

    Args:
        stream: where the lines go.
        lines_max: lines that may wait.
        characters_max: text that may wait.
    """

    def __init__(
        self, stream: TextIO, *, lines_max: int = LINES_MAX, characters_max: int = CHARACTERS_MAX
    ) -> None:
        self._stream = stream
        self._lines_max = lines_max
        self._characters_max = characters_max
        self._queued = 0
        self._written = 0
        # Of C: a condition would cost a line more than its text does.
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._dropped = 0  # ever; the thread knows how many it has told of
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()
        _writers.append(self)

    def write(self, text: str) -> int:
        """Queue text; returns its length, as a stream does. After ``close`` it writes at once."""
        if self._closing:
            self._put(text)
        elif not self._has_room():
            self._dropped += 1
        else:
            line = text
            if len(text) > LINE_CHARACTERS_MAX:
                line = text[:LINE_CHARACTERS_MAX] + "...\n"
            self._queued += len(line)
            self._lines.put(line)
        return len(text)

    def flush(self) -> None:
        """Nothing: the thread flushes."""

    def isatty(self) -> bool:
        """Whether a person reads."""
        return self._stream.isatty()

    def close(self) -> None:
        """Write what waits, as far as the stream takes it in ``CLOSE_TIMEOUT_S``."""
        self._closing = True
        if self in _writers:
            _writers.remove(self)
        self._lines.put(None)
        self._thread.join(CLOSE_TIMEOUT_S)

    def _has_room(self) -> bool:
        waiting = self._lines.qsize()
        if not waiting:
            # Several threads may count at once: what that lost is made good here.
            self._queued = self._written
        return waiting < self._lines_max and self._queued - self._written < self._characters_max

    def _run(self) -> None:
        reported = 0
        lines = self._lines
        line = lines.get()
        while line is not None:
            text = [line]
            for _ in range(lines.qsize()):
                line = lines.get_nowait()
                if line is None:
                    break
                text.append(line)
            size = sum(map(len, text))
            dropped = self._dropped
            if dropped > reported:
                text.append(
                    f'{{"event":"log.dropped","level":"warning","lines":{dropped - reported}}}\n'
                )
                reported = dropped
            self._put("".join(text))
            self._written += size
            if line is not None:
                line = lines.get()

    def _put(self, text: str) -> None:
        # The reader may be gone, or the stream closed: then there is nobody to tell.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
