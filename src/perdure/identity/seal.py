"""The seal of ``identity.db``: a digest over who may do what, and who did.

SQLite notices a page that is out of shape, and not a letter that has become another: a role, a name
or the digest of a key. So every change renews the seal within its transaction, once the seal of
what was there before has held, and every opening looks at it.

Counts of failed logins are not under it: they change with every attempt, and are forgotten soon.
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Final

import msgspec

SCHEMA: Final = "CREATE TABLE IF NOT EXISTS seal (digest BLOB NOT NULL)"
"""At most one row."""

SEALED: Final = ("users", "api_keys", "setup", "ended", "outbox")
"""Tables under it: some thousands of rows, as long as a broker takes its records out."""


def seal_of(rows: sqlite3.Connection) -> bytes:
    """The digest (SHA-256) of what the tables hold now.

    Raises:
        sqlite3.Error: they cannot be read.
    """
    found = hashlib.sha256()
    encode = msgspec.msgpack.Encoder().encode
    text_factory, rows.text_factory = rows.text_factory, bytes  # damaged text may be no UTF-8
    try:
        for table in SEALED:
            found.update(encode(table))
            for row in rows.execute(f"SELECT * FROM {table} ORDER BY 1"):  # noqa: S608
                found.update(encode(row))
    finally:
        rows.text_factory = text_factory
    return found.digest()


def put_seal(rows: sqlite3.Connection, seal: bytes) -> None:
    """Keep a seal, within a transaction."""
    rows.execute("DELETE FROM seal")
    rows.execute("INSERT INTO seal VALUES (?)", (seal,))


def seal_holds(rows: sqlite3.Connection, seal: bytes) -> bool:
    """Whether it is the one that was kept."""
    kept = rows.execute("SELECT digest FROM seal").fetchone()
    return kept is not None and bytes(kept[0]) == seal
