"""``python -m perdure.backup``: one backup in a process of its own, started by the broker.

The first line of standard input is a ``Task``; the end of the input means that the broker is dead
or stops, and nobody waits any more. Standard output gets one line of JSON, a ``Report``.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Final

import msgspec

from perdure import __version__
from perdure.backup.keeping import prune, read_backups
from perdure.backup.manifest import BackupManifest
from perdure.backup.places import open_place
from perdure.backup.taking import take_backup
from perdure.backup.task import Report, Task
from perdure.clock import SystemClock
from perdure.errors import PerdureError

NICENESS: Final = 10


def run(task: Task) -> Report:
    """Do what is asked."""
    try:
        place = open_place(task.to, setting="backup.to", data=Path(task.data))
        place.make()
        if not task.make:
            whole = [each for each in read_backups(place) if isinstance(each, BackupManifest)]
            source = [each for each in whole if each.source.endswith(f":{task.data}")]
            return Report(made_at_us=max((each.made_at_us for each in source), default=0))
        made = take_backup(
            Path(task.data),
            place,
            config=task.rocksdb,
            version=__version__,
            now_us=SystemClock().now_us(),
            rate=task.rate,
        )
        pruned = len(prune(place, task.keep).backups) if task.keep else 0
    except PerdureError as error:
        return Report(error=error.message, hint=error.hint)
    return Report(
        made_at_us=made.made_at_us,
        id=made.id,
        position=made.position,
        size=made.size,
        copied=made.copied,
        seconds=made.seconds,
        pruned=pruned,
    )


def main() -> None:
    """Run one task."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)

    def follow() -> None:
        os.read(0, 1)
        os._exit(0)

    threading.Thread(target=follow, name="parent", daemon=True).start()
    sys.stdout.buffer.write(msgspec.json.encode(run(task)) + b"\n")
    sys.stdout.buffer.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
