"""Where the process's CPU goes: samples of all Python stacks, weighed by the CPU of their threads.

A thread looks a hundred times a second at the stack of every other one and asks the kernel how
much CPU that thread has spent since; so a thread that waits weighs nothing. What comes out are
collapsed stacks (``thread;outermost;...;innermost microseconds``), one for each line, which
flame graph tools read. A compiled function has no Python frame: its time belongs to the frame
that called it, so a profile of lines wants ``PERDURE_PURE_PYTHON=1``.

Knows nothing of the broker. It costs about 1 % of a core while it runs, and nothing otherwise.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Final, final

INTERVAL_S: Final = 0.01
"""Between samples."""
WRITE_INTERVAL_S: Final = 10.0
"""Between writings: what a kill -9 leaves is no older."""
STACK_MAX: Final = 200
"""Frames of a stack that are kept, the innermost ones."""
_TASKS: Final = Path("/proc/self/task")

Stack = tuple[CodeType, ...]


@final
class Profiler:
    """Samples from ``start`` to ``stop``; a context manager does both.

    Args:
        path: of the file; it is written again and again, whole.
        interval_s: between samples.
        tasks: where the kernel shows the threads of this process.
    """

    def __init__(self, path: Path, *, interval_s: float = INTERVAL_S, tasks: Path = _TASKS) -> None:
        self._path = path
        self._interval_s = interval_s
        self._tasks = tasks
        self._weights: Counter[tuple[str, Stack]] = Counter()
        self._spent_ns: dict[int, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="profiler", daemon=True)

    def __enter__(self) -> Profiler:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Begin to sample.

        Raises:
            OSError: the file cannot be written.
        """
        self._write()
        self._thread.start()

    def stop(self) -> None:
        """End, and write what was found."""
        self._ended.set()
        self._thread.join()
        self._write()

    def sample(self) -> None:
        """Look once at every thread but the caller's."""
        frames = sys._current_frames()
        for thread in threading.enumerate():
            native, ident = thread.native_id, thread.ident
            frame = frames.get(ident) if ident is not None else None
            if frame is None or native is None or ident == threading.get_ident():
                continue
            spent_ns = self._spent(native)
            # What it spent before it was seen first belongs to no stack that we know.
            before_ns = self._spent_ns.get(native, spent_ns)
            self._spent_ns[native] = spent_ns
            if spent_ns > before_ns:
                self._weights[thread.name, _stack(frame)] += spent_ns - before_ns

    def collapsed(self) -> str:
        """What was found, the heaviest stack first."""
        lines = [
            f"{';'.join([thread.replace(';', ','), *map(_name, stack)])} {weight_ns // 1000}\n"
            for (thread, stack), weight_ns in self._weights.most_common()
        ]
        return "".join(lines)

    def _run(self) -> None:
        written = time.monotonic()
        while not self._ended.wait(self._interval_s):
            self.sample()
            if time.monotonic() - written > WRITE_INTERVAL_S:
                self._write()
                written = time.monotonic()

    def _spent(self, native: int) -> int:
        """Nanoseconds of CPU of a thread; 0 if it is gone."""
        try:
            return int((self._tasks / str(native) / "schedstat").read_bytes().split()[0])
        except (OSError, IndexError):
            return 0

    def _write(self) -> None:
        beside = self._path.with_name(f"{self._path.name}.new")
        beside.write_text(self.collapsed(), encoding="utf-8")
        beside.replace(self._path)


def _stack(frame: FrameType | None) -> Stack:
    """The code of a stack, outermost first."""
    codes: list[CodeType] = []
    while frame is not None and len(codes) < STACK_MAX:
        codes.append(frame.f_code)
        frame = frame.f_back
    return tuple(reversed(codes))


def _name(code: CodeType) -> str:
    """A frame in words: the end of the file's path, and the function."""
    place = "/".join(Path(code.co_filename).parts[-2:]).removesuffix(".py")
    return f"{place}:{code.co_qualname}".replace(";", ",").replace(" ", "_")
