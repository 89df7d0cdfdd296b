"""``python -m tests.support.stepped_clock FILE serve ...``: ``perdure`` on a machine whose wall
clock is off by as many seconds as the file says, also when that changes while it runs.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Final

_OFFSET: Final = struct.Struct("d")


def set_step(file: Path, seconds: float) -> None:
    """Let the clocks of those who run by this file be off."""
    with file.open("r+b" if file.exists() else "w+b") as handle:
        handle.write(_OFFSET.pack(seconds))


def _step_time(file: Path) -> None:
    with file.open("rb") as handle:
        shared = mmap.mmap(handle.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)
    true_ns, true_s = time.time_ns, time.time

    def off() -> float:
        seconds: float = _OFFSET.unpack_from(shared)[0]
        return seconds

    # Before anything of ours is imported, which keeps what it finds.
    time.time_ns = lambda: true_ns() + int(off() * 1e9)
    time.time = lambda: true_s() + off()


if __name__ == "__main__":
    _step_time(Path(sys.argv[1]))
    from perdure.cli.main import run

    sys.exit(run(sys.argv[2:]))
