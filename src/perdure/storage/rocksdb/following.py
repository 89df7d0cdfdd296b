"""A view of a log that is kept from one look to the next, and follows the broker that writes it.

Opening a directory replays what the broker has not yet flushed to table files, some ten megabytes:
more work than all the rest of a small micro-batch, and work that the broker lacks where they
share a machine. A view that is kept reads only what was added. It holds on to files that the
broker has deleted until the next look, so it is let go when nobody looks for a while.

Invariant: a look shows all that was written before it began, as opening the directory would.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, final

from perdure.errors import StorageUnavailable
from perdure.storage.rocksdb.blocks import Opener
from perdure.storage.rocksdb.bulk import LogFiles

KEPT_S: Final = 20.0
"""How long a view is kept for the next look."""

_POLL_S: Final = 0.01
_BUSY_S: Final = 1.0
_RENEWALS_MAX: Final = 3


class Stamp(NamedTuple):
    """What changes with each write: manifests and write-ahead logs by name, with inode and size."""

    manifests: Mapping[str, tuple[int, int]]
    logs: Mapping[str, tuple[int, int]]


_NOTHING: Final = Stamp({}, {})


@final
class Follower:
    """Looks at a log again and again.

    Args:
        path: a broker's data directory.
        kept_s: how long a view is kept for the next look.
        mapped, blocks: of each view, see ``LogFiles``.
    """

    def __init__(
        self,
        path: Path,
        *,
        kept_s: float = KEPT_S,
        mapped: bool = False,
        blocks: Opener | None = None,
    ) -> None:
        self._path = path
        self._kept_s = kept_s
        self._mapped = mapped
        self._blocks = blocks
        self._query = ""
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._files: LogFiles | None = None
        self._stamp = _NOTHING

    @contextlib.contextmanager
    def look(self, *, sequence: int = 0, query: str = "") -> Iterator[LogFiles]:
        """The log as it is now, until the block ends.

        Args:
            sequence: of a view that this one must not be behind.
            query: looks of one that follow each other are at the same view, if it is still kept:
                what was there when it began is there to its end.

        Raises:
            StorageUnavailable: there is none, or it is behind.
            FormatTooNew, StorageCorrupt: it cannot be read.
        """
        if not self._lock.acquire(timeout=_BUSY_S):
            # A look that nobody ended: a reader that failed and is not collected yet.
            files = self._opened(follows=False)
            try:
                yield self._checked(files, sequence)
            finally:
                files.close()
            return
        try:
            self._stop_timer()
            kept = self._files if query and query == self._query else None
            self._query = query
            yield self._checked(kept or self._renewed(), sequence)
        finally:
            if self._files is not None:
                self._timer = threading.Timer(self._kept_s, self.close)
                self._timer.daemon = True
                self._timer.start()
            self._lock.release()

    def _checked(self, files: LogFiles, sequence: int) -> LogFiles:
        if files.sequence < sequence:
            raise StorageUnavailable(
                f"{self._path} has less than when the query was planned",
                hint="was it restored from a backup?",
            )
        return files

    def wait(self, timeout_s: float) -> None:
        """Wait until something is written that the last look did not show, or for a time."""
        until = time.monotonic() + timeout_s
        while (
            self._files is not None
            and _stamp(self._path) == self._stamp
            and time.monotonic() < until
        ):
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Let go of the view; a look opens it anew."""
        with self._lock:
            self._stop_timer()
            self._close()

    def _renewed(self) -> LogFiles:
        for _ in range(_RENEWALS_MAX):
            # Taken first: what is written meanwhile is looked at once more.
            stamp = _stamp(self._path)
            files = self._files
            if files is not None and stamp == self._stamp:
                return files
            if files is None or not _follows(self._stamp, stamp) or not files.renew():
                break
            # As ``open_beside``: what is flushed meanwhile may be in no file that was read.
            if _stamp(self._path).manifests == stamp.manifests:
                self._stamp = stamp
                return files
        self._close()
        stamp = _stamp(self._path)
        self._files = self._opened(follows=True)
        self._stamp = stamp
        return self._files

    def _opened(self, *, follows: bool) -> LogFiles:
        return LogFiles(self._path, follows=follows, mapped=self._mapped, blocks=self._blocks)

    def _close(self) -> None:
        files, self._files, self._stamp = self._files, None, _NOTHING
        if files is not None:
            files.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _stamp(path: Path) -> Stamp:
    found: tuple[dict[str, tuple[int, int]], ...] = ({}, {})
    with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
        for entry in entries:
            is_log = entry.name.endswith(".log")
            if is_log or entry.name.startswith("MANIFEST-"):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat()
                    found[is_log][entry.name] = status.st_ino, status.st_size
    return Stamp(*found)


def _follows(before: Stamp, now: Stamp) -> bool:
    """Whether a view can go on from one state to another.

    It holds what it has read of the logs until the first write after a flush, which goes to a new
    log; up to then it would show an old value where a later one was flushed. Each commit writes to
    the table whose values change, so one later write is enough.
    """
    if {name: inode for name, (inode, _) in now.manifests.items()} != {
        name: inode for name, (inode, _) in before.manifests.items()
    }:
        # The broker was restarted, or this is another database.
        return False
    newest = max(now.logs, key=lambda name: int(Path(name).stem), default="")
    return now.manifests == before.manifests or (bool(newest) and now.logs[newest][1] > 0)
