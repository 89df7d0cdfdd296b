"""What a RocksDB status means in our own tree of errors.

rocksdict raises bare ``Exception`` with the status as text; only that text tells a full disk from a
broken one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from perdure.errors import (
    FormatTooNew,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageUnavailable,
)

_FULL: Final = ("No space left", "Disk quota exceeded", "File too large", "MaxAllowedSpace")

_SUSPICION: Final = re.compile(r"\s+The file \S+ may be corrupted\.$")

REPAIR_HINT: Final = (
    "perdure storage check shows all of it; perdure storage repair says what is lost, keeps the "
    "damaged files and makes the rest a database again; or restore a backup"
)


def storage_error(error: Exception) -> StorageError:
    """The error of our own tree that a RocksDB status means."""
    if isinstance(error, StorageError):
        return error
    # RocksDB suspects the list of tables besides, which is not what it has read.
    text = _SUSPICION.sub("", str(error))
    if any(part in text for part in _FULL):
        return StorageFull("no space left for the database", hint=text)
    if text.startswith("Corruption"):
        return StorageCorrupt(text, hint=REPAIR_HINT)
    return StorageUnavailable(text)


def named(error: StorageError, path: Path) -> StorageError:
    """The error of a reader, with the directory that it is about and what to do."""
    message = error.message if str(path) in error.message else f"{path}: {error.message}"
    hint = error.hint
    if not hint and isinstance(error, FormatTooNew):
        hint = "a later release of Perdure wrote it: read it with that one"
    elif not hint and isinstance(error, StorageUnavailable) and "Permission denied" in message:
        hint = "who reads the log must be allowed to read all files of its directory"
    return type(error)(message, hint=hint)
