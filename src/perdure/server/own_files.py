"""What lies beside the database in a data directory: whether it is whole, and all there.

A start that finds a file gone which it has had (``storage.directory_record``) does not make another
as if it were the first: where that would cost something it is refused, else told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from perdure.broker.auth.ban_seal import HINT as BANS_HINT
from perdure.broker.auth.ban_seal import damage_of as damage_of_bans
from perdure.broker.auth.key_file import KEY_FILE, wrong_size
from perdure.errors import StorageCorrupt
from perdure.forwarders.origin import ORIGIN_FILE
from perdure.identity.file import DAMAGED_HINT, damage_of, mark_of_users
from perdure.identity.file import FILE_NAME as IDENTITY_FILE
from perdure.observe.logs import get_logger
from perdure.server.bans import BAN_FILE
from perdure.server.clock_file import CLOCK_FILE
from perdure.server.cluster_log_note import TOPIC_FILE
from perdure.server.http_part import TOKEN_FILE
from perdure.storage.contract import Finding
from perdure.storage.directory_record import mark_of, read_record, write_record
from perdure.storage.remote.driver import IDENTITY_FILE as ID_FILE
from perdure.storage.rocksdb.directory import DirectoryLock

log = get_logger("storage")

GONE_HINT: Final = (
    "put it back, from a backup if need be; or perdure storage repair lets the next start do "
    "without it"
)

_BESIDE: Final = ("", "-wal", "-shm")
"""Endings of the files that SQLite has."""


class _Own(NamedTuple):
    """A file of the broker's.

    Attributes:
        name: of the file.
        mark: what tells it from any other; None = its content says nothing.
        costs: what is lost with it.
        if_gone: the broker does not start without it.
        if_other: nor with another in its place.
    """

    name: str
    mark: Callable[[Path], str] | None
    costs: str
    if_gone: bool = False
    if_other: bool = False


def _mark(path: Path) -> str:
    return mark_of(path.read_bytes())


_OWN: Final = (
    _Own(IDENTITY_FILE, mark_of_users, "users, keys and logins", if_gone=True),
    _Own(
        ORIGIN_FILE,
        _mark,
        "who this broker is to other brokers, Kafka and webhooks, and what waits for it there",
        if_gone=True,
        if_other=True,
    ),
    _Own(
        ID_FILE,
        _mark,
        "who this broker is to the server that has its state",
        if_gone=True,
        if_other=True,
    ),
    _Own(TOPIC_FILE, None, "which log this node has read", if_gone=True),
    _Own(KEY_FILE, _mark, "the answers for unknown users are others than before"),
    _Own(CLOCK_FILE, None, "deadlines may be late, or early, if the clock was set"),
    _Own(BAN_FILE, None, "nobody whom it banned is banned any more"),
    _Own(TOKEN_FILE, None, "the tokens that it held open the HTTP interface no more"),
)


class _Missed(NamedTuple):
    own: _Own
    problem: str
    refused: bool


def check_bans(directory: Path) -> None:
    """Look at the bans of a directory before they are read.

    Raises:
        StorageCorrupt: they are not those that were written.
    """
    for finding in _damaged_bans(directory):
        raise StorageCorrupt(
            f"{directory / finding.table} is damaged: {finding.problem}", hint=BANS_HINT
        )


def check_own_files(directory: Path) -> list[str]:
    """Miss what is not there any more, before anything is made.

    Returns:
        Names of files that were told of and need not be missed again.

    Raises:
        StorageCorrupt: a file is gone, or is another's, that the broker cannot do without.
    """
    if (directory / CLOCK_FILE).exists() and not read_record(directory).is_there:
        log.info(
            "data.files_unknown",
            present=sorted(_present(directory)),
            hint="perdure.files was not there, as before the first start of this release: if "
            "another file of the data directory is gone, this start makes one anew",
        )
    damage = damage_of(directory)
    if damage:
        raise StorageCorrupt(f"{directory / IDENTITY_FILE} is damaged: {damage}", hint=DAMAGED_HINT)
    missed = list(_missed(directory))
    for own, problem, refused in missed:
        if refused:
            raise StorageCorrupt(
                f"{directory / own.name} {problem}: with it {own.costs}", hint=GONE_HINT
            )
    for own, problem, _ in missed:
        log.warning("data.file_missed", file=own.name, problem=problem, costs=own.costs)
    return [own.name for own, _, _ in missed]


def note_own_files(directory: Path, told: Collection[str] = ()) -> None:
    """Note what is there now; later it will be missed.

    Args:
        directory: of the data.
        told: names whose loss was told of. What else is gone since it was noted stays noted.
    """
    record = read_record(directory)
    noted = {name: mark for name, mark in record.files.items() if name not in told}
    files = noted | {n: mark for n, mark in _present(directory).items() if not noted.get(n)}
    if record.is_there and files == record.files:
        return
    try:
        write_record(directory, files)
    except OSError as error:
        log.warning("data.files_not_noted", error=error.strerror)


def damaged_files(directory: Path) -> Iterator[Finding]:
    """Files that a broker would refuse to start with, or without; beside one, too."""
    for name in (KEY_FILE, ORIGIN_FILE):
        path = directory / name
        problem = wrong_size(path.stat().st_size) if path.exists() else ""
        if problem:
            yield Finding(name, "", problem)
    problem = damage_of(directory)
    if problem:
        yield Finding(IDENTITY_FILE, "", f"it cannot be read ({problem}): users, keys and logins")


def missed_files(directory: Path) -> Iterator[Finding]:
    """Files without which a broker would refuse to start; beside one, too."""
    for own, problem, refused in _missed(directory):
        if refused:
            yield Finding(own.name, "", f"{problem}: with it {own.costs}")


def wrong_files(directory: Path) -> Iterator[Finding]:
    """All of them, with those that no repair can put aside: they are yours."""
    yield from damaged_files(directory)
    yield from _damaged_bans(directory)
    yield from missed_files(directory)


def put_aside(directory: Path, names: list[str], missed: list[str], aside: Path) -> None:
    """Move damaged files away, and miss no more what is not there: the next start makes new ones.

    Args:
        directory: of the data.
        names: of damaged files.
        missed: names of files that are gone, or others.
        aside: where damaged files go.

    Raises:
        StorageLocked: a broker runs there.
    """
    lock = DirectoryLock(directory)
    try:
        aside.mkdir(mode=0o700, exist_ok=True)
        for name in names:
            for ending in _BESIDE:
                path = directory / f"{name}{ending}"
                if path.exists():
                    path.replace(aside / path.name)
        record = read_record(directory)
        forgotten = {*names, *missed}
        if record.is_there:
            kept = {n: mark for n, mark in record.files.items() if n not in forgotten}
            write_record(directory, kept)
    finally:
        lock.release()


def _damaged_bans(directory: Path) -> Iterator[Finding]:
    with contextlib.suppress(OSError):  # of who reads it
        problem = damage_of_bans((directory / BAN_FILE).read_bytes())
        if problem:
            yield Finding(BAN_FILE, "", f"{problem}: who may not connect; {BANS_HINT}")


def _missed(directory: Path) -> Iterator[_Missed]:
    noted = read_record(directory).files
    for own in _OWN:
        mark = noted.get(own.name)
        path = directory / own.name
        if mark is None:
            continue
        if not path.exists():
            yield _Missed(own, "is gone", own.if_gone)
        elif not path.stat().st_size:
            yield _Missed(own, "is empty", own.if_gone)
        elif own.mark is not None and mark:
            with contextlib.suppress(OSError, StorageCorrupt):  # damage is told by who needs it
                now = own.mark(path)
                if now and now != mark:
                    yield _Missed(own, "is not the one that was here", own.if_other)


def _present(directory: Path) -> dict[str, str]:
    """Files that are there, with what tells them from others."""
    found: dict[str, str] = {}
    for own in _OWN:
        path = directory / own.name
        with contextlib.suppress(OSError, StorageCorrupt):
            if path.stat().st_size:
                found[own.name] = own.mark(path) if own.mark is not None else ""
    return found
