"""Which backups there are, whether they are whole, and which go."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from perdure.backup.manifest import (
    MANIFEST_BYTES_MAX,
    MANIFESTS,
    MARKER,
    OBJECTS,
    BackupFile,
    BackupManifest,
    check_marker,
    decode_manifest,
)
from perdure.backup.place import Copied, Place
from perdure.errors import ConfigError, PerdureError, StorageCorrupt


class Broken(NamedTuple):
    """A manifest that cannot be used."""

    id: str
    error: PerdureError


class Problem(msgspec.Struct, frozen=True):
    """Something that is wrong with a backup.

    Attributes:
        backup: its id.
        file: name of the file; empty = the backup as a whole.
        problem: one sentence.
    """

    backup: str
    file: str
    problem: str


class Pruned(msgspec.Struct, frozen=True):
    """What went.

    Attributes:
        backups: ids of those that were deleted.
        kept: how many are left.
        objects, bytes: contents that nothing names any more, and were deleted.
    """

    backups: tuple[str, ...]
    kept: int
    objects: int
    bytes: int


def check_place(place: Place) -> None:
    """Whether backups are there at all.

    Raises:
        ConfigError: no; nothing is.
        StorageError: they are not ours, of a later release, or cannot be read.
    """
    if MARKER not in place.find(MARKER) and not place.find(MANIFESTS):
        try:
            data = b"".join(place.read(MARKER))
        except StorageCorrupt:
            raise ConfigError(
                f"{place.url} holds no backups", hint="perdure backup --to makes one"
            ) from None
    else:
        data = b"".join(place.read(MARKER))
    check_marker(data, place.url)


def read_backups(place: Place) -> list[BackupManifest | Broken]:
    """All backups, oldest first; of an interrupted one there is no manifest."""
    found: list[BackupManifest | Broken] = []
    for name, there in sorted(place.find(MANIFESTS).items()):
        if not name.endswith(".json"):
            continue
        backup = name.removeprefix(MANIFESTS).removesuffix(".json")
        try:
            if there.size > MANIFEST_BYTES_MAX:
                raise StorageCorrupt(f"{name} has {there.size} bytes, and can be no manifest")
            found.append(decode_manifest(b"".join(place.read(name)), name))
        except PerdureError as error:
            found.append(Broken(backup, error))
    return found


def find_backup(place: Place, wanted: str) -> BackupManifest:
    """A backup by its id, or the newest.

    Args:
        wanted: an id, or the beginning of one; empty = the newest.

    Raises:
        ConfigError: there is none.
        StorageError: it cannot be used.
    """
    found = [each for each in read_backups(place) if each.id.startswith(wanted)]
    if not found:
        which = f"no backup {wanted}" if wanted else "no complete backup"
        raise ConfigError(f"{place.url} holds {which}", hint="perdure backup list shows them")
    chosen = found[-1]
    if isinstance(chosen, Broken):
        chosen.error.hint = chosen.error.hint or "perdure backup list shows others"
        raise chosen.error
    return chosen


def verify_backups(
    place: Place, wanted: str, copied: Copied, *, say: Callable[[str], None] = lambda _: None
) -> Iterator[Problem]:
    """Read every object of some backups again, each once, and compare its checksum.

    Args:
        place: of the backups.
        wanted: the id of one; empty = all.
        copied: told of each piece that was read.
        say: told which objects nothing names.
    """
    names: dict[str, list[tuple[str, BackupFile]]] = {}
    for each in read_backups(place):
        if not each.id.startswith(wanted):
            continue
        if isinstance(each, Broken):
            yield Problem(each.id, "", each.error.message)
            continue
        for file in each.files:
            names.setdefault(file.object_name, []).append((each.id, file))
    present = place.find(OBJECTS)
    for name, users in sorted(names.items()):
        problem = _object_problem(place, name, users[0][1], name in present, copied)
        if problem:
            for backup, file in users:
                yield Problem(backup, file.name, problem)
    if not wanted and (spare := len(present.keys() - names.keys())):
        say(f"{spare} objects belong to no backup: perdure backup prune deletes them")


def _object_problem(
    place: Place, name: str, file: BackupFile, is_there: bool, copied: Copied
) -> str:
    if not is_there:
        return f"{name} is missing"
    digest, size = hashlib.sha256(), 0
    try:
        for data in place.read(name):
            digest.update(data)
            size += len(data)
            copied(len(data))
    except StorageCorrupt as error:
        return error.message
    if size != file.size:
        return f"{name} has {size} bytes instead of {file.size}"
    if digest.hexdigest() != file.sha256:
        return f"{name} is damaged: its checksum does not fit"
    return ""


def prune(place: Place, keep: int, *, dry_run: bool = False) -> Pruned:
    """Delete all but the newest backups of each database, and contents that nothing names.

    Args:
        place: of the backups.
        keep: backups of each database that stay, at least 1.
        dry_run: delete nothing.

    Raises:
        StorageError: a manifest cannot be read; nothing was deleted, since what it names is not
            known.
    """
    with place.lock():
        found = read_backups(place)
        by_database: dict[str, list[BackupManifest]] = {}
        for each in found:
            if isinstance(each, Broken):
                each.error.hint = f"delete {MANIFESTS}{each.id}.json in {place.url} by hand"
                raise each.error
            by_database.setdefault(each.database_id, []).append(each)
        gone = [each for group in by_database.values() for each in group[: -max(1, keep)]]
        left = [each for each in found if each not in gone and isinstance(each, BackupManifest)]
        if not dry_run:
            # First: a backup without its manifest is none, one without its contents is a lie.
            place.delete([f"{MANIFESTS}{each.id}.json" for each in gone])
        named = {file.object_name for each in left for file in each.files}
        spare = {
            name: there.size
            for name, there in place.find(OBJECTS).items()
            if name not in named and there.age_s >= place.grace_s
        }
        if not dry_run:
            place.delete(sorted(spare))
    return Pruned(tuple(each.id for each in gone), len(left), len(spare), sum(spare.values()))
