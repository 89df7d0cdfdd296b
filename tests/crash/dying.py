"""``python -m tests.crash.dying``: runs a backup or a restore in children that die at a given step.

Reads lines ``step below kind arguments...``; answers ``ended`` or ``killed``. It never opens a
database itself, so that its children have all their threads.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from perdure.backup.directory import DirectoryPlace
from perdure.backup.keeping import find_backup
from perdure.backup.restoring import restore
from perdure.backup.taking import take_backup
from perdure.config.schema import RocksdbConfig

EVENTS = frozenset({"open", "os.mkdir", "os.link", "os.rename", "os.remove", "os.rmdir"})
CONFIG = RocksdbConfig()


def work(kind: str, data: Path, place: DirectoryPlace, number: int) -> None:
    """Back up at a time, or restore to an offset."""
    if kind == "backup":
        take_backup(data, place, config=CONFIG, version="1", now_us=number)
    else:
        restore(place, find_backup(place, ""), data, config=CONFIG, at=number)


def main() -> None:
    """Answer lines until there are no more."""
    for line in sys.stdin:
        step, below, kind, data, place, number = line.split()
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            killed = os.WIFSIGNALED(status)
            print("killed" if killed else f"ended {os.WEXITSTATUS(status)}", flush=True)
            continue
        left = [int(step)]

        def count(
            event: str,
            arguments: tuple[object, ...],
            left: list[int] = left,
            below: str = below,
        ) -> None:
            if event in EVENTS and below in str(arguments[0]):
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        code = 1
        try:
            work(kind, Path(data), DirectoryPlace(Path(place)), int(number))
            code = 0
        finally:
            os._exit(code)


if __name__ == "__main__":
    main()
