"""What a backup is: the versioned record that is written last, and makes it one.

::

    <place>/perdure-backups.json      {"kind": "perdure-backups", "format": 1}
    <place>/backups/<id>.json         a manifest: JSON, a line end, its SHA-256 in hex, a line end
    <place>/objects/<xx>/<sha256>     contents, each once, however many backups have it

A checkpoint over HTTP carries the same manifest (``stream``).

Invariant: a manifest is written only when everything that it names is there.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Final, final

import msgspec

from perdure.errors import FormatTooNew, StorageCorrupt

FORMAT: Final = 1
MARKER: Final = "perdure-backups.json"
MARKER_BYTES: Final = b'{"kind": "perdure-backups", "format": 1}\n'
MANIFESTS: Final = "backups/"
OBJECTS: Final = "objects/"

MANIFEST_BYTES_MAX: Final = 256 * 1024 * 1024
"""A million files are about 200 MB."""


@final
class BackupFile(msgspec.Struct, frozen=True):
    """One file of a backup.

    Attributes:
        name: path below the data directory, with ``/``.
        size: bytes.
        sha256: of its contents, hex.
        mtime_ns: of the file that it was copied from. A table file never changes, so one of the
            same database with this name, size and time has the same contents.
    """

    name: str
    size: int
    sha256: str
    mtime_ns: int = 0

    @property
    def object_name(self) -> str:
        """Where its contents are."""
        return object_name(self.sha256)


@final
class BackupManifest(msgspec.Struct, frozen=True):
    """A complete backup.

    Attributes:
        format: version of this record.
        id: its name: the time at which it was begun.
        perdure: release that made it.
        database_id: of the database.
        database_format: version of the database as a whole.
        position: last offset that the database had given: everything up to it is in the backup.
        made_at_us: wall time at which it was begun.
        sessions, retained, messages: counts.
        size: bytes of all files.
        copied: bytes that were not in the place before.
        seconds: how long it took.
        source: data directory and host that it was taken from.
        files: all files.
    """

    id: str
    perdure: str
    database_id: str
    database_format: int
    position: int
    made_at_us: int
    sessions: int
    retained: int
    messages: int
    files: tuple[BackupFile, ...]
    size: int = 0
    copied: int = 0
    seconds: float = 0.0
    source: str = ""
    format: int = FORMAT


class _Versioned(msgspec.Struct):
    format: int


def object_name(sha256: str) -> str:
    """Where the contents with this sum are."""
    return f"{OBJECTS}{sha256[:2]}/{sha256}"


def manifest_name(backup_id: str) -> str:
    """Where the manifest of a backup is."""
    return f"{MANIFESTS}{backup_id}.json"


def backup_id(now_us: int) -> str:
    """The name of a backup that is begun now; names ascend with time."""
    second = datetime.fromtimestamp(now_us // 1_000_000, UTC)
    return f"{second:%Y%m%dT%H%M%S}.{now_us % 1_000_000:06}Z"


def id_at_us(name: str) -> int:
    """The time in the name of a backup; 0 if it has none."""
    try:
        second = datetime.strptime(name[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        return int(second.timestamp()) * 1_000_000 + int(name[16:22])
    except ValueError:
        return 0


def encode_manifest(manifest: BackupManifest) -> bytes:
    """The file of a manifest."""
    data = msgspec.json.encode(manifest)
    return data + b"\n" + hashlib.sha256(data).hexdigest().encode() + b"\n"


def decode_manifest(data: bytes, name: str) -> BackupManifest:
    """The manifest in a file.

    Args:
        data: the file.
        name: of the file, for errors.

    Raises:
        StorageCorrupt: it was not written whole, or changed.
        FormatTooNew: a later release made it.
    """
    text, _, sum_line = data.partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() + b"\n" != sum_line:
        raise StorageCorrupt(f"{name} is damaged: its checksum does not fit")
    try:
        found = msgspec.json.decode(text, type=_Versioned).format
        if found > FORMAT:
            raise FormatTooNew(
                f"{name} has format {found}; this release reads {FORMAT}",
                hint="use the release that made the backup, or a later one",
            )
        manifest = msgspec.json.decode(text, type=BackupManifest)
    except ValueError as error:
        raise StorageCorrupt(f"{name} does not decode: {error}") from error
    for file in manifest.files:
        _check(file, name)
    return manifest


def _check(file: BackupFile, name: str) -> None:
    """Nothing is written outside the directory that is restored, whoever wrote the manifest."""
    is_sum = len(file.sha256) == 64 and set(file.sha256) <= set("0123456789abcdef")
    if not is_file_name(file.name) or not is_sum or file.size < 0:
        raise StorageCorrupt(f"{name} names a file {file.name!r}, which is none")


def is_file_name(name: str) -> bool:
    """Whether a name is one below a data directory."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        return False
    return str(path) == name and name != "."


def check_marker(data: bytes, where: str) -> None:
    """Whether a place is one of ours that this release can use.

    Raises:
        StorageCorrupt, FormatTooNew: it is not.
    """
    try:
        found = msgspec.json.decode(data, type=dict[str, str | int])
        version = found["format"]
    except (ValueError, KeyError):
        version = 0
    if not isinstance(version, int) or version < 1:
        raise StorageCorrupt(f"{where}: {MARKER} does not say what it is")
    if version > FORMAT:
        raise FormatTooNew(
            f"{where} has format {version}; this release reads {FORMAT}",
            hint="use the release that made the backups, or a later one",
        )
