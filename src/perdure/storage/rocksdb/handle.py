"""The engine of a database: opened once, and again after each failure that it comes back from.

Knows the directory and the number of the last commit, and nothing else of what is in the tables.
A write or a sync that fails is remembered, and every later one fails fast with the same error
until ``recover`` has closed the engine, opened it again and proved with a write and a sync that
the disk works.

Invariant: a commit that was synced is there after every recovery, or the recovery fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import final

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageCorrupt, StorageError, StorageUnavailable, UsageError
from perdure.storage.rocksdb.directory import DirectoryLock, probe
from perdure.storage.rocksdb.engine import Engine, EngineFactory, Operations
from perdure.storage.rocksdb.starting import Watched, open_watched
from perdure.storage.rocksdb.status import REPAIR_HINT


@final
class EngineHandle:
    """What holds the engine, and replaces it.

    Args:
        path: the data directory.
        config: sizes.
        lock: on the directory, given back by ``close``; None = read-only.
        engine: what opens RocksDB.

    Attributes:
        path: the data directory.
        read_only: nothing can be written.
        lock: held while the engine is used from another thread, and while it is replaced.
        watched: the engine that is written to, and how far it was synced; None = read-only.
    """

    __slots__ = (
        "_closed",
        "_config",
        "_damage",
        "_directory_lock",
        "_engine",
        "_engine_factory",
        "_failure",
        "_synced_commit",
        "_written_commit",
        "lock",
        "path",
        "read_only",
        "watched",
    )

    def __init__(
        self,
        path: Path,
        config: RocksdbConfig,
        *,
        lock: DirectoryLock | None,
        engine: EngineFactory,
    ) -> None:
        self.path = path
        self.read_only = lock is None
        self.lock = threading.Lock()
        self._config = config
        self._directory_lock = lock
        self._engine_factory = engine
        self._engine: Engine | None = None
        self.watched: Watched | None = None
        self._open()
        self._failure: StorageError | None = None
        self._damage = ""
        self._closed = False
        self._written_commit = 0
        self._synced_commit = 0

    def _open(self) -> None:
        if self.read_only:
            self._engine = self._engine_factory(self.path, self._config, read_only=True)
            return
        self.watched = open_watched(
            self.path, lambda: self._engine_factory(self.path, self._config, read_only=False)
        )
        self._engine = self.watched.engine

    def begin(self, load: Callable[[], int]) -> None:
        """Take what memory holds from an engine that was just opened.

        Args:
            load: reads it; returns the number of the last commit that is there.
        """
        try:
            self._written_commit = self._synced_commit = load()
            if self.watched is not None and self.watched.is_new:
                # From now on the directory is a database that may not lose anything.
                self._sync()
        except BaseException:
            self._abandon()
            raise

    @property
    def has_failed(self) -> bool:
        """Whether writes and syncs are refused until ``recover``."""
        return self._failure is not None

    def use(self) -> Engine:
        """The engine, until the next ``recover`` or ``close``.

        Raises:
            StorageUnavailable: there is none now.
        """
        engine = self._engine
        if engine is None:
            raise StorageUnavailable(f"{self.path} is not open")
        return engine

    # -- writing ---------------------------------------------------------------------------

    def refuse_if_failed(self) -> None:
        """Let only go on who may write.

        Raises:
            StorageError: an earlier write or sync failed, or the database is closed.
            UsageError: it was opened read-only.
        """
        if self._closed:
            raise StorageUnavailable(f"{self.path} is closed")
        if self.read_only:
            raise UsageError(f"{self.path} was opened read-only")
        failure = self._failure
        if failure is not None:
            raise type(failure)(failure.message, hint=failure.hint)

    def fail(self, error: StorageError) -> None:
        """Refuse writes from now on: what is on the disk may not be what memory holds."""
        self._failure = error

    def write(self, operations: Operations, *, commit: int) -> None:
        """Apply a batch that is one commit; all of it or nothing."""
        try:
            self.use().write(operations)
        except StorageError as error:
            self._failure = error
            raise
        self._written_commit = commit

    def sync(self) -> None:
        """Make every commit before this call safe against power loss."""
        self.refuse_if_failed()
        with self.lock:
            commit = self._written_commit
            try:
                self._sync()
            except StorageError as error:
                # What the kernel could not write it may have thrown away: everything since the
                # last good sync is in doubt.
                self._failure = error
                raise
            self._synced_commit = max(self._synced_commit, commit)

    # -- failing, recovering and closing ---------------------------------------------------

    def recover(self, load: Callable[[], int], resume: Callable[[int], None]) -> bool:
        """After a failure, try to become writable again; see ``storage.contract.Database``.

        Args:
            load: as in ``begin``.
            resume: forgets what else memory held and writes a commit, later than the given one,
                which is the last that was ever written.
        """
        if self._closed:
            return False
        if self._failure is None:
            return True
        self._refuse_if_damaged(self._failure)
        # A sync that hangs on a dead disk holds the lock: there is nothing to recover yet.
        if not self.lock.acquire(blocking=False):
            return False
        try:
            self._reopen(load)
            resume(self._written_commit)
            self._sync()
        except StorageCorrupt:
            raise
        except StorageError as error:
            self._failure = error
            return False
        finally:
            self.lock.release()
        self._synced_commit = self._written_commit
        self._failure = None
        return True

    def _refuse_if_damaged(self, failure: StorageError) -> None:
        """Open a database anew for damage once: it may be what was read that was wrong.

        A merge of RocksDB's that meets a damaged block has all writes refused, and meets it again
        when the database was opened anew: a broker that comes back for a moment each time would say
        that it takes writes, and take none.

        Raises:
            StorageCorrupt: the same damage was met before.
        """
        if not isinstance(failure, StorageCorrupt):
            return
        if failure.message == self._damage:
            raise StorageCorrupt(
                f"{failure.message}: met again after the database was opened anew, so nothing is "
                "written any more",
                hint=f"stop the broker; {REPAIR_HINT}",
            )
        self._damage = failure.message

    def _reopen(self, load: Callable[[], int]) -> None:
        if self._engine is not None:
            # While the disk refuses, what is open can still be read: keep it.
            probe(self.path)
            self._abandon()
        self._open()
        try:
            commit = load()
        except BaseException:
            # What is half loaded would answer reads with half the truth.
            self._abandon()
            raise
        if commit < self._synced_commit:
            raise StorageCorrupt(
                f"{self.path} came back at commit {commit}, "
                f"but {self._synced_commit} had been synced"
            )
        self._synced_commit = commit

    def _sync(self) -> None:
        watched = self.watched
        if watched is None:
            raise StorageUnavailable(f"{self.path} is not open")
        watched.sync()

    def _abandon(self) -> None:
        engine, self._engine = self._engine, None
        watched, self.watched = self.watched, None
        if watched is not None:
            watched.abandon()
        elif engine is not None:
            engine.abandon()

    def close(self) -> None:
        """Sync and close, unless that would be in vain; then give the directory back."""
        if self._closed:
            return
        self._closed = True
        try:
            with self.lock:
                if self._failure is not None or self.read_only:
                    self._abandon()
                    return
                self._engine = None
                watched, self.watched = self.watched, None
                if watched is not None:
                    watched.close()
        finally:
            if self._directory_lock is not None:
                self._directory_lock.release()
