"""Opens the durable state that the configuration names, in the process or in a server.

The drivers are imported when they are asked for: each needs an extra that others do without.
"""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from perdure.backup.staging import sweep_checkpoints
from perdure.clock import SystemClock
from perdure.config.backends import load
from perdure.config.schema import Config, StorageConfig
from perdure.errors import StorageError, StorageFull, StorageUnavailable
from perdure.observe.logs import get_logger
from perdure.storage.contract import Database
from perdure.storage.remote.driver import IDENTITY_FILE, Driver
from perdure.storage.remote.store import RemoteDatabase, Settings
from perdure.storage.rocksdb.directory import DirectoryLock, log_bytes
from perdure.storage.rocksdb.engine import Engine, EngineFactory
from perdure.storage.rocksdb.store import RocksDatabase

log = get_logger("storage")

Opens: TypeAlias = Callable[[StorageConfig, EngineFactory], Database]

RETRY_S: Final = 0.5
MIB: Final = 1024 * 1024
OPEN_BYTES_MIN: Final = 4 * MIB
"""What opening a database writes at most besides its write-ahead log."""


def open_embedded(config: Config, *, engine: EngineFactory = Engine) -> Database:
    """Open the state that is in this process or in a directory.

    Raises:
        StorageError: the directory is locked, damaged or not writable.
    """
    storage = config.storage
    opens: Opens = load(storage.backend, storage.traits.opens)
    return opens(storage, engine)


def open_rocksdb(storage: StorageConfig, engine: EngineFactory) -> Database:
    """Open the database in a directory; see ``open_embedded``."""
    path = Path(storage.path)
    try:
        database = RocksDatabase.open(path, config=storage.rocksdb, engine=engine)
    except (StorageFull, StorageUnavailable) as error:
        if isinstance(error, StorageUnavailable) and os.strerror(errno.ENOSPC) not in str(error):
            raise
        hint = "make room on it, or make it larger: no file of the data directory may go"
        raise StorageFull(no_room(path), hint=hint) from error
    _tell_start(database)
    # What a backup that was killed has left keeps files that the log has dropped.
    sweep_checkpoints(path)
    try:
        database.warm()
    except StorageError as error:
        # Who wants what cannot be read is told so; all others are served.
        log.warning("storage.tail_unread", error=str(error))
    return database


def no_room(path: Path) -> str:
    """What a start needs and does not find: the write-ahead log becomes table files."""
    needed = OPEN_BYTES_MIN + log_bytes(path)
    resolved = path.resolve()
    steps = [step for step in (resolved, *resolved.parents) if step.exists()]
    space = os.statvfs(steps[0])
    free = space.f_bavail * space.f_frsize
    mount = next(step for step in steps if os.path.ismount(step))
    return (
        f"no space left for {path}: the start needs about {-(-needed // MIB)} MiB, and the file "
        f"system {mount} has {free // MIB} MiB free"
    )


def _tell_start(database: RocksDatabase) -> None:
    """Log what a power cut has taken, and what could not be known."""
    torn = database.torn
    if torn is not None:
        report = log.error if torn.was_synced else log.warning
        report(
            "storage.end_lost" if torn.was_synced else "storage.end_torn",
            file=torn.file,
            kept_bytes=torn.keep_bytes,
            dropped_bytes=torn.dropped_bytes,
            dropped_writes=torn.dropped_writes,
            missing_synced_writes=torn.missing_writes,
            hint="the disk lost what it had reported as synced: check its write cache"
            if torn.was_synced
            else "the end of the write-ahead log was not synced when the power went",
        )
    if not database.has_record:
        log.warning(
            "storage.end_unknown",
            hint="perdure.synced was missing or damaged: it was not checked whether the newest "
            "writes are there",
        )


class RemoteStore:
    """A database in a server, and the data directory whose lock says that we are the only one
    there.

    Attributes:
        database: the database.
    """

    def __init__(self, database: RemoteDatabase, lock: DirectoryLock) -> None:
        self.database = database
        self._lock = lock

    async def close(self) -> None:
        """Deliver what is written and give the server back."""
        try:
            await self.database.stop()
        finally:
            self._lock.release()


async def open_remote(config: Config) -> RemoteStore:
    """Open the state that is in a server, waiting for one that is not there yet.

    Raises:
        ConfigError: the URL or the password is wrong, or the extra is not installed.
        StorageLocked: another broker has it.
        StorageError: the server was not there in time, or cannot be used.
    """
    storage = config.storage
    section = storage.server
    lock = DirectoryLock(Path(storage.path))
    try:
        identity = await asyncio.to_thread(identity_of, Path(storage.path))
        settings = Settings(
            outage_max_s=float(section.outage_max_s), pending_bytes_max=section.pending_bytes_max
        )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + section.connect_timeout_s
        is_logged = False
        while True:
            driver = make_driver(storage, identity)
            try:
                database = await RemoteDatabase.open(
                    driver, now_us=SystemClock().now_us(), settings=settings
                )
                return RemoteStore(database, lock)
            except StorageError as error:
                if not error.retriable:
                    raise
                if loop.time() >= deadline:
                    # Not retriable any more: whoever started us has to look.
                    raise StorageError(
                        f"{error.message} (waited {section.connect_timeout_s} s)",
                        hint=error.hint or f"is the server running? storage.{storage.backend}.url",
                    ) from error
                if not is_logged:
                    log.warning("storage.waiting", server=driver.place, error=error.message)
                    is_logged = True
            await asyncio.sleep(RETRY_S)
    except BaseException:
        lock.release()
        raise


def make_driver(storage: StorageConfig, identity: str) -> Driver:
    """The driver of a configured server.

    Args:
        storage: with a backend that is in a server.
        identity: who this broker is to the server.

    Raises:
        ConfigError: the URL is wrong, or the extra is not installed.
    """
    kind = load(storage.backend, storage.traits.driver)
    driver: Driver = kind.configured(storage.server, identity)
    return driver


def identity_of(path: Path) -> str:
    """Who this broker is: made once for each data directory."""
    file = path / IDENTITY_FILE
    try:
        kept = file.read_text(encoding="ascii").strip()
    except OSError:
        kept = ""
    if kept:
        return kept
    made = uuid.uuid4().hex
    try:
        file.write_text(made + "\n", encoding="ascii")
    except OSError as error:
        raise StorageUnavailable(f"{file} cannot be written: {error.strerror}") from error
    return made
