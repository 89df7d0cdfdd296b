"""Restores a backup into an empty data directory.

A node's backup is exact: started as a node it goes on in the log, which has what the backup lacks,
and its sessions must be those of all other nodes. Any other begins anew with its clients, and is
not the directory that was backed up (``notes.RESTORED``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from perdure.backup.filling import filling
from perdure.backup.manifest import BackupManifest
from perdure.backup.nodes import forget_log, is_node, note_restored
from perdure.backup.place import Place, RateLimiter
from perdure.backup.rewinding import NOTHING_CUT, Rewound, rewind
from perdure.backup.strangers import estrange_sessions
from perdure.backup.taking import Progress
from perdure.config.schema import RocksdbConfig
from perdure.errors import ConfigError
from perdure.storage.rocksdb.store import RocksDatabase


class Restored(msgspec.Struct, frozen=True):
    """What a restored directory holds.

    Attributes:
        backup: id of the backup.
        position: everything up to this offset is there.
        messages, sessions, retained: counts.
        rewound: what was cut off behind an earlier position.
        is_node: it goes on in the log of its cluster; its sessions were left as they are.
    """

    backup: str
    position: int
    messages: int
    sessions: int
    retained: int
    rewound: Rewound
    is_node: bool = False


def restore(
    place: Place,
    manifest: BackupManifest,
    data: Path,
    *,
    config: RocksdbConfig,
    at: int = 0,
    rate: int = 0,
    progress: Progress = lambda *_: None,
) -> Restored:
    """Restore a backup.

    Args:
        place: where it is.
        manifest: of it.
        data: an empty directory, or none.
        config: of the database.
        at: offset up to which it is restored; 0 = all of the backup.
        rate: bytes per second; 0 = no bound.
        progress: told how far it is.

    Raises:
        ConfigError: the directory is not empty, or the backup does not reach as far.
        StorageError: it cannot be read or written; the directory is no database then.
    """
    if at > manifest.position:
        raise ConfigError(
            f"the backup {manifest.id} reaches up to offset {manifest.position} only",
            path="--at",
            hint="leave --at out, or restore a later backup",
        )
    with filling(data) as target:
        size = sum(file.size for file in manifest.files)
        target.check_room(size)
        limiter = RateLimiter(rate, lambda done: progress("copy", done, size))
        for file in manifest.files:
            with contextlib.closing(place.read(file.object_name)) as pieces:
                target.write_checked(file, _counted(pieces, limiter))
        is_cut = 0 < at < manifest.position
        rewound = _rewound(target.path, config, at) if is_cut else NOTHING_CUT
        with contextlib.closing(RocksDatabase.open(target.path, config=config)) as database:
            if is_cut:
                forget_log(database)
            goes_on = is_node(database)
            sessions = database.marks.session_count
            if not goes_on:
                sessions = estrange_sessions(
                    database, lambda done: progress("sessions", done, manifest.sessions)
                )
            note_restored(database, manifest.id, at if is_cut else 0)
            database.sync()
            result = Restored(
                backup=manifest.id,
                position=at or manifest.position,
                messages=sum(each.message_count for each in database.generations()),
                sessions=sessions,
                retained=database.retained_count,
                rewound=rewound,
                is_node=goes_on,
            )
        progress("check", 0, 0)
        target.check(config)
        target.finish()
    return result


def _rewound(path: Path, config: RocksdbConfig, at: int) -> Rewound:
    with contextlib.closing(RocksDatabase.open(path, config=config)) as database:
        return rewind(database, at)


def _counted(pieces: Iterable[bytes], limiter: RateLimiter) -> Iterator[bytes]:
    for data in pieces:
        limiter(len(data))
        yield data
