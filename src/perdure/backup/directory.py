"""Backups in a directory: another disk, a mounted share."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final, final

from perdure.backup.manifest import MARKER, MARKER_BYTES, check_marker, object_name
from perdure.backup.place import CHUNK_BYTES, Copied, Found
from perdure.errors import (
    ConfigError,
    StorageCorrupt,
    StorageFull,
    StorageLocked,
    StorageUnavailable,
)
from perdure.files import sync_directory, try_lock

_LOCK: Final = "lock"
_SYNC_BYTES: Final = 8 * 1024 * 1024
"""Synced at once: the broker's own syncs wait for those of others on the same disk."""

_PARTS: Final = "parts"
"""What is being written; what an interrupted backup left there is deleted by the next."""


@final
class DirectoryPlace:
    """A ``place.Place`` in a directory.

    Args:
        path: the directory.
    """

    grace_s: float = 0.0

    def __init__(self, path: Path) -> None:
        self.url = str(path)
        self._path = path
        self._unsettled: set[Path] = set()
        self._count = 0

    def make(self) -> None:
        with self._errors():
            if not self._path.exists():
                self._path.mkdir(parents=True, mode=0o700)
            marker = self._path / MARKER
            if marker.exists():
                check_marker(marker.read_bytes(), self.url)
                return
            others = [each.name for each in self._path.iterdir() if each.name != _PARTS]
            if set(others) - {_LOCK, "lost+found"}:
                raise ConfigError(
                    f"{self.url} is no place of backups: {min(others)} is in it",
                    path="--to",
                    hint="name an empty directory, or one that backups were made in",
                )
            self.put(MARKER, MARKER_BYTES)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        with self._errors():
            file = try_lock(self._path / _LOCK)
        if file is None:
            raise StorageLocked(
                f"{self.url}: a backup is being made or pruned there",
                hint="try again when that is done",
            )
        try:
            shutil.rmtree(self._path / _PARTS, ignore_errors=True)
            yield
        finally:
            os.close(file)

    def free_bytes(self) -> int | None:
        with self._errors():
            space = os.statvfs(self._path)
        return space.f_bavail * space.f_frsize

    def find(self, prefix: str) -> dict[str, Found]:
        found: dict[str, Found] = {}
        now_s = time.time()
        with self._errors():
            for directory, _, names in os.walk(self._path / prefix):
                for name in names:
                    file = Path(directory, name)
                    with contextlib.suppress(FileNotFoundError):
                        stat = file.stat()
                        key = file.relative_to(self._path).as_posix()
                        found[key] = Found(stat.st_size, now_s - stat.st_mtime)
        return found

    def put(self, name: str, data: bytes) -> None:
        with self._errors():
            part = self._part()
            with part.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._move(part, name)
            self.settle()

    def put_file(self, source: Path, copied: Copied) -> tuple[str, int]:
        digest = hashlib.sha256()
        size = 0
        with self._errors():
            part = self._part()
            with source.open("rb") as reading, part.open("xb") as writing:
                while data := reading.read(CHUNK_BYTES):
                    digest.update(data)
                    writing.write(data)
                    size += len(data)
                    if size % _SYNC_BYTES < len(data):
                        writing.flush()
                        os.fdatasync(writing.fileno())
                    copied(len(data))
                writing.flush()
                os.fsync(writing.fileno())
            self._move(part, object_name(digest.hexdigest()))
        return digest.hexdigest(), size

    def settle(self) -> None:
        with self._errors():
            for directory in sorted(self._unsettled):
                sync_directory(directory)
            self._unsettled.clear()

    def read(self, name: str) -> Generator[bytes, None, None]:
        with self._errors():
            try:
                file = (self._path / name).open("rb")
            except FileNotFoundError:
                raise StorageCorrupt(f"{self.url}: {name} is missing") from None
            with file:
                while data := file.read(CHUNK_BYTES):
                    yield data

    def delete(self, names: list[str]) -> None:
        with self._errors():
            for name in names:
                (self._path / name).unlink(missing_ok=True)
                self._unsettled.add((self._path / name).parent)
        self.settle()

    def _part(self) -> Path:
        directory = self._path / _PARTS
        directory.mkdir(exist_ok=True, mode=0o700)
        self._count += 1
        return directory / f"{os.getpid()}-{self._count}"

    def _move(self, part: Path, name: str) -> None:
        """Give a whole file its name; it survives a power cut once this was settled."""
        part.chmod(0o600)
        target = self._path / name
        for step in reversed((target.parent, *target.parent.parents)):
            if self._path in (step, *step.parents) and not step.exists():
                step.mkdir(mode=0o700)
                self._unsettled.add(step.parent)
        part.replace(target)
        self._unsettled.add(target.parent)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = f"{self.url}: {error.strerror or error}"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageFull(text, hint="make room, or prune older backups") from error
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
                raise ConfigError(text, path="--to", hint="name a directory to write to") from error
            raise StorageUnavailable(text) from error
