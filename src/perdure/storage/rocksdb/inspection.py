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
from perdure.storage.rocksdb.manifest import Manifest, forget_files
from perdure.storage.rocksdb.skipping import Gap, SkippingEngine, file_number
from perdure.storage.rocksdb.store import RocksDatabase
from perdure.storage.rocksdb.survey import Survey, survey
from perdure.storage.rocksdb.touched import explain

_ATTEMPTS: Final = 6
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
    lost = list(found.missing_files)
    opened = path
    with contextlib.ExitStack() as stack:
        while True:
            if lost:
                # RocksDB opens nothing of which a file is missing or does not say what it is: a
                # copy that does not list it.
                opened = Path(stack.enter_context(_scratch()))
                _link(found, opened, lost)
            try:
                database = RocksDatabase.open(
                    opened, config=config, read_only=True, engine=SkippingEngine
                )
                break
            except StorageError as error:
                number = file_number(error.message)
                if found.manifest is not None and number in set(found.manifest.files) - set(lost):
                    lost.append(number)
                    yield _unopened(found.manifest, number, error.message.replace(f"{opened}/", ""))
                    continue
                # The files say why, and better.
                if not (found.damages or lost):
                    yield Finding("", "", error.message)
                return
        stack.callback(database.close)
        yield from database.check()
        engine, generations = database.tables()
        for gap in _missing(found, lost):
            yield from explain(gap, engine, generations, database.marks.last_offset)


def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="perdure-check-")


def _unopened(manifest: Manifest, number: int, error: str) -> Finding:
    """A table file that does not say what it holds: its index or its end is damaged."""
    table = manifest.files[number]
    holds = table.holds(manifest.tables.get(table.family, "?"))
    return Finding(table.name, "", f"it cannot be opened ({error}); {holds}")


def _link(found: Survey, to: Path, lost: list[int]) -> None:
    """Make a directory that has all files but those that cannot be opened."""
    assert found.manifest is not None
    tables = [found.manifest.files[number] for number in lost]
    left_out = {table.name for table in tables} | {found.manifest.name}
    for file in found.path.iterdir():
        if file.is_file() and file.name not in left_out:
            (to / file.name).symlink_to(file.resolve())
    shutil.copyfile(found.path / found.manifest.name, to / found.manifest.name)
    forget_files(to / found.manifest.name, tables)


def _missing(found: Survey, lost: list[int]) -> list[Gap]:
    """Files that cannot be opened, as parts of their tables that cannot be read."""
    if found.manifest is None:
        return []
    names = found.manifest.tables
    gaps = []
    for table in (found.manifest.files[number] for number in lost):
        if table.family not in names:
            continue
        is_whole = table.number not in found.missing_files
        text = f"{table.name} {'cannot be opened' if is_whole else 'is missing or cut'}"
        gaps.append(Gap(names[table.family], table.smallest, table.largest + b"\0", text))
    return gaps


def _survey(path: Path) -> Survey:
    for left in reversed(range(_ATTEMPTS)):
        try:
            found = survey(path, verify=True)
        except FileNotFoundError:
            if left and has_owner(path):
                continue
            raise
        if not (found.damages or found.torn) or not has_owner(path):
            return found
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
