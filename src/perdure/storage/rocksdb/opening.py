"""Opening a directory: whether it is ours, in which format, and beside a broker that writes it.

Knows the row that says what a database is, and none of the others.

Invariant: nothing is written to a database that is not ours, or that a later release has written.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from perdure.config.schema import RocksdbConfig
from perdure.errors import FormatTooNew, StorageCorrupt, StorageError, StorageUnavailable
from perdure.storage.codec import decode_record, decode_subscription, encode_record
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.directory import manifest_stamp
from perdure.storage.rocksdb.engine import META, STATE, Engine, Operations
from perdure.storage.rocksdb.generations import Generations
from perdure.storage.rocksdb.skipping import SkippingEngine
from perdure.storage.rocksdb.status import named
from perdure.storage.rocksdb.synced import Claim, read_synced

FORMAT: Final = 2
"""Version of the database as a whole; layouts and records have their own.

1: as it began. 2: with the index of subscriptions by filter, which a release that knows only 1
would leave behind.
"""

INDEXED: Final = 2
"""The first format with that index."""

_ROWS_AT_ONCE: Final = 10_000

_OPEN_ATTEMPTS: Final = 100
"""Of a reader beside a broker; one fails if a flush or compaction ends within its 10 to 50 ms."""


class DatabaseFormat(msgspec.Struct, frozen=True, array_like=True):
    """What a database is: written once."""

    version: int
    database_id: str
    created_at_us: int


_format_decoder = msgspec.msgpack.Decoder(DatabaseFormat)


class _Opened(Protocol):
    def close(self) -> None: ...

    def tables(self) -> tuple[Engine, Generations]: ...


_Database = TypeVar("_Database", bound=_Opened)


def decode_format(value: bytes) -> DatabaseFormat:
    """The row that says what a database is.

    Raises:
        StorageCorrupt: it does not decode.
    """
    return decode_record(_format_decoder, "format", value)


def read_format(engine: Engine, path: Path) -> DatabaseFormat | None:
    """What the database in a directory is; None = it says nothing.

    Raises:
        FormatTooNew: a later release wrote it.
        StorageCorrupt: it does not decode.
    """
    value = engine.get(META, keys.FORMAT)
    if value is None:
        return None
    if value[:1] > b"\x01":
        raise FormatTooNew(f"{path} was written by a later release")
    found = decode_format(value)
    if found.version > FORMAT:
        raise FormatTooNew(f"{path} has format {found.version}; this release reads {FORMAT}")
    return found


def create(
    engine: Engine, path: Path, generations: Generations, *, is_new: bool, now_us: int
) -> DatabaseFormat:
    """Make an empty directory a database, with its first generation.

    Args:
        is_new: nothing was there before, or what the making of one had left.

    Raises:
        StorageCorrupt: something is there.
    """
    if next(engine.keys(META, b"", b"\xff"), None) is not None:
        raise StorageCorrupt(f"{path} holds a database that is not Perdure's")
    if not is_new:
        raise StorageCorrupt(
            f"{path} holds tables, but not the row that says what they are: the write-ahead logs "
            "(*.log) that held it, and recent messages and sessions, are missing",
            hint="restore the *.log files or a backup; a new database needs an empty directory",
        )
    made = DatabaseFormat(FORMAT, uuid.uuid4().hex, now_us)
    operations: Operations = [META, keys.FORMAT, encode_record(made)]
    generations.begin(operations, now_us)
    engine.write(operations)
    engine.sync()
    return made


def bring_up(engine: Engine, found: DatabaseFormat) -> DatabaseFormat:
    """Give a database of an earlier format what it lacks; a second or two for 100,000 sessions.

    The format is written last: cut short, it begins again at the next start.

    Raises:
        StorageError: it cannot be read or written.
    """
    if found.version >= INDEXED:
        return found
    operations: Operations = []
    # What an attempt has left that was cut short, before an earlier release wrote on.
    for key in engine.keys(STATE, *keys.filters()):
        operations += (STATE, key, None)
    for key, value in engine.items(STATE, b"x", b"y"):
        rows = keys.owner_of(key)
        if key[len(rows) : len(rows) + 1] == b"u":
            sub = decode_subscription(value)
            if not sub.until_offset:
                operations += (STATE, keys.subscriber_of(rows[3:].decode(), sub), b"")
        if len(operations) >= 3 * _ROWS_AT_ONCE:
            engine.write(operations)
            operations = []
    brought = msgspec.structs.replace(found, version=FORMAT)
    operations += (META, keys.FORMAT, encode_record(brought))
    engine.write(operations)
    engine.sync()
    return brought


def open_beside(
    path: Path, config: RocksdbConfig, open_once: Callable[[RocksdbConfig], _Database]
) -> _Database:
    """Open read-only what a broker may be writing.

    RocksDB reads the list of table files first and the write-ahead logs after it. What the
    broker flushes in between is in neither: such a view has holes, and is not used. Nor is one that
    ends before what had been synced when it was opened: RocksDB drops, without a word, what follows
    the first record of a log that it cannot read. What the last sync covered may be missing, as at
    a start (``survey``).

    Args:
        path: the data directory.
        config: sizes.
        open_once: opens what is there now.

    Raises:
        StorageUnavailable: there is nothing, or it changes too fast.
        StorageCorrupt: it lacks what was synced.
    """
    if not (path / "CURRENT").exists():
        raise StorageUnavailable(f"{path} holds no database")
    # All files are opened at once: those that a compaction deletes later stay readable.
    config = msgspec.structs.replace(config, max_open_files=-1)
    for _ in range(_OPEN_ATTEMPTS):
        stamp = manifest_stamp(path)
        claim = read_synced(path).claim
        try:
            database = open_once(config)
        except StorageError as error:
            if manifest_stamp(path) == stamp:
                raise named(error, path) from error
            continue
        if manifest_stamp(path) == stamp:
            lacks = 0 if claim is None else _lacks(database.tables()[0], claim)
            if not lacks:
                return database
            database.close()
            raise StorageCorrupt(
                f"{path}: {lacks} writes that were synced cannot be read",
                hint="perdure storage check tells where the damage is",
            )
        database.close()
    raise StorageUnavailable(
        f"{path} changes too fast to be read", hint="try again when the broker has less to do"
    )


def _lacks(engine: Engine, claim: Claim) -> int:
    """How many writes a view lacks that were synced before the last sync; 0 = none."""
    reached = engine.sequence()
    looks_for_damage = isinstance(engine, SkippingEngine)
    return 0 if looks_for_damage or reached >= claim.previous else claim.sequence - reached
