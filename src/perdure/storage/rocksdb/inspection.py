"""Everything that is wrong with a data directory: with its files, and with its rows.

For a stopped broker's directory, or beside a running one, whose newest record may be half written.
Changes nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from perdure.config.schema import RocksdbConfig
from perdure.errors import StorageError
from perdure.storage.contract import Finding
from perdure.storage.rocksdb.directory import LOCK_NAME
from perdure.storage.rocksdb.manifest import forget_files
from perdure.storage.rocksdb.skipping import Gap, SkippingEngine
from perdure.storage.rocksdb.store import RocksDatabase
from perdure.storage.rocksdb.survey import Survey, survey
from perdure.storage.rocksdb.touched import explain

_ATTEMPTS: Final = 5
"""Beside a broker: files come and go while they are looked at."""


def inspect(path: Path, config: RocksdbConfig) -> Iterator[Finding]:
    """What is wrong, files first."""
    found = _survey(path)
    for damage in found.damages:
        yield Finding(damage.file, "", damage.problem)
    torn = found.torn
    if torn is not None and torn.was_synced:
        yield Finding(
            torn.file, "", f"cut at byte {torn.keep_bytes}, though the end had been synced"
        )
    if found.is_garbled:
        return  # nothing says what the tables are, and RocksDB may read such a list for ever
    with contextlib.ExitStack() as stack:
        if found.missing_files:
            # RocksDB opens nothing of which a file is missing: a copy that does not list it.
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-check-")))
            _link(found, path)
        try:
            database = RocksDatabase.open(
                path, config=config, read_only=True, engine=SkippingEngine
            )
        except StorageError as error:
            # The files say why, and better.
            if not found.damages:
                yield Finding("", "", error.message)
            return
        stack.callback(database.close)
        yield from database.check()
        engine, generations = database.tables()
        for gap in _missing(found):
            yield from explain(gap, engine, generations, database.marks.last_offset)


def _link(found: Survey, to: Path) -> None:
    """Make a directory that has all files but those that are missing or have another length."""
    assert found.manifest is not None
    missing = [found.manifest.files[number] for number in found.missing_files]
    left_out = {table.name for table in missing} | {found.manifest.name}
    for file in found.path.iterdir():
        if file.is_file() and file.name not in left_out:
            (to / file.name).symlink_to(file.resolve())
    shutil.copyfile(found.path / found.manifest.name, to / found.manifest.name)
    forget_files(to / found.manifest.name, missing)


def _missing(found: Survey) -> list[Gap]:
    """Files that are missing, as parts of their tables that cannot be read."""
    if found.manifest is None:
        return []
    tables = [found.manifest.files[number] for number in found.missing_files]
    names = found.manifest.tables
    return [
        Gap(names[t.family], t.smallest, t.largest + b"\0", f"{t.name} is missing or cut")
        for t in tables
        if t.family in names
    ]


def _survey(path: Path) -> Survey:
    found = survey(path, verify=True)
    for _ in range(_ATTEMPTS):
        if not (found.damages or found.torn) or not has_owner(path):
            return found
        found = survey(path, verify=True)
    if found.torn is not None:
        # The broker is writing there.
        found.torn = None
    return found


def has_owner(path: Path) -> bool:
    """Whether a process has the directory open for writing."""
    try:
        file = os.open(path / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
