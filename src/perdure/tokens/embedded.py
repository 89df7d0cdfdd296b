"""Tokens in a file of SQLite, for a broker without a server.

The file keeps SHA-256 digests, not tokens: who reads it or a copy of it cannot present one.
Each row ends in a checksum: one that is damaged is a token that nobody has.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeAlias, TypeVar, final

from perdure import sqlite_errors
from perdure.errors import StorageCorrupt, StorageUnavailable
from perdure.tokens.store import TokenStore
from perdure.tokens.token import Listed, Token, listed
from perdure.tokens.values import pack_short, unpack_short

T = TypeVar("T")
_Row: TypeAlias = tuple[bytes, int, bytes]

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS tokens (
  digest BLOB PRIMARY KEY, expires_at INTEGER NOT NULL, value BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tokens_by_expiry ON tokens (expires_at);
"""
_VERSION: Final = 2
_UNCHECKED: Final = 1
"""Version whose rows have no checksum, and are given one."""
_BUSY_MS: Final = 5_000
_CHECKSUM_BYTES: Final = 4
_COLUMNS: Final = "digest, expires_at, value"
_WHAT: Final = "the token store"


@final
class EmbeddedTokens(TokenStore):
    """The store; what is saved is synced before ``save`` returns.

    Args:
        path: the file; made if it is not there, for its owner alone.

    Raises:
        StorageUnavailable: it cannot be opened.
        StorageCorrupt: it is something else.
    """

    def __init__(self, path: Path) -> None:
        # SQLite's calls block, and one connection is one thread's.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="perdure-tokens")
        try:
            path.touch(mode=0o600)
            self._database = self._thread.submit(_open, path).result()
        except OSError as error:
            self._thread.shutdown()
            raise StorageUnavailable(f"{path} cannot be opened: {error.strerror}") from None
        except BaseException:
            self._thread.shutdown()
            raise

    async def _save(self, tokens: Sequence[Token], now_s: int) -> None:
        rows = [
            (digest, token.expires_at, _checked(digest, token.expires_at, pack_short(token)))
            for token in tokens
            for digest in (_digest(token.id),)
        ]

        def save() -> None:
            with self._database:
                self._database.executemany("INSERT OR REPLACE INTO tokens VALUES (?, ?, ?)", rows)

        await self._run(save)

    async def find(self, token_id: bytes, now_s: int) -> Token | None:
        def find() -> list[_Row]:
            return self._database.execute(
                f"SELECT {_COLUMNS} FROM tokens WHERE digest = ? AND expires_at > ?",  # noqa: S608
                (_digest(token_id), now_s),
            ).fetchall()

        return next(
            (unpack_short(token_id, each) for _, each in _whole(await self._run(find))), None
        )

    async def revoke(self, token_id: bytes) -> bool:
        def revoke() -> int:
            with self._database:
                return self._database.execute(
                    "DELETE FROM tokens WHERE digest = ?", (_digest(token_id),)
                ).rowcount

        return bool(await self._run(revoke))

    async def handle(self, token_id: bytes) -> str:
        return _digest(token_id).hex()

    async def page(self, after: str, limit: int, now_s: int) -> tuple[list[Listed], str]:
        last = bytes.fromhex(after)

        def page() -> list[_Row]:
            return self._database.execute(
                f"SELECT {_COLUMNS} FROM tokens WHERE digest > ? AND expires_at > ? "  # noqa: S608
                "ORDER BY digest LIMIT ?",
                (last, now_s, limit),
            ).fetchall()

        rows = await self._run(page)
        found = [listed(digest.hex(), unpack_short(b"", each)) for digest, each in _whole(rows)]
        return found, rows[-1][0].hex() if len(rows) == limit else ""

    async def revoke_handle(self, handle: str, now_s: int) -> Listed | None:
        try:
            digest = bytes.fromhex(handle)
        except ValueError:
            return None

        def revoke() -> list[_Row]:
            with self._database:
                return self._database.execute(
                    "DELETE FROM tokens WHERE digest = ? AND expires_at > ? "  # noqa: S608
                    f"RETURNING {_COLUMNS}",
                    (digest, now_s),
                ).fetchall()

        rows = _whole(await self._run(revoke))
        return next((listed(handle, unpack_short(b"", each)) for _, each in rows), None)

    async def maintain(self, now_s: int) -> int:
        def sweep() -> int:
            with self._database:
                return self._database.execute(
                    "DELETE FROM tokens WHERE expires_at <= ?", (now_s,)
                ).rowcount

        return await self._run(sweep)

    async def count(self) -> int:
        def count() -> int:
            found: int = self._database.execute("SELECT count(*) FROM tokens").fetchone()[0]
            return found

        return await self._run(count)

    async def close(self) -> None:
        await self._run(self._database.close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise sqlite_errors.translated(error, _WHAT) from None


def _open(path: Path) -> sqlite3.Connection:
    try:
        database = sqlite3.connect(path, timeout=_BUSY_MS / 1000)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version not in (0, _UNCHECKED, _VERSION):
            raise StorageCorrupt(f"{path} is of another release (version {version})")
        database.executescript(_SCHEMA)
        with database:
            database.execute("BEGIN IMMEDIATE")
            _give_checksums(database)
            database.execute(f"PRAGMA user_version = {_VERSION}")
    except sqlite3.Error as error:
        raise sqlite_errors.translated(error, _WHAT) from None
    return database


def _give_checksums(database: sqlite3.Connection) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version == _UNCHECKED:
        database.create_function("checked", 3, _checked, deterministic=True)
        database.execute("UPDATE tokens SET value = checked(digest, expires_at, value)")


def _checked(digest: bytes, expires_at: int, value: bytes) -> bytes:
    """A value with the checksum of its row."""
    return value + _checksum(digest, expires_at, value)


def _checksum(digest: bytes, expires_at: int, value: bytes) -> bytes:
    row = b"%b%d %b" % (digest, expires_at, value)
    return zlib.crc32(row).to_bytes(_CHECKSUM_BYTES, "big")


def _whole(rows: Sequence[_Row]) -> Iterator[tuple[bytes, bytes]]:
    """Digests and values of the rows that are what was written."""
    for digest, expires_at, checked in rows:
        value, checksum = checked[:-_CHECKSUM_BYTES], checked[-_CHECKSUM_BYTES:]
        if checksum == _checksum(digest, expires_at, value):
            yield digest, value


def _digest(token_id: bytes) -> bytes:
    return hashlib.sha256(token_id).digest()
