"""What SQLite's errors mean for a file whose tables are known."""

from __future__ import annotations

import sqlite3

from perdure.errors import StorageCorrupt, StorageError, StorageFull, StorageUnavailable


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file is not what was written, rather than in use or out of reach.

    A table or column that is missing, and text that is no UTF-8, are damage as well.
    """
    if not isinstance(error, sqlite3.OperationalError):
        return True
    return getattr(error, "sqlite_errorname", "SQLITE_ERROR") == "SQLITE_ERROR"


def translated(error: sqlite3.Error, what: str, hint: str = "") -> StorageError:
    """One of ours for one of SQLite's.

    Args:
        error: of a statement that is right.
        what: names the file.
        hint: the way out if it is damaged.
    """
    if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
        return StorageFull(f"the disk of {what} is full")
    if is_damage(error):
        return StorageCorrupt(f"{what} is damaged: {error}", hint=hint)
    return StorageUnavailable(f"{what} cannot be used: {error}")
