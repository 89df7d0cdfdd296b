"""A checkpoint: the files of a database as they were at one moment, beside a broker that writes.

RocksDB's own checkpoint writes all memory to table files first, and its binding keeps the GIL
while it does: 140 ms for 60 MiB, in which no client gets an answer. Here the files are linked from
outside, by any process, and the broker does nothing for it:

- table files never change, and a link keeps one that a compaction deletes meanwhile;
- the manifest and the write-ahead logs only grow, so their beginnings are what they were;
- if the manifest has not changed from before the first link until after the last, all of them
  belonged together (``directory.manifest_stamp``), the logs as long as they were then. Else all is
  done again.

What the broker was writing at the end of the last log is cut off, as after a power cut.

Invariant: a checkpoint holds every write that was synced before it was begun.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from perdure.errors import StorageCorrupt, StorageUnavailable
from perdure.storage.rocksdb.directory import manifest_stamp
from perdure.storage.rocksdb.manifest import read_manifest
from perdure.storage.rocksdb.starting import cut_off
from perdure.storage.rocksdb.survey import CURRENT, survey
from perdure.storage.rocksdb.synced import FILE_NAME, read_synced, unusable

_ATTEMPTS: Final = 200
"""One fails if a flush or compaction ends within the few milliseconds that it takes."""

_READS: Final = 20
"""Of the file that says how far was synced: a broker may be in the middle of writing it."""

_BINDING_FILE: Final = "rocksdict-config.json"


def link_checkpoint(path: Path, to: Path) -> None:
    """Make a checkpoint of a data directory, which a broker may have open.

    Args:
        path: the data directory.
        to: a directory that is not there, on the same file system; else files are copied.

    Raises:
        StorageUnavailable: there is no database, or it changes too fast.
        StorageFull: no space left for the logs.
        StorageCorrupt: it is damaged.
    """
    for _ in range(_ATTEMPTS):
        stamp = manifest_stamp(path)
        if not stamp[0]:
            raise StorageUnavailable(f"{path} holds no database")
        try:
            to.mkdir(mode=0o700)
            is_whole = _link(path, to, stamp)
        except FileNotFoundError:
            is_whole = False
        except OSError as error:
            raise unusable(to, error) from error
        if is_whole:
            _settle(path, to)
            return
        shutil.rmtree(to)
    raise StorageUnavailable(
        f"{path} changes too fast for a backup", hint="try again when the broker has less to do"
    )


def checkpoint_files(to: Path) -> Iterator[Path]:
    """The files of a checkpoint that make a database."""
    return (file for file in sorted(to.iterdir()) if is_database_file(file.name))


def is_database_file(name: str) -> bool:
    """Whether a file with this name is a part of the database."""
    stem, dot, suffix = name.rpartition(".")
    if dot and suffix in ("sst", "log"):
        return stem.isdecimal()
    return name in (CURRENT, FILE_NAME, _BINDING_FILE) or (
        name.startswith("MANIFEST-") and name[9:].isdecimal()
    )


def _link(path: Path, to: Path, stamp: tuple[str, int]) -> bool:
    """Link everything; False = it has changed meanwhile.

    Raises:
        OSError: a file has gone meanwhile, or cannot be made.
    """
    # First: what it claims is in the logs that are looked at later.
    _copy_synced(path, to)
    name, size = stamp
    _copy(path / name, to / name, size)
    manifest = read_manifest(to / name)
    for table in manifest.files.values():
        _link_file(path / table.name, to / table.name)
    logs = [
        file.name
        for file in path.glob("*.log")
        if file.stem.isdecimal() and int(file.stem) >= manifest.first_log
    ]
    for log in logs:
        _link_file(path / log, to / log)
    if (path / _BINDING_FILE).exists():
        _copy(path / _BINDING_FILE, to / _BINDING_FILE)
    # What is written from here on may be about tables that this manifest does not have.
    sizes = {log: (to / log).stat().st_size for log in logs}
    if manifest_stamp(path) != stamp:
        return False
    for log, length in sizes.items():
        # A copy: the broker goes on writing the file that it has open.
        (to / log).rename(to / f"{log}.open")
        _copy(to / f"{log}.open", to / log, length)
        (to / f"{log}.open").unlink()
    (to / CURRENT).write_text(f"{name}\n", encoding="ascii")
    return True


def _settle(path: Path, to: Path) -> None:
    """Cut off what the broker was writing, and refuse what is damaged."""
    found = survey(to)
    if found.damages:
        error = found.error()
        raise StorageCorrupt(error.message.replace(str(to), str(path)), hint=error.hint)
    if found.torn is not None:
        cut_off(to, found.torn)


def _copy_synced(path: Path, to: Path) -> None:
    """Copy what says how far was synced; an older directory has none."""
    for _ in range(_READS):
        try:
            data = (path / FILE_NAME).read_bytes()
        except FileNotFoundError:
            return
        (to / FILE_NAME).write_bytes(data)
        if read_synced(to).claim is not None:
            return
    (to / FILE_NAME).unlink()


def _copy(source: Path, to: Path, size: int = -1) -> None:
    """Copy the beginning of a file, as long as it is now."""
    with source.open("rb") as reading, to.open("xb") as writing:
        left = os.fstat(reading.fileno()).st_size if size < 0 else size
        while left > 0 and (data := reading.read(min(left, 1024 * 1024))):
            writing.write(data)
            left -= len(data)


def _link_file(source: Path, to: Path) -> None:
    try:
        os.link(source, to)
    except FileNotFoundError:
        raise
    except OSError:
        # A file system without links, or another one.
        shutil.copyfile(source, to)
        shutil.copystat(source, to)
