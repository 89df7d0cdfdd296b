"""``identity.db``: users, keys, the setup token, failed logins, records on their way to the log.

SQLite, for several processes write it: the broker, those of HTTP and the command line. Every change
and its audit record are one transaction; the broker takes the records from here to its log. Its
``application_id`` is a random number that tells it from every other.

::

    users      name · role · password (argon2) · created, changed, last login · generation
    api_keys   id · digest (SHA-256) · name · role · scopes · filters · created, expires, used
    setup      digest (SHA-256) · expires                     at most ``setup.LINKS_MAX`` rows
    ended      digest of a login · until                      whatever its store says
    failures   key (a name or an address) · count · last      of logins
    outbox     id · record (JSON)                             not in the log yet
    seal       digest of all but the failures (``identity.seal``)
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar, final

import msgspec

from perdure import sqlite_errors
from perdure.admin.audit import AuditRecord
from perdure.errors import StorageCorrupt, StorageUnavailable
from perdure.identity import seal
from perdure.storage.directory_record import is_noted

T = TypeVar("T")

FILE_NAME: Final = "identity.db"

GONE_HINT: Final = (
    "put it back from a backup; or perdure storage repair lets the next start make a new one, and "
    "users and keys are to be made anew"
)
DAMAGED_HINT: Final = (
    "put it back from a backup; or perdure storage repair puts it aside, and users and keys are to "
    "be made anew"
)
VERSION: Final = 2
UNSEALED: Final = 1
"""Version without a seal, which is given one."""
BUSY_MS: Final = 5_000

OUTBOX_MAX: Final = 100_000
"""Records that wait for a broker; beyond it the oldest goes, for changes must stay possible."""

_TABLES: Final = (
    """
    CREATE TABLE IF NOT EXISTS users (
      name TEXT PRIMARY KEY, role TEXT NOT NULL, password TEXT NOT NULL,
      created_at_us INTEGER NOT NULL, changed_at_us INTEGER NOT NULL,
      last_login_at_us INTEGER NOT NULL, generation INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS api_keys (
      id TEXT PRIMARY KEY, digest BLOB NOT NULL, name TEXT NOT NULL, role TEXT NOT NULL,
      scopes TEXT NOT NULL, filters TEXT NOT NULL, created_at_us INTEGER NOT NULL,
      created_by TEXT NOT NULL,
      expires_at_us INTEGER NOT NULL, last_used_at_us INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE TABLE IF NOT EXISTS setup (digest BLOB PRIMARY KEY, expires_at_us INTEGER NOT NULL)",
    """
    CREATE TABLE IF NOT EXISTS ended (
      digest TEXT PRIMARY KEY, until_s INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS failures (
      key TEXT PRIMARY KEY, count INTEGER NOT NULL, last_us INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS outbox (
      id INTEGER PRIMARY KEY AUTOINCREMENT, record BLOB NOT NULL
    )
    """,
    seal.SCHEMA,
)
_BROKEN: Final = "its users and keys are not those that were written"


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
        rows = self._written
        rows.execute("PRAGMA journal_mode = WAL")
        (version,) = rows.execute("PRAGMA user_version").fetchone()
        if version not in (0, UNSEALED, VERSION):
            raise StorageCorrupt(f"{self.path} is of another release (version {version})")
        if version == 0 and self._was_here:
            raise self._gone()
        if version != VERSION:
            with self._transaction():
                self._make()
        with self._transaction("BEGIN"):
            self._check_seal()

    def _make(self) -> None:
        """Make the tables and their seal, if nobody else has done so meanwhile."""
        rows = self._written
        (version,) = rows.execute("PRAGMA user_version").fetchone()
        if version == VERSION:
            return
        for statement in _TABLES:
            rows.execute(statement)
        seal.put_seal(rows, seal.seal_of(rows))
        rows.execute(f"PRAGMA user_version = {VERSION}")
        (mark,) = rows.execute("PRAGMA application_id").fetchone()
        if mark == 0:
            rows.execute(f"PRAGMA application_id = {secrets.randbelow(2**31 - 1) + 1}")

    def _check_seal(self) -> bytes:
        """The seal, which holds; within a transaction.

        Raises:
            StorageCorrupt: what is there is not what was written.
        """
        found = seal.seal_of(self._written)
        if not seal.seal_holds(self._written, found):
            raise StorageCorrupt(f"{self.path} is damaged: {_BROKEN}", hint=DAMAGED_HINT)
        return found

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
        with self._changing, translated(), self._transaction():
            before = self._check_seal()
            yield self._written
            after = seal.seal_of(self._written)
            if after != before:
                seal.put_seal(self._written, after)

    @contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
        self._written.execute(begin)
        try:
            yield
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
    except sqlite3.Error as error:
        raise sqlite_errors.translated(error, FILE_NAME, DAMAGED_HINT) from None


def damage_of(directory: Path) -> str:
    """What is wrong with the file of a data directory; empty = nothing, or there is none.

    Beside a broker, too. Changes nothing.
    """
    path = directory / FILE_NAME
    if not path.exists():
        return ""
    try:
        spare = path.stat().st_size % (_asked(path, _value_of("PRAGMA page_size")) or 1)
        if spare:
            return f"it ends {spare} bytes into a page"  # which SQLite fills up with zeros
        found = _asked(path, _value_of("PRAGMA quick_check(1)"))
        if found not in ("ok", None):
            return str(found)
        return _BROKEN if _asked(path, _has_broken_seal) else ""
    except sqlite3.Error as error:
        return str(error)


def mark_of_users(path: Path) -> str:
    """What tells such a file from every other; empty = it cannot be read now."""
    try:
        found = _asked(path, _value_of("PRAGMA application_id"))
    except sqlite3.Error:
        return ""  # that is damage
    return f"{found:08x}" if found else ""


def _value_of(question: str) -> Callable[[sqlite3.Connection], Any]:
    return lambda rows: rows.execute(question).fetchone()[0]


def _has_broken_seal(rows: sqlite3.Connection) -> bool:
    rows.execute("BEGIN")
    (version,) = rows.execute("PRAGMA user_version").fetchone()
    return version >= VERSION and not seal.seal_holds(rows, seal.seal_of(rows))


def _asked(path: Path, ask: Callable[[sqlite3.Connection], T]) -> T | None:
    """Something of a file, which is not changed; None = in use, or not for this user.

    Raises:
        sqlite3.Error: it is damaged.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as rows:
            return ask(rows)
    except sqlite3.Error as error:
        if sqlite_errors.is_damage(error):
            raise
        return None
