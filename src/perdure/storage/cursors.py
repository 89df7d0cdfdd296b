"""How far pipelines have read the log: a small file for each in the data directory.

``pipelines/<name>.<place>.json`` says that everything up to an offset is safe somewhere else. A
pipeline writes its own file, whether the broker runs or not; the broker reads them, so that its
retention can wait (``retention.keep_for``). Several pipelines may have one name: then the slowest
counts.

Invariant: a file is replaced as a whole, after what it tells is safe against power loss; one that
cannot be read counts as a pipeline that has read nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from perdure import files
from perdure.errors import ConfigError, StorageUnavailable

DIRECTORY: Final = "pipelines"
NAME_PATTERN: Final = r"[a-z0-9][a-z0-9_-]{0,63}"
CURSORS_MAX: Final = 256
"""Files that one data directory may have: a client of the HTTP interface can make them."""

PLACE_CHARACTERS_MAX: Final = 1_024
_PLACE_DIGITS: Final = 12
_VERSION: Final = 1


class PipelineCursor(msgspec.Struct, frozen=True):
    """One file.

    Attributes:
        name: by which ``retention.keep_for`` knows it.
        place: what it writes to, as people know it; one name at two places is two pipelines.
        database: id of the log that it reads.
        offset: everything up to here is safe.
        moved_at_us: wall time of the last change.
        version: of the file.
    """

    name: str
    place: str
    database: str
    offset: int
    moved_at_us: int
    version: int = _VERSION


def check_name(name: str) -> str:
    """A name that can be used.

    Raises:
        ConfigError: it cannot.
    """
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise ConfigError(
            f"{name!r} is no name of a pipeline: small letters, digits, - and _, 64 at most",
            path="name",
        )
    return name


def check_pipeline(name: str, place: str) -> None:
    """A name and a place that can be used.

    Raises:
        ConfigError: they cannot.
    """
    check_name(name)
    if not 0 < len(place) <= PLACE_CHARACTERS_MAX:
        raise ConfigError("the place of a pipeline has 1 to 1024 characters", path="place")


def save_cursor(data: Path, cursor: PipelineCursor) -> None:
    """Keep how far a pipeline has read; safe against power loss when this returns.

    Args:
        data: the data directory.
        cursor: what to keep; replaces the one with its name and place.

    Raises:
        ConfigError: its name or place cannot be used, or there are too many.
        StorageUnavailable: the directory takes no writes.
    """
    check_pipeline(cursor.name, cursor.place)
    keep_file(data, file_name(cursor.name, cursor.place), msgspec.json.encode(cursor) + b"\n")


def keep_file(data: Path, name: str, content: bytes) -> None:
    """Make or replace a file of a pipeline; safe against power loss when this returns.

    Args:
        data: the data directory.
        name: of the file (``file_name``).
        content: all of it.

    Raises:
        ConfigError: there are too many of its kind.
        StorageUnavailable: the directory takes no writes.
    """
    path = data / DIRECTORY / name
    try:
        is_new = not path.exists()
    except OSError as error:
        # A reader may read the log, and not what other pipelines have written.
        raise StorageUnavailable(f"{path.parent} takes no cursor: {error.strerror}") from error
    if is_new and len(listed(data, f"*{path.suffix}")) >= CURSORS_MAX:
        raise ConfigError(
            f"{path.parent} tells of {CURSORS_MAX} pipelines, which is the most there may be",
            path="name",
            hint="perdure pipeline status --forget NAME",
        )
    replace_file(data, path, content)


def replace_file(data: Path, path: Path, content: bytes) -> None:
    """Replace a file; safe against power loss when this returns.

    Args:
        data: the directory that has its directory, or is it; its owner will own the file.
        path: of the file.
        content: all of it.

    Raises:
        StorageUnavailable: the directory takes no writes.
    """
    directory = path.parent
    try:
        owner = data.stat()
        directory.mkdir(exist_ok=True, mode=0o700)
        if os.geteuid() == 0:
            # The broker must be able to read what an administrator's archive has written.
            os.chown(directory, owner.st_uid, owner.st_gid)
        files.replace_file(path, content, mode=files.AS_UMASK_SAYS, owner=owner)
        files.sync_directory(data)
    except OSError as error:
        raise StorageUnavailable(f"{directory} takes no cursor: {error.strerror}") from error


def load_cursors(data: Path) -> tuple[list[PipelineCursor], list[str]]:
    """Every cursor, by name and place, and the names of those that cannot be read.

    Args:
        data: the data directory.

    Raises:
        StorageUnavailable: they cannot be listed.
    """
    found: list[PipelineCursor] = []
    broken: list[str] = []
    for path in sorted(listed(data, "*.json")):
        try:
            cursor = msgspec.json.decode(path.read_bytes(), type=PipelineCursor)
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            broken.append(path.name.partition(".")[0])
            continue
        if cursor.version > _VERSION:
            broken.append(cursor.name)
        else:
            found.append(cursor)
    return sorted(found, key=lambda each: (each.name, each.place)), broken


def forget_cursors(data: Path, name: str, place: str = "") -> int:
    """Delete what pipelines of a name have told, also what cannot be read; how many there were.

    That is their cursors, and how their jobs are going: one may have told only of its jobs.

    Args:
        data: the data directory.
        name: whose.
        place: only the one there; empty = all.

    Raises:
        ConfigError: it is no name.
        StorageUnavailable: the files cannot be listed.
    """
    check_name(name)
    pattern = file_name(name, place, "*") if place else f"{name}.*.*"
    found = listed(data, pattern)
    for path in found:
        path.unlink(missing_ok=True)
    return len({path.stem for path in found})


def file_name(name: str, place: str, suffix: str = "json") -> str:
    """The name of a pipeline's file."""
    digest = hashlib.blake2b(place.encode(), digest_size=_PLACE_DIGITS // 2).hexdigest()
    return f"{name}.{digest}.{suffix}"


def listed(data: Path, pattern: str) -> list[Path]:
    """The files of pipelines whose names match a pattern, in any order; none before the first.

    Args:
        data: the data directory.
        pattern: as in a shell.

    Raises:
        StorageUnavailable: they cannot be listed: they are their owner's alone, whoever may read
            the log. (``Path.glob`` would find nothing, in silence.)
    """
    directory = data / DIRECTORY
    try:
        return [path for path in directory.iterdir() if fnmatchcase(path.name, pattern)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StorageUnavailable(
            f"{directory} cannot be listed ({error.strerror}): "
            "what pipelines have read is not known"
        ) from error
