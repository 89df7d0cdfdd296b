"""``identity.db``: users, keys, the setup token, failed logins, records on their way to the log.

SQLite, for several processes write it: the broker, those of HTTP and the command line. Every change
and its audit record are one transaction; the broker takes the records from here to its log. Its
``application_id`` is a random number that tells it from every other.

::

    users      name · role · password (argon2) · created, changed, last login · generation
    api_keys   id · digest (SHA-256) · name · role · scopes · filters · created, expires, used
    setup      digest (SHA-256) · expires                     at most one row
    ended      digest of a login · until                      whatever its store says
    failures   key (a name or an address) · count · last      of logins
    outbox     id · record (JSON)                             not in the log yet
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, final

import msgspec

from perdure.admin.audit import AuditRecord
from perdure.errors import StorageCorrupt, StorageFull, StorageUnavailable
from perdure.storage.directory_record import is_noted

FILE_NAME: Final = "identity.db"

GONE_HINT: Final = (
    "put it back from a backup; or perdure storage repair lets the next start make a new one, and "
    "users and keys are to be made anew"
)
DAMAGED_HINT: Final = (
    "put it back from a backup; or perdure storage repair puts it aside, and users and keys are to "
    "be made anew"
)
VERSION: Final = 1
BUSY_MS: Final = 5_000

OUTBOX_MAX: Final = 100_000
"""Records that wait for a broker; beyond it the oldest goes, for changes must stay possible."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS users (
  name TEXT PRIMARY KEY, role TEXT NOT NULL, password TEXT NOT NULL, created_at_us INTEGER NOT NULL,
  changed_at_us INTEGER NOT NULL, last_login_at_us INTEGER NOT NULL, generation INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS api_keys (
  id TEXT PRIMARY KEY, digest BLOB NOT NULL, name TEXT NOT NULL, role TEXT NOT NULL,
  scopes TEXT NOT NULL, filters TEXT NOT NULL, created_at_us INTEGER NOT NULL,
  created_by TEXT NOT NULL,
  expires_at_us INTEGER NOT NULL, last_used_at_us INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS setup (digest BLOB PRIMARY KEY, expires_at_us INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS ended (digest TEXT PRIMARY KEY, until_s INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS failures (
  key TEXT PRIMARY KEY, count INTEGER NOT NULL, last_us INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, record BLOB NOT NULL);
"""


@final
class IdentityFile:
    """The file, opened; a context manager.

    Threads may share it: one changes while another looks, on a connection each, so that nobody sees
    half of a change.

    Args:
        directory: the data directory, which must be there.

    Raises:
        StorageUnavailable: it cannot be opened.
        StorageCorrupt: it is something else, of a later release, or gone.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._was_here = is_noted(directory, FILE_NAME)
        try:
            if self._was_here and not (self.path.exists() and self.path.stat().st_size):
                raise self._gone()
            self.path.touch(mode=0o600)
            owner, mine = directory.stat(), self.path.stat()
            if mine.st_uid == 0 and owner.st_uid:
                # Made by root for a broker that is not: what SQLite makes beside it follows.
                os.chown(self.path, owner.st_uid, owner.st_gid)
        except OSError as error:
            raise StorageUnavailable(f"{self.path} cannot be opened: {error.strerror}") from None
        self._looking = threading.Lock()
        self._changing = threading.Lock()
        with contextlib.ExitStack() as opened, translated():
            self._written = self._connect(opened)
            self._prepare()
            self._read = self._connect(opened)
            opened.pop_all()

    def _connect(self, opened: contextlib.ExitStack) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=BUSY_MS / 1000, check_same_thread=False, isolation_level=None
        )
        opened.callback(connection.close)
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _prepare(self) -> None:
        self._written.execute("PRAGMA journal_mode = WAL")
        (version,) = self._written.execute("PRAGMA user_version").fetchone()
        if version not in (0, VERSION):
            raise StorageCorrupt(f"{self.path} is of another release (version {version})")
        if version == 0:
            if self._was_here:
                raise self._gone()
            self._written.executescript(_SCHEMA)
            self._written.execute(f"PRAGMA user_version = {VERSION}")
        (mark,) = self._written.execute("PRAGMA application_id").fetchone()
        if mark == 0:
            self._written.execute(f"PRAGMA application_id = {secrets.randbelow(2**31 - 1) + 1}")

    def _gone(self) -> StorageCorrupt:
        what = "is empty" if self.path.exists() else "is gone"
        return StorageCorrupt(f"{self.path} {what}: with it users, keys and logins", hint=GONE_HINT)

    def __enter__(self) -> IdentityFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        self._read.close()
        self._written.close()

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees no other writer: all of it is kept, or nothing."""
        with self._changing, translated():
            self._written.execute("BEGIN IMMEDIATE")
            try:
                yield self._written
            except BaseException:
                self._written.execute("ROLLBACK")
                raise
            self._written.execute("COMMIT")

    @contextmanager
    def look(self) -> Iterator[sqlite3.Connection]:
        """Reads, each of which sees what was committed before it."""
        with self._looking, translated():
            yield self._read

    # -- records on their way ----------------------------------------------------------------

    def record(self, record: AuditRecord) -> None:
        """Keep a record until the broker has it; within ``change``."""
        encoded = msgspec.json.encode(record)
        self._written.execute("INSERT INTO outbox (record) VALUES (?)", (encoded,))
        self._written.execute(
            "DELETE FROM outbox WHERE id <= (SELECT max(id) FROM outbox) - ?", (OUTBOX_MAX,)
        )

    def outgoing(self, limit: int) -> list[tuple[int, AuditRecord]]:
        """The oldest records that wait, with their numbers."""
        with self.look() as rows:
            found = rows.execute(
                "SELECT id, record FROM outbox ORDER BY id LIMIT ?", (limit,)
            ).fetchall()
        return [(number, msgspec.json.decode(each, type=AuditRecord)) for number, each in found]

    def sent(self, number: int) -> None:
        """Forget the records up to one: the broker has them."""
        with self.change() as rows:
            rows.execute("DELETE FROM outbox WHERE id <= ?", (number,))


@contextmanager
def translated() -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
            raise StorageFull("the disk of identity.db is full") from None
        raise StorageUnavailable(f"identity.db cannot be used: {error}") from None
    except sqlite3.Error as error:
        raise StorageCorrupt(f"{FILE_NAME} is damaged: {error}", hint=DAMAGED_HINT) from None


def damage_of(directory: Path) -> str:
    """What is wrong with the file of a data directory; empty = nothing, or there is none.

    Beside a broker, too. Changes nothing.
    """
    path = directory / FILE_NAME
    if not path.exists():
        return ""
    try:
        spare = path.stat().st_size % (_ask(path, "PRAGMA page_size") or 1)
        if spare:
            return f"it ends {spare} bytes into a page"  # which SQLite fills up with zeros
        found = _ask(path, "PRAGMA quick_check(1)")
    except sqlite3.Error as error:
        return str(error)
    return "" if found in ("ok", None) else str(found)


def mark_of_users(path: Path) -> str:
    """What tells such a file from every other; empty = it cannot be read now."""
    try:
        found = _ask(path, "PRAGMA application_id")
    except sqlite3.Error:
        return ""  # that is damage
    return f"{found:08x}" if found else ""


def _ask(path: Path, question: str) -> Any:
    """One value out of a file, which is not changed; None = in use, or not for this user.

    Raises:
        sqlite3.Error: it is damaged.
    """
    with contextlib.suppress(sqlite3.OperationalError):
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as rows:
            return rows.execute(question).fetchone()[0]
    return None
