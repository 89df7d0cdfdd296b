"""Views of the log that requests share: the log as it was when a reader first asked.

Opening a directory replays what the broker has not yet flushed to table files, so that the
requests of one query use one view. Few are kept, and none for long: an open view holds on to the
files that it reads, dropped generations too.

Invariant: a view is closed once, and only while no request uses it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, final

from perdure.pipeline.log_index import BulkLog
from perdure.storage.rocksdb.bulk import LogFiles

VIEWS_MAX: Final = 4
"""Views that are kept while nobody uses them; each may hold a cache of blocks."""

IDLE_MAX_S: Final = 30.0
"""How long one is kept unused; a query plans and begins to read within that time."""

AGE_MAX_S: Final = 3_600.0
"""How long one is given out."""


@final
class _View:
    def __init__(self, now_s: float) -> None:
        self.lock = threading.Lock()
        self.files: BulkLog | None = None
        self.opened_s = now_s
        self.used_s = now_s
        self.users = 0


@final
class Views:
    """The views of one data directory. Threads may share it.

    Args:
        data: the directory.
        clock: monotonic, seconds.
        opener: opens a view.
    """

    def __init__(
        self,
        data: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        opener: Callable[[Path], BulkLog] = LogFiles,
    ) -> None:
        self._data = data
        self._clock = clock
        self._opener = opener
        self._lock = threading.Lock()
        self._views: dict[str, _View] = {}

    @contextlib.contextmanager
    def use(self, name: str) -> Iterator[BulkLog]:
        """A view, opened if there is none of this name; an empty name is not shared.

        Raises:
            StorageError: the directory cannot be opened.
        """
        view = self._take(name)
        try:
            with view.lock:
                if view.files is None:
                    view.files = self._opener(self._data)
            yield view.files
        finally:
            self._give_back(name, view)

    def tidy(self) -> int:
        """Close what was not used for long; returns how many views are left."""
        now_s = self._clock()
        with self._lock:
            unused = sorted(
                (view.used_s, name) for name, view in self._views.items() if not view.users
            )
            over = len(unused) - VIEWS_MAX
            ended = [
                self._views.pop(name)
                for number, (used_s, name) in enumerate(unused)
                if number < over or now_s - used_s > IDLE_MAX_S
            ]
            left = len(self._views)
        for view in ended:
            _close(view)
        return left

    def close(self) -> None:
        """Close all views; none may be in use."""
        with self._lock:
            ended = list(self._views.values())
            self._views.clear()
        for view in ended:
            _close(view)

    def _take(self, name: str) -> _View:
        now_s = self._clock()
        aged: _View | None = None
        with self._lock:
            view = self._views.get(name) if name else None
            if view is not None and now_s - view.opened_s > AGE_MAX_S:
                # Who still uses it closes it (see _give_back).
                aged, view = (None if view.users else view), None
            if view is None:
                view = _View(now_s)
                if name:
                    self._views[name] = view
            view.users += 1
        if aged is not None:
            _close(aged)
        return view

    def _give_back(self, name: str, view: _View) -> None:
        with self._lock:
            view.users -= 1
            view.used_s = self._clock()
            is_kept = bool(name) and self._views.get(name) is view and view.files is not None
            if not is_kept and self._views.get(name) is view and not view.users:
                del self._views[name]
            ends = not is_kept and not view.users
        if ends:
            _close(view)
        self.tidy()


def _close(view: _View) -> None:
    if view.files is not None:
        view.files.close()
        view.files = None
