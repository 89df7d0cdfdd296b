"""Writes log lines from a thread of its own, so that nothing that logs ever waits.

Standard error may be a pipe that nobody reads, or a terminal that was stopped: a broker that blocks
there serves nobody. Lines wait in a bounded queue; what does not fit is dropped and counted, and
the count is written when there is room again.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import Final, TextIO, final

LINES_MAX: Final = 10_000
"""Lines that wait to be written."""

LINE_CHARACTERS_MAX: Final = 8_192
"""Longest line; a client id alone may have 65,535 bytes. The rest is cut."""

CLOSE_TIMEOUT_S: Final = 1.0
"""Time for what waits to be written at the end."""


@final
class LogWriter:
    """A stream for log lines that never blocks its caller.

    Args:
        stream: where the lines go.
        lines_max: lines that may wait.
    """

    def __init__(self, stream: TextIO, *, lines_max: int = LINES_MAX) -> None:
        self._stream = stream
        self._lines_max = lines_max
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._closing = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> int:
        """Queue text; returns its length, as a stream does. After ``close`` it writes at once."""
        if self._closing:
            self._put(text)
            return len(text)
        line = text
        if len(text) > LINE_CHARACTERS_MAX:
            line = text[:LINE_CHARACTERS_MAX] + "...\n"
        with self._wake:
            if len(self._lines) < self._lines_max:
                self._lines.append(line)
                self._wake.notify()
            else:
                self._dropped += 1
        return len(text)

    def flush(self) -> None:
        """Nothing: the thread flushes."""

    def isatty(self) -> bool:
        """Whether a person reads."""
        return self._stream.isatty()

    def close(self) -> None:
        """Write what waits, as far as the stream takes it in ``CLOSE_TIMEOUT_S``."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(CLOSE_TIMEOUT_S)

    def _take(self) -> str | None:
        """The lines that wait, or None at the end."""
        with self._wake:
            while not self._lines:
                if self._closing:
                    return None
                self._wake.wait()
            text = "".join(self._lines)
            self._lines.clear()
            dropped, self._dropped = self._dropped, 0
        if dropped:
            text += f'{{"event":"log.dropped","level":"warning","lines":{dropped}}}\n'
        return text

    def _run(self) -> None:
        while True:
            text = self._take()
            if text is None:
                return
            self._put(text)

    def _put(self, text: str) -> None:
        # The reader may be gone, or the stream closed: then there is nobody to tell.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
