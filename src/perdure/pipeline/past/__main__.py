"""The process that reads an archive: ``python -m perdure.pipeline.past``, started by the broker.

Standard input is its life: the end of it, or ``stop``, ends the process at once, whatever it reads
just then. Signals are the broker's matter: a terminal sends them to both. What libraries print goes
to standard error, so that nothing but answers is on standard output (``wire``).
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

import msgspec

from perdure.errors import PerdureError
from perdure.pipeline.past.wire import PageAnswer, PageRequest, PastSettings, framed

if TYPE_CHECKING:
    from perdure.pipeline.past.reader import PastReader

NICENESS: Final = 5
ERROR_CHARACTERS_MAX: Final = 500


def main() -> None:
    """Run the process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if hasattr(os, "nice"):
        # The broker's acknowledgements come first.
        os.nice(NICENESS)
    out = os.dup(1)
    os.dup2(2, 1)
    lines = _lines(sys.stdin.fileno())
    settings = msgspec.json.decode(next(lines), type=PastSettings)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def follow() -> None:
        for line in lines:
            if line == b"stop":
                break
            requests.put(line)
        # It may be in the middle of a read that takes for ever.
        os._exit(0)

    threading.Thread(target=follow, name="parent", daemon=True).start()
    answers = _Answers(settings)
    while True:
        request = msgspec.json.decode(requests.get(), type=PageRequest)
        data = memoryview(framed(answers.to(request)))
        while data:
            data = data[os.write(out, data) :]


@final
class _Answers:
    """Answers requests, whatever goes wrong.

    Args:
        settings: of the process.
    """

    def __init__(self, settings: PastSettings) -> None:
        self._settings = settings
        self._reader: PastReader | None = None

    def to(self, request: PageRequest) -> PageAnswer:
        """The answer to a request."""
        try:
            return self._opened().page(request)
        except PerdureError as error:
            return self._refused(request, error.code, error.message, error.hint)
        except Exception as error:  # noqa: BLE001 - the next request may be met
            return self._refused(request, "unexpected", f"{type(error).__name__}: {error}", "")

    def _opened(self) -> PastReader:
        if self._reader is None:
            # Catalogs and Arrow take a second, in which the broker's requests wait in the pipe.
            from perdure.pipeline.lake.lake import lake_of
            from perdure.pipeline.past.reader import PastReader

            settings = self._settings
            self._reader = PastReader(
                lake_of(settings.tables),
                settings.database,
                window_bytes=settings.window_bytes,
                held_bytes_max=settings.held_bytes_max,
            )
        return self._reader

    def _refused(self, request: PageRequest, code: str, text: str, hint: str) -> PageAnswer:
        if self._reader is not None:
            self._reader.forget()
            text = self._reader.redacted(text)
        text = text[:ERROR_CHARACTERS_MAX]
        return PageAnswer(request.number, code=code, error=text, hint=hint)


def _lines(descriptor: int) -> Iterator[bytes]:
    """Lines of standard input. A buffered file would be locked by a thread that waits in it, and
    the interpreter could not end."""
    left = b""
    while data := os.read(descriptor, 65_536):
        *whole, left = (left + data).split(b"\n")
        yield from whole


if __name__ == "__main__":
    main()
