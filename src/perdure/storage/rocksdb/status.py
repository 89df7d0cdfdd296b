"""What a RocksDB status means in our own tree of errors.

rocksdict raises bare ``Exception`` with the status as text; only that text tells a full disk from a
broken one.
"""

from __future__ import annotations

from typing import Final

from perdure.errors import StorageCorrupt, StorageError, StorageFull, StorageUnavailable

_FULL: Final = ("No space left", "Disk quota exceeded", "File too large", "MaxAllowedSpace")


def storage_error(error: Exception) -> StorageError:
    """The error of our own tree that a RocksDB status means."""
    if isinstance(error, StorageError):
        return error
    text = str(error)
    if any(part in text for part in _FULL):
        return StorageFull("no space left for the database", hint=text)
    if text.startswith("Corruption"):
        return StorageCorrupt(text)
    return StorageUnavailable(text)
