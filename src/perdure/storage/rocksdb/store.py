"""The product's store: one RocksDB database per shard, behind ``storage.contract.Database``.

Joins the parts: the engine (tables of bytes), generations and layouts (the log), the
expansion of batches (writing), sessions and retained (reading). Knows nothing of MQTT sessions but
their records.

A write is one atomic RocksDB batch: rows, new nodes of topic structures, counters and the high
marks. If it fails, memory is as before it, and every later write fails fast until ``recover`` has
closed the database, opened it again and proved with a write and a sync that the disk works.

Invariant: what the members remember (offsets, owners, counts, tail, structures) equals what the
last applied batch left on disk, but for offsets that were allocated and never written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, final

from perdure.clock import SystemClock
from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageError
from perdure.limits import OFFSET_MAX
from perdure.model import InboxEntry
from perdure.storage.batch import Batch, apply, give_offsets
from perdure.storage.capabilities import EMBEDDED, Capabilities
from perdure.storage.codec import decode_group, decode_retained
from perdure.storage.contract import GenerationInfo
from perdure.storage.fencing import stale
from perdure.storage.notes import Note
from perdure.storage.offsets import Offsets
from perdure.storage.retained_walk import retained_key
from perdure.storage.rocksdb import keys, layout_bitmask, layout_v1, retained
from perdure.storage.rocksdb.directory import DirectoryLock
from perdure.storage.rocksdb.engine import (
    FIXED_TABLES,
    META,
    RETAINED,
    STATE,
    Engine,
    EngineFactory,
    Operations,
    prefix_end,
)
from perdure.storage.rocksdb.expand import Expansion, InboxFloors
from perdure.storage.rocksdb.generations import Generations
from perdure.storage.rocksdb.handle import EngineHandle
from perdure.storage.rocksdb.layout_v1 import SkipScanLayout
from perdure.storage.rocksdb.log import LogReader, fill_tail
from perdure.storage.rocksdb.marks import Marks
from perdure.storage.rocksdb.opening import (
    FORMAT,
    DatabaseFormat,
    bring_up,
    create,
    open_beside,
    read_format,
)
from perdure.storage.rocksdb.owners import Owners
from perdure.storage.rocksdb.read_side import ReadSide
from perdure.storage.rocksdb.sessions import SessionReader
from perdure.storage.rocksdb.survey import Torn
from perdure.storage.tail import Tail
from perdure.topic.proposal import Structure, check_structure

LAYOUTS: Final = {"skipscan": layout_v1.LAYOUT, "bitmask": layout_bitmask.LAYOUT}


@final
class RocksDatabase(ReadSide):
    """A ``storage.contract.Database`` in a directory. Made by ``open``."""

    def __init__(
        self,
        path: Path,
        *,
        config: RocksdbConfig,
        lock: DirectoryLock | None,
        engine: EngineFactory,
    ) -> None:
        handle = EngineHandle(path, config, lock=lock, engine=engine)
        generations = Generations(
            handle.use, layout=LAYOUTS[config.layout], thresholds=config.learn_thresholds
        )
        self._owners = Owners(handle.use)
        self._offsets = Offsets()
        self._tail = Tail(messages_max=config.tail_messages, bytes_max=config.tail_bytes, floor=0)
        super().__init__(
            handle,
            generations,
            LogReader(generations, self._tail, self._offsets),
            SessionReader(handle.use, self._owners),
        )
        self._floors = InboxFloors()
        self._swept_key = b""
        self.on_sequenced: Callable[[], None] | None = None
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
            return open_beside(
                path, config, lambda wide: cls._open_once(path, wide, engine, now_us=0, lock=None)
            )
        lock = DirectoryLock(path)
        try:
            return cls._open_once(path, config, engine, now_us=now_us, lock=lock)
        except BaseException:
            lock.release()
            raise

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
        database = cls(path, config=config, lock=lock, engine=engine)
        at_us = SystemClock().now_us() if now_us is None else now_us
        database._handle.begin(lambda: database._load(at_us))
        return database

    def close(self) -> None:
        self._handle.close()

    def _load(self, now_us: int) -> int:
        """Take over what is on the disk; returns the number of the last commit."""
        handle = self._handle
        engine = handle.use()
        found = read_format(engine, handle.path)
        if found is None:
            found = create(
                engine,
                handle.path,
                self._generations,
                is_new=handle.watched is not None and handle.watched.is_new,
                now_us=now_us,
            )
        else:
            self._generations.load(read_only=handle.read_only)
            if not handle.read_only:
                found = bring_up(engine, found)
        self.format = found
        self._marks = Marks.decode(engine.get(META, keys.HIGH))
        self._offsets.last = max(self._offsets.last, self._marks.last_offset)
        self._tail.clear(self._marks.last_offset)
        return self._marks.commit

    @property
    def torn(self) -> Torn | None:
        """What the last start has cut off the end of the logs; None = nothing."""
        watched = self._handle.watched
        return None if watched is None else watched.torn

    @property
    def has_record(self) -> bool:
        """Whether it was known, at the last start, how far the database had been synced."""
        watched = self._handle.watched
        return watched is None or watched.has_record

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
            fill_tail(self._tail, self._handle.use(), current, current.layout, last)
        except StorageError:
            self._tail.clear(last)
            raise

    # -- writing ---------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        return EMBEDDED

    @property
    def last_offset(self) -> int:
        return self._offsets.last

    def submit(self, batch: Batch, now_us: int) -> None:
        self._handle.refuse_if_failed()
        give_offsets(batch, self._offsets, now_us)
        if batch.is_empty():
            batch.is_sequenced = True
            return
        self._write(batch, [])

    def apply(self, batch: Batch, notes: Sequence[Note] = ()) -> None:
        """Write a batch that has its offsets; see ``ordered.local.Local``."""
        self._handle.refuse_if_failed()
        rows: Operations = []
        for key, value in notes:
            rows += (META, keys.NOTE + key, value)
        self._write(batch, rows)

    def _write(self, batch: Batch, operations: Operations) -> None:
        """Write a batch, and other rows with it."""
        expansion = None
        if batch.operations:
            batch.refused = stale(batch.operations, self._owners.epoch)
            expansion = Expansion(self._handle.use(), self._floors, self._owners)
            apply(batch.held(), expansion)
            operations += expansion.rows
        generation, rows = self._generations.current, batch.rows
        if rows is not None:
            rows = generation.layout.append_rows(operations, rows)
        elif batch.messages:
            rows = generation.layout.append(operations, batch.messages)
        if rows is not None:
            operations += generation.layout.unpersisted()
            generation.stage_counts(operations, rows)
        self._apply(
            operations,
            sessions_delta=expansion.sessions_delta if expansion else 0,
            retained_delta=expansion.retained_delta if expansion else 0,
            retained_bytes_delta=expansion.retained_bytes_delta if expansion else 0,
        )
        if rows is not None:
            generation.layout.mark_persisted()
            generation.count(rows)
            self._tail.extend(rows)
        if expansion is not None:
            self._applied(expansion)
        batch.is_sequenced = True

    def _apply(
        self,
        operations: Operations,
        *,
        sessions_delta: int = 0,
        retained_delta: int = 0,
        retained_bytes_delta: int = 0,
    ) -> None:
        old = self._marks
        marks = Marks(
            self._offsets.last,
            old.commit + 1,
            old.session_count + sessions_delta,
            old.retained_count + retained_delta,
            old.retained_bytes + retained_bytes_delta,
        )
        operations += (META, keys.HIGH, marks.encode())
        self._handle.write(operations, commit=marks.commit)
        self._marks = marks

    def _applied(self, expansion: Expansion) -> None:
        self._owners.changed(expansion.epochs, expansion.deadlines)
        for client_id, offset in expansion.trimmed.items():
            self._floors.raise_to(client_id, offset)
        if expansion.deadline_low:
            self._sessions.deadline_put(expansion.deadline_low)
        for client_id, low in expansion.inbox_low.items():
            self._floors.put(client_id, low)

    @property
    def has_sessions(self) -> bool:
        """Whether there is any session."""
        return self.marks.session_count > 0

    def notes(self) -> list[tuple[bytes, bytes]]:
        """What was noted, by key."""
        rows = self._handle.use().items(META, keys.NOTE, prefix_end(keys.NOTE))
        return [(key[len(keys.NOTE) :], value) for key, value in rows]

    @property
    def offsets(self) -> Offsets:
        """Of its log."""
        return self._offsets

    def rewind_offsets(self) -> None:
        """Forget offsets that were given and are not in the log."""
        self._offsets.last = self._marks.last_offset

    def owner_epoch(self, client_id: str) -> int | None:
        """The epoch of a session's owner; None = there is no such session."""
        return self._owners.epoch(client_id)

    def group_turn(self, group_key: str) -> int:
        """The turn of a group's record; 0 = there is no such group."""
        value = self._handle.use().get(STATE, keys.group(group_key))
        return 0 if value is None else decode_group(value).turn

    def members_of(self, group_key: str) -> list[str]:
        """Client identifiers of a group's members."""
        return self._sessions.members_of(group_key)

    def given_after(self, client_id: str, after_offset: int) -> list[InboxEntry]:
        """What stands in a session's private stream behind an offset, tombstones too."""
        return self._sessions.inbox(client_id, after_offset, OFFSET_MAX, OFFSET_MAX)

    def retained_offset_of(self, topic: str) -> int:
        """The offset of the retained message of a topic; 0 = there is none."""
        value = self._handle.use().get(RETAINED, retained_key(topic))
        return 0 if value is None else decode_retained(topic, value).offset

    def expired_retained(self, now_us: int, *, limit: int) -> Batch:
        """A batch that deletes retained messages that have expired, of the next ``limit``."""
        topics, self._swept_key = retained.expired(
            self._handle.use(), after_key=self._swept_key, now_us=now_us, limit=limit
        )
        batch = Batch()
        for topic in topics:
            batch.delete_retained(topic)
        return batch

    def sync(self) -> None:
        self._handle.sync()

    async def recover(self) -> bool:
        return self._handle.recover(lambda: self._load(0), self._resume)

    def _resume(self, last_commit: int) -> None:
        self._owners.forget()
        self._floors.clear()
        self._sessions.forget()
        self._marks.commit = max(self._marks.commit, last_commit)
        self._apply([])

    # -- generations -----------------------------------------------------------------------

    def rotate(self, now_us: int) -> GenerationInfo:
        return self._rotate(now_us, None)

    def rotate_to(self, structure: Structure, now_us: int) -> GenerationInfo:
        check_structure(structure)
        return self._rotate(now_us, structure)

    def _rotate(self, now_us: int, structure: Structure | None) -> GenerationInfo:
        self._handle.refuse_if_failed()
        operations: Operations = []
        try:
            generation = self._generations.stage_rotation(
                operations, since=self._offsets.last + 1, now_us=now_us, structure=structure
            )
        except StorageError as error:
            self._handle.fail(error)
            raise
        old = self._generations.current
        # The header must be there before the first message is.
        self._apply(operations)
        self._generations.rotated(generation)
        self.sync()
        # A write-ahead log is there until every table has what is in it. Left alone, the small
        # tables would keep those of generations that are long dropped.
        for name in (*old.layout.tables, *FIXED_TABLES):
            self._handle.use().flush_table(name)
        return self._generations.info()[-1]

    def drop_generation(self, generation: int) -> None:
        self._handle.refuse_if_failed()
        operations: Operations = []
        until_offset = self._generations.stage_drop(operations, generation)
        self._apply(operations)
        self._tail.forget_through(until_offset - 1)
        self._log.forget()
        self.sync()
        try:
            self._generations.dropped(generation)
        except StorageError as error:
            self._handle.fail(error)
            raise

    async def sweep_retained(self, now_us: int, *, limit: int) -> int:
        batch = self.expired_retained(now_us, limit=limit)
        self.submit(batch, 0)
        return len(batch.operations)
