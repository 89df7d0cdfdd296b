"""RocksDB as this room sees it: named tables of bytes, one atomic write, one sync.

With ``iterators`` and ``borrowed`` the only module that imports ``rocksdict``. A test that wants a
disk to fail replaces the ``Engine``; everything above it knows tables by name only, so the database
can be closed and opened again underneath (``recover``) while batches are open.

Facts about rocksdict 0.3.29 that shape it: ``write`` holds the GIL even through a synced write,
``flush_wal(True)`` gives it up, so writes are never synced by themselves. A reference to a column
family or to an iterator keeps the directory locked after ``close``, so none leaves this module
for longer than one call above. Errors are bare ``Exception`` with RocksDB's status as text.

Invariant: nothing is ever written to a table that does not exist; RocksDB would refuse all later
writes.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import rocksdict

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageError
from perdure.storage.rocksdb.blocks import LiveFile
from perdure.storage.rocksdb.borrowed import Borrowed, needs_borrowing
from perdure.storage.rocksdb.iterators import Seeker, bounded, chunks, items, keys, last_key
from perdure.storage.rocksdb.manifest import refuse_garbled
from perdure.storage.rocksdb.status import storage_error
from perdure.storage.rocksdb.writes import fill

META: Final = "default"
STATE: Final = "state"
INBOX: Final = "inbox"
RETAINED: Final = "retained"
ALL_END: Final = b"\xff" * 64
"""Behind every key of a fixed table."""

FIXED_TABLES: Final = (META, STATE, INBOX, RETAINED)

WAL_BYTES_MAX: Final = 64 * 1024 * 1024
"""Write-ahead log after which memory is flushed to tables: it bounds the time of a start."""

_SMALL_BUFFER_BYTES: Final = 4 * 1024 * 1024

_LOG_BUFFER_SHARE: Final = 4
_INDEX_BUFFER_SHARE: Final = 16
"""Parts of ``write_buffer_bytes`` for the tables of a generation. Index rows come in no order, and
a small sorted list that stays in the processor's cache takes them for half the cost; the rows of
a stream ascend, and their list may be long."""

_LOG_FILES_MERGED: Final = 16
"""Files of a log table that are merged at once: it is read seldom, and dropped as a whole."""
_LOG_FILES_SLOW: Final = 40  # such files from which on writes wait for that

_FILES_PER_THREAD: Final = 64
_OPENING_THREADS_MAX: Final = 16

_METADATA_BLOCK_BYTES: Final = 4096
"""A part of an index or a filter."""

_TABLE_FILE_BYTES: Final = 16 * 1024 * 1024
"""A table file that a merge begins the next one after. It is synced as a whole when it is written,
and every sync of the log waits behind that: 130 ms for 64 MiB on a disk with 500 MB/s. RocksDB can
write to the disk bit by bit (``bytes_per_sync``), but not as it is built here."""

_INFO_LOG_BYTES_MAX: Final = 1024 * 1024
_INFO_LOG_COUNT: Final = 3
_MANIFEST_BYTES: Final = 64 * 1024
_MANIFEST_BYTES_MAX: Final = 8 * 1024 * 1024
"""A manifest after which a new one begins: a start reads all of it, twice."""

Operations = list[Any]
"""A flat list: table name, key, value (None = delete), table name, key, ..."""


class Engine:
    """One open RocksDB database.

    Args:
        path: its directory; made if it is not there (unless read-only).
        config: sizes.
        read_only: open what is there, beside a writer too; later writes are not seen.
        follows: with ``read_only``: they are, after ``catch_up``.
        mapped: read table files through the memory map: a block picked out costs a third less, a
            scan a tenth; but a disk that fails kills the process instead of raising an error.
    """

    def __init__(
        self,
        path: Path,
        config: RocksdbConfig,
        *,
        read_only: bool = False,
        follows: bool = False,
        mapped: bool = False,
    ) -> None:
        self._config = config
        self._follows = follows
        self._cache = rocksdict.Cache(config.cache_bytes)
        self._buffers = rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(
            config.write_buffer_bytes, False, self._cache
        )
        self._borrowed: Borrowed | None = None
        try:
            options = self._database_options()
            if read_only:
                # A broker may be in the middle of a record.
                options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.point_in_time())
                options.set_max_file_opening_threads(_opening_threads(path))
                options.set_allow_mmap_reads(mapped)
            if read_only and needs_borrowing(path):
                self._borrowed = Borrowed(path)
                self._database, names = self._borrowed.opened(
                    options, lambda home: self._open(home, options, read_only=True)
                )
            else:
                self._database, names = self._open(path, options, read_only=read_only)
            self._tables = {name: self._database.get_column_family(name) for name in names}
            self._handles = {name: self._database.get_column_family_handle(name) for name in names}
        except Exception as error:
            if self._borrowed is not None:
                self._borrowed.close()
            raise storage_error(error) from error

    def _open(
        self, path: Path, options: rocksdict.Options, *, read_only: bool
    ) -> tuple[rocksdict.Rdict, set[str]]:
        """The database, and the names of its tables."""
        names = set(FIXED_TABLES)
        if (path / "CURRENT").exists():
            refuse_garbled(path)
            existing = set(rocksdict.Rdict.list_cf(str(path), options))
            names = existing if read_only else names | existing
        tables = {name: self._table_options(name) for name in names if name != META}
        if not self._follows:
            access = (
                rocksdict.AccessType.read_only(False)
                if read_only
                else rocksdict.AccessType.read_write()
            )
            return rocksdict.Rdict(str(path), options, tables, access), names
        # Only RocksDB's own log is written there, into a file that is gone when this returns: a
        # process of Spark's may end without cleaning up.
        with tempfile.TemporaryDirectory(prefix="perdure-follow-") as notes:
            access = rocksdict.AccessType.secondary(notes)
            return rocksdict.Rdict(str(path), options, tables, access), names

    @property
    def tables(self) -> set[str]:
        """Names of the tables that exist."""
        return set(self._tables)

    def catch_up(self) -> None:
        """Read what the writer has added; tables that it made since are not there.

        What it adds while this runs may be seen in part; ``directory.manifest_stamp`` tells.

        Raises:
            StorageUnavailable: it cannot; open the database anew.
        """
        try:
            self._database.try_catch_up_with_primary()
        except Exception as error:
            raise storage_error(error) from error

    # -- writing ---------------------------------------------------------------------------

    def write(self, operations: Operations) -> None:
        """Apply operations together, in their order; those on a dropped table are left out.

        Raises:
            StorageFull, StorageUnavailable: none of them was applied, and no later write will be.
        """
        batch = rocksdict.WriteBatch(raw_mode=True)
        fill(batch, operations, self._handles)
        try:
            self._database.write(batch)
        except Exception as error:
            raise storage_error(error) from error

    def sync(self) -> None:
        """Make every write so far safe against power loss; gives up the GIL."""
        try:
            self._database.flush_wal(True)
        except Exception as error:
            raise storage_error(error) from error

    def sequence(self) -> int:
        """RocksDB's number of the last write; each row that is written has the next one."""
        return int(self._database.latest_sequence_number())

    def create_table(self, name: str) -> None:
        """Make a table that does not exist."""
        try:
            self._tables[name] = self._database.create_column_family(
                name, self._table_options(name)
            )
            self._handles[name] = self._database.get_column_family_handle(name)
        except Exception as error:
            raise storage_error(error) from error

    def replace_range(self, name: str, first: bytes, end: bytes, rows: Operations) -> None:
        """Put rows in the place of all that a table has in ``[first, end)``; for a repair."""
        try:
            self._tables[name].delete_range(first, end)
        except Exception as error:
            raise storage_error(error) from error
        self.write(rows)
        # A range that was deleted is then known from the file (``blocks``).
        try:
            self._tables[name].flush(True)
        except Exception as error:
            raise storage_error(error) from error

    def drop_table(self, name: str) -> None:
        """Delete a table; its space is free when this returns."""
        self._handles.pop(name, None)
        self._tables.pop(name, None)
        try:
            self._database.drop_column_family(name)
        except Exception as error:
            raise storage_error(error) from error

    def flush_table(self, name: str) -> None:
        """Begin to write what a table has in memory to a file."""
        try:
            self._tables[name].flush(False)
        except Exception as error:
            raise storage_error(error) from error

    # -- reading ---------------------------------------------------------------------------

    def get(self, table: str, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        try:
            value: bytes | None = self._tables[table].get(key)
        except Exception as error:
            raise storage_error(error) from error
        return value

    def get_many(self, table: str, row_keys: list[bytes]) -> list[bytes | None]:
        """The values of many keys, None where there is none; cheaper than one by one."""
        many: Any = row_keys
        try:
            values: Any = self._tables[table].get(many)
        except Exception as error:
            raise storage_error(error) from error
        found: list[bytes | None] = values
        return found

    def items(self, table: str, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values in ``[first, end)``; to be used up or dropped before the next await."""
        return items(self._tables[table], first, end)

    def keys(self, table: str, first: bytes, end: bytes) -> Iterator[bytes]:
        """Keys in ``[first, end)``."""
        return keys(self._tables[table], first, end)

    def chunks(self, table: str, first: bytes, end: bytes) -> Iterator[list[bytes]]:
        """Keys and values in ``[first, end)``, in turn, some rows at a time: the fastest way to
        all of them."""
        return chunks(self._tables[table], first, end)

    def last_key(self, table: str, first: bytes, end: bytes) -> bytes | None:
        """The last key in ``[first, end)``, or None."""
        return last_key(self._tables[table], first, end)

    def seeker(self, table: str, end: bytes) -> Seeker:
        """An iterator that can jump, over the keys below ``end``."""
        options = bounded(end)
        return Seeker(self._tables[table].iter(options), options)

    def live_files(self) -> list[LiveFile]:
        """The table files, of all tables."""
        try:
            found = self._database.live_files()
        except Exception as error:
            raise storage_error(error) from error
        keys = ("name", "start_key", "end_key")
        return [LiveFile(*(each[key] for key in keys)) for each in found]

    def deletes_in_memory(self, table: str) -> int:
        """How many rows of a table were deleted since it was last written to a file."""
        return sum(
            self._tables[table].property_int_value(f"rocksdb.num-deletes-{which}") or 0
            for which in ("active-mem-table", "imm-mem-tables")
        )

    def table_bytes(self, name: str) -> int:
        """Approximate size of a table, in files and in memory."""
        table = self._tables.get(name)
        if table is None:
            return 0
        return sum(
            table.property_int_value(f"rocksdb.{value}") or 0
            for value in ("total-sst-files-size", "cur-size-all-mem-tables")
        )

    # -- closing ---------------------------------------------------------------------------

    def close(self) -> None:
        """Close the database and release its directory.

        Raises:
            StorageError: something was not written; the directory is released all the same.
        """
        self._tables.clear()
        self._handles.clear()
        database = self._database
        del self._database
        try:
            database.close()
        except Exception as error:
            raise storage_error(error) from error
        finally:
            if self._borrowed is not None:
                self._borrowed.close()

    def abandon(self) -> None:
        """Release the directory of a database that failed, or that was only read."""
        with contextlib.suppress(StorageError):
            self.close()

    # -- options ---------------------------------------------------------------------------

    def _database_options(self) -> rocksdict.Options:
        options = self._table_options(META)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_write_buffer_manager(self._buffers)
        options.set_max_total_wal_size(WAL_BYTES_MAX)
        options.set_max_open_files(self._config.max_open_files)
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(_INFO_LOG_COUNT)
        options.set_max_log_file_size(_INFO_LOG_BYTES_MAX)
        options.set_manifest_preallocation_size(_MANIFEST_BYTES)
        options.set_max_manifest_file_size(_MANIFEST_BYTES_MAX)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        # RocksDB drops nothing: what a power cut left at the end was cut off before (``starting``).
        options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.absolute_consistency())
        return options

    def _table_options(self, name: str) -> rocksdict.Options:
        options = rocksdict.Options(raw_mode=True)
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(self._cache)
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        if not name.endswith(".data"):
            # Of a message's row nobody asks whether it is there.
            table.set_bloom_filter(10, False)
        # In parts: the index or the filter of a large file, in one piece, is more than a shard of
        # the cache keeps, and would be read and checked anew for each key.
        table.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
        table.set_partition_filters(True)
        table.set_metadata_block_size(_METADATA_BLOCK_BYTES)
        table.set_pin_top_level_index_and_filter(True)
        options.set_block_based_table_factory(table)
        is_log = name not in FIXED_TABLES
        if is_log:
            share = _INDEX_BUFFER_SHARE if name.endswith(".index") else _LOG_BUFFER_SHARE
            options.set_write_buffer_size(self._config.write_buffer_bytes // share)
            options.set_level_zero_file_num_compaction_trigger(_LOG_FILES_MERGED)
            options.set_level_zero_slowdown_writes_trigger(_LOG_FILES_SLOW)
            options.set_level_zero_stop_writes_trigger(2 * _LOG_FILES_SLOW)
        else:
            options.set_write_buffer_size(_SMALL_BUFFER_BYTES)
        none, lz4 = rocksdict.DBCompressionType.none(), rocksdict.DBCompressionType.lz4()
        # Compression costs more CPU than the rest of a write: only what has settled is
        # compressed.
        options.set_compression_per_level([none, none, lz4, lz4, lz4, lz4, lz4])
        options.set_level_compaction_dynamic_level_bytes(False)
        options.set_target_file_size_base(_TABLE_FILE_BYTES)
        return options


EngineFactory = Callable[..., Engine]
"""What opens RocksDB: ``Engine``, or one whose disk fails."""


def _opening_threads(path: Path) -> int:
    """Threads that open the files of a database.

    By default RocksDB starts sixteen for each table. With few files, starting them takes a reader
    longer than the rest: 5 ms where one thread has opened all in 2.
    """
    files = sum(1 for _ in path.glob("*.sst"))
    return min(1 + files // _FILES_PER_THREAD, _OPENING_THREADS_MAX)


def make_manifest(path: Path) -> None:
    """Let RocksDB make a new manifest from the table files that are there; for a repair.

    Files that it cannot read it moves to ``lost``.

    Raises:
        StorageError: it cannot.
    """
    try:
        rocksdict.Rdict.repair(str(path), rocksdict.Options(raw_mode=True))
    except Exception as error:
        raise storage_error(error) from error


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all keys with this prefix (which is not all 0xFF)."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])
