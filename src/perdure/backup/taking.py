"""Takes a backup: a checkpoint, of which only what is new is copied.

Steps, each of which may be the last: checkpoint; objects; a look whether all are there; the
manifest. Without the manifest there is no backup, and the next one finds the objects.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from perdure.backup.keeping import read_backups
from perdure.backup.manifest import (
    OBJECTS,
    BackupFile,
    BackupManifest,
    backup_id,
    encode_manifest,
    id_at_us,
    manifest_name,
    object_name,
)
from perdure.backup.place import Found, Place, RateLimiter
from perdure.backup.staging import Checkpoint, Staged, staged_checkpoint
from perdure.config.schema import RocksdbConfig
from perdure.config.units import format_size
from perdure.errors import StorageCorrupt, StorageFull

SPARE_BYTES: Final = 64 * 1024 * 1024
"""Room that a backup leaves in a directory."""

Progress = Callable[[str, int, int], None]
"""Told what is done, and how many bytes of how many."""

Stamp = tuple[str, int, int]


def take_backup(
    data: Path,
    place: Place,
    *,
    config: RocksdbConfig,
    version: str,
    now_us: int,
    rate: int = 0,
    progress: Progress = lambda *_: None,
) -> BackupManifest:
    """Back a data directory up, beside its broker or without one.

    Args:
        data: the data directory.
        place: where to.
        config: of the database.
        version: release.
        now_us: wall time.
        rate: bytes per second that are read and copied; 0 = no bound.
        progress: told how far it is.

    Raises:
        StorageError: it was not made; there is no half of one.
        ConfigError: the place cannot be used.
    """
    begun_s = time.monotonic()
    place.make()
    with place.lock():
        before = [each for each in read_backups(place) if isinstance(each, BackupManifest)]
        progress("checkpoint", 0, 0)
        with staged_checkpoint(data, config) as checkpoint:
            newest = max(
                (each for each in before if each.database_id == checkpoint.database_id),
                key=lambda each: each.id,
                default=None,
            )
            files, copied = _copy(checkpoint, newest, place, rate=rate, progress=progress)
        manifest = BackupManifest(
            # A clock that was set back must not put the newest before older ones.
            id=backup_id(max([now_us, *(id_at_us(each.id) + 1 for each in before)])),
            perdure=version,
            database_id=checkpoint.database_id,
            database_format=checkpoint.database_format,
            position=checkpoint.position,
            made_at_us=now_us,
            sessions=checkpoint.sessions,
            retained=checkpoint.retained,
            messages=checkpoint.messages,
            files=tuple(files),
            size=sum(file.size for file in files),
            copied=copied,
            seconds=round(time.monotonic() - begun_s, 3),
            source=f"{socket.gethostname()}:{data.resolve()}",
        )
        progress("manifest", 0, 0)
        place.settle()
        _look(manifest, place)
        place.put(manifest_name(manifest.id), encode_manifest(manifest))
    return manifest


def _copy(
    checkpoint: Checkpoint,
    newest: BackupManifest | None,
    place: Place,
    *,
    rate: int,
    progress: Progress,
) -> tuple[list[BackupFile], int]:
    """Copy what is not there; returns all files, and how many bytes were copied."""
    known = _known(newest, place.find(OBJECTS))
    kept: list[BackupFile] = []
    new: list[tuple[Staged, Stamp]] = []
    for staged in checkpoint.files:
        stat = staged.path.stat()
        stamp = (staged.name, stat.st_size, stat.st_mtime_ns)
        sha256 = known.get(stamp) if staged.name.endswith(".sst") else None
        if sha256 is None:
            new.append((staged, stamp))
        else:
            kept.append(BackupFile(staged.name, stat.st_size, sha256, stat.st_mtime_ns))
    total = sum(stamp[1] for _, stamp in new)
    free = place.free_bytes()
    if free is not None and total + SPARE_BYTES > free:
        raise StorageFull(
            f"no space left in {place.url}: the backup needs {format_size(total)}, and "
            f"{format_size(max(0, free - SPARE_BYTES))} are free",
            hint="perdure backup prune deletes older ones",
        )
    limiter = RateLimiter(rate, lambda done: progress("copy", done, total))
    for staged, (name, _, mtime_ns) in new:
        sha256, size = place.put_file(staged.path, limiter)
        kept.append(BackupFile(name, size, sha256, mtime_ns))
    return sorted(kept, key=lambda file: file.name), total


def _known(newest: BackupManifest | None, present: Mapping[str, Found]) -> dict[Stamp, str]:
    """Contents that need not be copied: the last backup has them, and they are still there."""
    if newest is None:
        return {}
    found = {}
    for file in newest.files:
        there = present.get(object_name(file.sha256))
        if there is not None and there.size == file.size:
            found[file.name, file.size, file.mtime_ns] = file.sha256
    return found


def _look(manifest: BackupManifest, place: Place) -> None:
    """Whether everything that the manifest names is there.

    Raises:
        StorageCorrupt: somebody has deleted it meanwhile.
    """
    present = place.find(OBJECTS)
    for file in manifest.files:
        there = present.get(file.object_name)
        if there is None or there.size != file.size:
            raise StorageCorrupt(
                f"{place.url}: {file.object_name} was deleted or cut while the backup was made",
                hint="make it again",
            )
