"""Files of an archive, in a directory or in an object store, by one set of names.

A place is a path, or a URI as Iceberg writes it: ``s3://bucket/key``, ``gs://``, ``abfss://``. How
a store is reached are pyiceberg's own settings (``s3.endpoint``, ``gcs.oauth2.token``,
``adls.account-name``), so that tables and what stands beside them need them once; without any, the
environment's, as the makers of the store define it.

Invariant: what ``write`` and the writers of files leave is whole, or is not there; on a disk it is
safe against power loss. No setting is in a text that this module makes.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import unquote, urlsplit

import msgspec

from perdure.errors import ConfigError, StorageCorrupt, StorageUnavailable
from perdure.files import AS_UMASK_SAYS, replace_file, sync_file

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
SCHEMES: Final = ("s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "wasb", "wasbs")
"""Of object stores; pyarrow has a file system for each."""

_SECRET: Final = re.compile(
    r"secret|token|password|credential|key|sas|connection-string|uri", re.IGNORECASE
)
_USER: Final = re.compile(r"//[^/@\s]*:[^/@\s]*@")
_REDACTED: Final = "********"
_SECRET_CHARACTERS_MIN: Final = 4
"""Shorter values are no secrets, and would be found in every word."""


class Entry(msgspec.Struct, frozen=True):
    """A file of a store.

    Attributes:
        path: as the store takes it.
        size: bytes.
        modified_us: wall time of its last change.
    """

    path: str
    size: int
    modified_us: int


def scheme_of(place: str) -> str:
    """The scheme of an object store; empty = a path of this machine, or ``file:``."""
    found = _SCHEME.match(place)
    scheme = found[1].lower() if found else ""
    return "" if scheme == "file" else scheme


def local_path(place: str) -> str:
    """A path of this machine without ``file:``; anything else as it is."""
    if place.startswith("file:"):
        return unquote(urlsplit(place).path)
    return place


def below(place: str | Path, *names: str) -> str:
    """A place below another one."""
    return "/".join([str(place).rstrip("/"), *names])


def name_of(path: str) -> str:
    """The last part of a path or URI."""
    return path.rpartition("/")[2]


@final
class Store(msgspec.Struct, frozen=True):
    """How files are reached; travels to tasks.

    Attributes:
        properties: pyiceberg's settings, as pairs; some are secrets.
    """

    properties: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return "Store(..)"

    def redact(self, text: str) -> str:
        """A text of a library without what is secret in it."""
        for name, value in self.properties:
            if _SECRET.search(name) and len(value) >= _SECRET_CHARACTERS_MIN:
                text = text.replace(value, _REDACTED)
        return _USER.sub(f"//{_REDACTED}@", text)

    @contextlib.contextmanager
    def errors(self, place: str | Path) -> Iterator[None]:
        """Name what a store says as we do; a file that is not there stays what it is.

        Raises:
            StorageUnavailable: the store refuses, or cannot be reached.
            ConfigError: its settings cannot be used, or what reaches it is not installed.
        """
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StorageUnavailable(self.redact(f"{place}: {error}")) from None
        except ImportError as error:
            raise ConfigError(
                f"{place}: {error.name} is not installed", hint="pip install 'perdure[spark]'"
            ) from None
        except ValueError as error:
            raise ConfigError(
                self.redact(f"{place}: {error}"), path="pipeline.tables.properties"
            ) from None

    @contextlib.contextmanager
    def reading(self, path: str) -> Iterator[None]:
        """Name what is wrong with a Parquet file while it is read; one that is not there stays so.

        Raises:
            StorageCorrupt: it is not what was written.
            StorageUnavailable: its store cannot be reached.
        """
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            # What decodes pages raises errors of the system without a number.
            if scheme_of(path) or error.errno is not None:
                raise StorageUnavailable(self.redact(f"{path}: {error}")) from None
            raise _damaged(path, error) from None
        except ValueError as error:
            if type(error).__name__ != "ArrowInvalid":
                raise
            raise _damaged(path, error) from None

    def opened(self, path: str | Path) -> Any:
        """A file to read, as pyarrow takes it."""
        text = str(path)
        if not scheme_of(text):
            return local_path(text)
        with self.errors(text):
            system, inner = _system(self.properties, text)
            return system.open_input_file(inner)

    def target(self, path: str | Path) -> tuple[str, Any]:
        """Where pyarrow writes a file: its path, and the file system (None = this machine's)."""
        text = str(path)
        if not scheme_of(text):
            return local_path(text), None
        with self.errors(text):
            system, inner = _system(self.properties, text)
        return inner, system

    def finish(self, path: str | Path) -> int:
        """The size of a file that was written; on a disk it is safe against power loss then."""
        text = str(path)
        with self.errors(text):
            if scheme_of(text):
                system, inner = _system(self.properties, text)
                return int(system.get_file_info(inner).size)
            sync_file(Path(local_path(text)))
            return Path(local_path(text)).stat().st_size

    def read(self, path: str | Path) -> bytes:
        """A small file.

        Raises:
            FileNotFoundError: it is not there.
        """
        text = str(path)
        with self.errors(text):
            if not scheme_of(text):
                return Path(local_path(text)).read_bytes()
            system, inner = _system(self.properties, text)
            with system.open_input_file(inner) as file:
                data: bytes = file.read()
        return data

    def write(self, path: str | Path, data: bytes) -> None:
        """Replace a small file as a whole."""
        text = str(path)
        with self.errors(text):
            if not scheme_of(text):
                replace_file(Path(local_path(text)), data, mode=AS_UMASK_SAYS)
                return
            # A store shows an object when it is complete.
            system, inner = _system(self.properties, text)
            with system.open_output_stream(inner) as file:
                file.write(data)

    def delete(self, path: str | Path) -> None:
        """Delete a file, if it is there."""
        text = str(path)
        with contextlib.suppress(FileNotFoundError), self.errors(text):
            if not scheme_of(text):
                Path(local_path(text)).unlink()
                return
            system, inner = _system(self.properties, text)
            system.delete_file(inner)

    def make_directory(self, path: str | Path) -> None:
        """Make a directory where there are such."""
        if not scheme_of(str(path)):
            Path(local_path(str(path))).mkdir(parents=True, exist_ok=True)

    def walk(self, root: str | Path) -> Iterator[Entry]:
        """All files below a place, by path."""
        text = str(root)
        if not scheme_of(text):
            for path in sorted(Path(local_path(text)).rglob("*")):
                with contextlib.suppress(FileNotFoundError):
                    stat = path.stat()
                    if path.is_file():
                        yield Entry(str(path), stat.st_size, stat.st_mtime_ns // 1_000)
            return
        from pyarrow import fs

        head = text.partition("://")[0]
        with self.errors(text):
            system, inner = _system(self.properties, text)
            found = system.get_file_info(
                fs.FileSelector(inner, recursive=True, allow_not_found=True)
            )
        for info in sorted(found, key=lambda info: info.path):
            if info.type == fs.FileType.File:
                yield Entry(f"{head}://{info.path}", info.size, (info.mtime_ns or 0) // 1_000)


def _damaged(path: str, error: Exception) -> StorageCorrupt:
    return StorageCorrupt(
        f"{path} is damaged: {str(error).partition(chr(10))[0]}",
        hint="bring the file back from a copy of the archive",
    )


LOCAL: Final = Store()
"""Directories of this machine."""


@functools.lru_cache(maxsize=64)
def _io(properties: tuple[tuple[str, str], ...]) -> Any:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return PyArrowFileIO(dict(properties))


def _system(properties: tuple[tuple[str, str], ...], place: str) -> tuple[Any, str]:
    """The file system of a place, and the place as it names it."""
    io = _io(properties)
    scheme, netloc, inner = io.parse_location(place)
    return io.fs_by_scheme(scheme, netloc), inner
