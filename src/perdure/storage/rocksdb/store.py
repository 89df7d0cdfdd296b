"""The product's store: one RocksDB database per shard, behind ``storage.contract.Database``.

Joins the parts: the engine (tables of bytes), generations and layouts (the log), batches and
their expansion (writing), sessions and retained (reading). Knows nothing of MQTT sessions but
their records.

A write is one atomic RocksDB batch: rows, new nodes of topic structures, counters and the high
marks. If it fails, memory is as before it, and every later write fails fast until ``recover`` has
closed the database, opened it again and proved with a write and a sync that the disk works.

Invariant: what the members remember (offsets, owners, counts, tail, structures) equals what the
last applied batch left on disk, but for offsets that were allocated and never written.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, final

import msgspec

from perdure.clock import SystemClock
from perdure.config.schema import RocksdbConfig
from perdure.errors import (
    Fenced,
    FormatTooNew,
    StorageCorrupt,
    StorageError,
    StorageUnavailable,
    UsageError,
)
from perdure.model import GroupRecord, InboxEntry, Message, SessionRecord, StoredSession
from perdure.storage.codec import decode_record, decode_retained, encode_record
from perdure.storage.contract import (
    Batch,
    Finding,
    GenerationInfo,
    ReadResult,
    RetainedPage,
    StreamInfo,
)
from perdure.storage.retained_walk import retained_key
from perdure.storage.rocksdb import keys, layout_bitmask, layout_v1, retained
from perdure.storage.rocksdb.batch import RocksBatch
from perdure.storage.rocksdb.check import Checker
from perdure.storage.rocksdb.directory import DirectoryLock, manifest_stamp, probe
from perdure.storage.rocksdb.engine import FIXED_TABLES, META, RETAINED, Engine, Operations
from perdure.storage.rocksdb.expand import Expansion, InboxFloors
from perdure.storage.rocksdb.generations import Generations
from perdure.storage.rocksdb.layout_v1 import SkipScanLayout
from perdure.storage.rocksdb.log import LogReader, fill_tail
from perdure.storage.rocksdb.marks import Marks, Offsets
from perdure.storage.rocksdb.owners import Owners
from perdure.storage.rocksdb.sessions import SessionReader
from perdure.storage.rocksdb.status import named
from perdure.storage.tail import Tail
from perdure.topic.proposal import Structure, check_structure

FORMAT: Final = 1
"""Version of the database as a whole; layouts and records have their own."""

LAYOUTS: Final = {"skipscan": layout_v1.LAYOUT, "bitmask": layout_bitmask.LAYOUT}

EngineFactory = Callable[..., Engine]

_OPEN_ATTEMPTS: Final = 100
"""Of a reader beside a broker; one fails if a flush or compaction ends within its 10 to 50 ms."""


class DatabaseFormat(msgspec.Struct, frozen=True, array_like=True):
    """What a database is: written once."""

    version: int
    database_id: str
    created_at_us: int


_format_decoder = msgspec.msgpack.Decoder(DatabaseFormat)


@final
class RocksDatabase:
    """A ``storage.contract.Database`` in a directory. Made by ``open``."""

    def __init__(
        self,
        path: Path,
        *,
        config: RocksdbConfig,
        read_only: bool,
        lock: DirectoryLock | None,
        engine: EngineFactory,
    ) -> None:
        self._path = path
        self._config = config
        self._read_only = read_only
        self._lock = lock
        self._engine_factory = engine
        self._engine: Engine | None = engine(path, config, read_only=read_only)
        # Held while the engine is used from another thread, and while it is replaced.
        self._engine_lock = threading.Lock()
        self._failure: StorageError | None = None
        self._closed = False
        self._synced_commit = 0
        self._marks = Marks()
        self._offsets = Offsets(0)
        self._owners = Owners(self._use)
        self._floors = InboxFloors()
        self._sessions = SessionReader(self._use)
        self._generations = Generations(
            self._use, layout=LAYOUTS[config.layout], thresholds=config.learn_thresholds
        )
        self._tail = Tail(messages_max=config.tail_messages, bytes_max=config.tail_bytes, floor=0)
        self._log = LogReader(self._generations, self._tail, self._offsets)
        self._swept_key = b""
        self.format = DatabaseFormat(FORMAT, "", 0)

    # -- opening and closing ---------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        config: RocksdbConfig | None = None,
        read_only: bool = False,
        now_us: int | None = None,
        engine: EngineFactory = Engine,
    ) -> RocksDatabase:
        """Open a directory, or make a new database in it.

        Args:
            path: the data directory.
            config: sizes, and the layout of new generations.
            read_only: see what is there now, also beside the broker that writes it.
            now_us: wall time, for a new database; None = the clock of the machine.
            engine: what opens RocksDB.

        Raises:
            StorageLocked: another process has it open for writing.
            FormatTooNew: a later release wrote it.
            StorageCorrupt: it is not a database of ours, or is damaged.
            StorageFull, StorageUnavailable: the disk does not let us.
        """
        path = Path(path)
        config = config or RocksdbConfig()
        if read_only:
            return cls._open_beside(path, config, engine)
        lock = DirectoryLock(path)
        try:
            return cls._open_once(path, config, engine, now_us=now_us, lock=lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _open_beside(
        cls, path: Path, config: RocksdbConfig, engine: EngineFactory
    ) -> RocksDatabase:
        """Open read-only what a broker may be writing.

        RocksDB reads the list of table files first and the write-ahead logs after it. What the
        broker flushes in between is in neither: such a view has holes, and is not used.
        """
        if not (path / "CURRENT").exists():
            raise StorageUnavailable(f"{path} holds no database")
        # All files are opened at once: those that a compaction deletes later stay readable.
        config = msgspec.structs.replace(config, max_open_files=-1)
        for _ in range(_OPEN_ATTEMPTS):
            stamp = manifest_stamp(path)
            try:
                database = cls._open_once(path, config, engine, now_us=0, lock=None)
            except StorageError as error:
                if manifest_stamp(path) == stamp:
                    raise named(error, path) from error
                continue
            if manifest_stamp(path) == stamp:
                return database
            database.close()
        raise StorageUnavailable(
            f"{path} changes too fast to be read", hint="try again when the broker has less to do"
        )

    @classmethod
    def _open_once(
        cls,
        path: Path,
        config: RocksdbConfig,
        engine: EngineFactory,
        *,
        now_us: int | None,
        lock: DirectoryLock | None,
    ) -> RocksDatabase:
        database = cls(path, config=config, read_only=lock is None, lock=lock, engine=engine)
        try:
            database._load(SystemClock().now_us() if now_us is None else now_us)
        except BaseException:
            if database._engine is not None:
                database._engine.abandon()
            raise
        return database

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            with self._engine_lock:
                engine, self._engine = self._engine, None
                if engine is not None and (self._failure is not None or self._read_only):
                    engine.abandon()
                elif engine is not None:
                    try:
                        engine.sync()
                    finally:
                        engine.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    def _load(self, now_us: int) -> None:
        engine = self._use()
        value = engine.get(META, keys.FORMAT)
        if value is None:
            self._create(engine, now_us)
        else:
            if value[:1] > b"\x01":
                raise FormatTooNew(f"{self._path} was written by a later release")
            self.format = decode_record(_format_decoder, "format", value)
            if self.format.version > FORMAT:
                raise FormatTooNew(
                    f"{self._path} has format {self.format.version}; this release reads {FORMAT}"
                )
            self._generations.load(read_only=self._read_only)
        self._marks = Marks.decode(engine.get(META, keys.HIGH))
        self._synced_commit = self._marks.commit
        self._offsets.last = max(self._offsets.last, self._marks.last_offset)
        self._tail.clear(self._marks.last_offset)

    def _create(self, engine: Engine, now_us: int) -> None:
        if self._read_only or next(engine.keys(META, b"", b"\xff"), None) is not None:
            raise StorageCorrupt(f"{self._path} holds a database that is not Perdure's")
        self.format = DatabaseFormat(FORMAT, uuid.uuid4().hex, now_us)
        operations: Operations = [META, keys.FORMAT, encode_record(self.format)]
        self._generations.begin(operations, now_us)
        engine.write(operations)
        engine.sync()

    def warm(self) -> None:
        """Read the newest messages of the log into memory, as if they had just been written.

        After a restart all clients come back at once and want what they missed: read in one go it
        takes a fraction of the time that each looking for its own would take.

        Raises:
            StorageError: they cannot all be read. Nothing depends on them being in memory.
        """
        current, last = self._generations.current, self._marks.last_offset
        if not isinstance(current.layout, SkipScanLayout):
            return
        try:
            fill_tail(self._tail, self._use(), current, current.layout, last)
        except StorageError:
            self._tail.clear(last)
            raise

    def _use(self) -> Engine:
        engine = self._engine
        if engine is None:
            raise StorageUnavailable(f"{self._path} is not open")
        return engine

    # -- writing ---------------------------------------------------------------------------

    @property
    def server(self) -> None:
        return None

    @property
    def last_offset(self) -> int:
        return self._offsets.last

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    @property
    def retained_count(self) -> int:
        return self._marks.retained_count

    def allocate_offset(self, now_us: int) -> int:
        return self._offsets.allocate(now_us)

    def batch(self) -> RocksBatch:
        return RocksBatch(self._offsets, self._owners, self._generations)

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, RocksBatch)
        self._refuse_if_failed()
        if batch.is_empty():
            return
        stale = batch.stale_owner()
        if stale is not None:
            raise Fenced(f"session {stale!r} has a later owner or is gone")
        expansion = None
        operations = batch.operations
        if batch.has_marks:
            expansion = Expansion(self._use(), self._floors)
            expansion.run(operations)
            operations = expansion.rows
        else:
            operations = operations.copy()
        for number, messages in batch.messages.items():
            generation = self._generations.get(number)
            if generation is not None:
                generation.layout.append(operations, messages)
                operations += generation.layout.unpersisted()
                generation.stage_counts(operations, messages)
        self._apply(
            operations,
            sessions_delta=expansion.sessions_delta if expansion else 0,
            retained_delta=expansion.retained_delta if expansion else 0,
        )
        self._applied(batch, expansion)

    def _apply(
        self, operations: Operations, *, sessions_delta: int = 0, retained_delta: int = 0
    ) -> None:
        old = self._marks
        marks = Marks(
            self._offsets.last,
            old.commit + 1,
            old.session_count + sessions_delta,
            old.retained_count + retained_delta,
        )
        operations += (META, keys.HIGH, marks.encode())
        try:
            self._use().write(operations)
        except StorageError as error:
            self._failure = error
            raise
        self._marks = marks

    def _applied(self, batch: RocksBatch, expansion: Expansion | None) -> None:
        for number, messages in batch.messages.items():
            generation = self._generations.get(number)
            if generation is not None:
                generation.layout.mark_persisted()
                generation.count(messages)
                self._tail.extend(messages)
        self._owners.changed(batch.staged)
        if expansion is not None:
            for client_id, offset in expansion.trimmed.items():
                self._floors.raise_to(client_id, offset)
            if expansion.deadline_low:
                self._sessions.deadline_put(expansion.deadline_low)
        for client_id, low in batch.inbox_low.items():
            self._floors.put(client_id, low)

    def sync(self) -> None:
        self._refuse_if_failed()
        with self._engine_lock:
            commit = self._marks.commit
            try:
                self._use().sync()
            except StorageError as error:
                # What the kernel could not write it may have thrown away: everything since the
                # last good sync is in doubt.
                self._failure = error
                raise
            self._synced_commit = max(self._synced_commit, commit)

    def _refuse_if_failed(self) -> None:
        if self._closed:
            raise StorageUnavailable(f"{self._path} is closed")
        if self._read_only:
            raise UsageError(f"{self._path} was opened read-only")
        failure = self._failure
        if failure is not None:
            raise type(failure)(failure.message, hint=failure.hint)

    async def recover(self) -> bool:
        if self._closed:
            return False
        if self._failure is None:
            return True
        # A sync that hangs on a dead disk holds the lock: there is nothing to recover yet.
        if not self._engine_lock.acquire(blocking=False):
            return False
        try:
            return self._reopen()
        finally:
            self._engine_lock.release()

    def _reopen(self) -> bool:
        written = self._marks.commit
        try:
            if self._engine is not None:
                # While the disk refuses, what is open can still be read: keep it.
                probe(self._path)
                engine, self._engine = self._engine, None
                engine.abandon()
            self._engine = self._engine_factory(self._path, self._config, read_only=False)
            synced = self._synced_commit
            try:
                self._load(0)
            except BaseException:
                # What is half loaded would answer reads with half the truth.
                engine, self._engine = self._engine, None
                engine.abandon()
                raise
            if self._marks.commit < synced:
                raise StorageCorrupt(
                    f"{self._path} came back at commit {self._marks.commit}, "
                    f"but {synced} had been synced"
                )
            self._owners.forget()
            self._floors.clear()
            self._sessions.forget()
            self._marks.commit = max(self._marks.commit, written)
            self._apply([])
            self._use().sync()
        except StorageCorrupt:
            raise
        except StorageError as error:
            self._failure = error
            return False
        self._synced_commit = self._marks.commit
        self._failure = None
        return True

    # -- the log ---------------------------------------------------------------------------

    async def read(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        bytes_max: int = 0,
    ) -> ReadResult:
        return self._log.read(filters, after_offset, until_offset, limit, bytes_max)

    async def count(
        self, filters: Sequence[str], *, after_offset: int, until_offset: int, limit: int
    ) -> int:
        return self._log.count(filters, after_offset, until_offset, limit)

    def messages_after(self, offset: int) -> int:
        return self._generations.messages_after(offset)

    def disk_bytes(self) -> int:
        total = 0
        for entry in self._path.iterdir():
            try:
                total += entry.stat().st_size
            except FileNotFoundError:  # a compaction has just replaced it
                continue
        return total

    def generations(self) -> list[GenerationInfo]:
        return self._generations.info()

    def streams(self, generation: int) -> list[StreamInfo]:
        found = self._generations.get(generation)
        if found is None:
            raise UsageError(f"generation {generation} is unknown")
        return [StreamInfo(generation, *stream) for stream in found.layout.streams()]

    def rotate(self, now_us: int) -> GenerationInfo:
        return self._rotate(now_us, None)

    def rotate_to(self, structure: Structure, now_us: int) -> GenerationInfo:
        check_structure(structure)
        return self._rotate(now_us, structure)

    def _rotate(self, now_us: int, structure: Structure | None) -> GenerationInfo:
        self._refuse_if_failed()
        operations: Operations = []
        try:
            generation = self._generations.stage_rotation(
                operations, since=self._offsets.last + 1, now_us=now_us, structure=structure
            )
        except StorageError as error:
            self._failure = error
            raise
        old = self._generations.current
        # The header must be there before the first message is.
        self._apply(operations)
        self._generations.rotated(generation)
        self.sync()
        # A write-ahead log is there until every table has what is in it. Left alone, the small
        # tables would keep those of generations that are long dropped.
        for name in (*old.layout.tables, *FIXED_TABLES):
            self._use().flush_table(name)
        return self._generations.info()[-1]

    def drop_generation(self, generation: int) -> None:
        self._refuse_if_failed()
        operations: Operations = []
        until_offset = self._generations.stage_drop(operations, generation)
        self._apply(operations)
        self._tail.forget_through(until_offset - 1)
        self.sync()
        try:
            self._generations.dropped(generation)
        except StorageError as error:
            self._failure = error
            raise

    def tables(self) -> tuple[Engine, Generations]:
        """What is open now, for ``bulk``, which reads rows and not messages."""
        return self._use(), self._generations

    def check(self) -> Iterator[Finding]:
        """Look at every row; yields what is wrong (``check.py``). Nothing may write meanwhile."""
        return Checker(self._use(), self._generations, self._marks).run()

    # -- sessions and groups ---------------------------------------------------------------

    async def open_session(self, client_id: str) -> StoredSession | None:
        return await self._sessions.open_session(client_id)

    def sessions(self, *, after: str = "") -> AsyncIterator[SessionRecord]:
        return self._sessions.sessions(after)

    async def session_count(self) -> int:
        return self._marks.session_count

    async def due_sessions(self, now_us: int, *, limit: int) -> list[SessionRecord]:
        return await self._sessions.due_sessions(now_us, limit)

    async def next_deadline_us(self) -> int:
        return await self._sessions.next_deadline_us()

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        return await self._sessions.read_inbox(
            client_id, after_offset=after_offset, until_offset=until_offset, limit=limit
        )

    async def groups(self) -> list[GroupRecord]:
        return await self._sessions.groups()

    async def group_members(self, group_key: str) -> list[str]:
        return await self._sessions.group_members(group_key)

    async def read_group_entries(
        self, group_key: str, *, limit: int, after_offset: int = 0
    ) -> list[InboxEntry]:
        return await self._sessions.read_group_entries(
            group_key, limit=limit, after_offset=after_offset
        )

    # -- retained --------------------------------------------------------------------------

    async def get_retained(self, topic: str) -> Message | None:
        value = self._use().get(RETAINED, retained_key(topic))
        return None if value is None else decode_retained(topic, value)

    async def read_retained(
        self, topic_filter: str, *, after_topic: str, limit: int, scan_max: int
    ) -> RetainedPage:
        return retained.read_page(
            self._use(), topic_filter, after_topic=after_topic, limit=limit, scan_max=scan_max
        )

    async def sweep_retained(self, now_us: int, *, limit: int) -> int:
        topics, self._swept_key = retained.expired(
            self._use(), after_key=self._swept_key, now_us=now_us, limit=limit
        )
        batch = self.batch()
        for topic in topics:
            batch.delete_retained(topic)
        self.write(batch)
        return len(topics)
