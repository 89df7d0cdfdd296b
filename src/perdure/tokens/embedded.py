"""Tokens in a file of SQLite, for a broker without a server.

The file keeps SHA-256 digests, not tokens: who reads it or a copy of it cannot present one.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar, final

from perdure.errors import StorageCorrupt, StorageFull, StorageUnavailable
from perdure.tokens.store import TokenStore
from perdure.tokens.token import Listed, Token, listed
from perdure.tokens.values import pack_short, unpack_short

T = TypeVar("T")

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS tokens (
  digest BLOB PRIMARY KEY, expires_at INTEGER NOT NULL, value BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tokens_by_expiry ON tokens (expires_at);
"""
_VERSION: Final = 1
_BUSY_MS: Final = 5_000
_FULL: Final = "SQLITE_FULL"


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
        rows = [(_digest(token.id), token.expires_at, pack_short(token)) for token in tokens]

        def save() -> None:
            with self._database:
                self._database.executemany("INSERT OR REPLACE INTO tokens VALUES (?, ?, ?)", rows)

        await self._run(save)

    async def find(self, token_id: bytes, now_s: int) -> Token | None:
        def find() -> bytes | None:
            row = self._database.execute(
                "SELECT value FROM tokens WHERE digest = ? AND expires_at > ?",
                (_digest(token_id), now_s),
            ).fetchone()
            return None if row is None else bytes(row[0])

        value = await self._run(find)
        return None if value is None else unpack_short(token_id, value)

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

        def page() -> list[tuple[bytes, bytes]]:
            return self._database.execute(
                "SELECT digest, value FROM tokens WHERE digest > ? AND expires_at > ? "
                "ORDER BY digest LIMIT ?",
                (last, now_s, limit),
            ).fetchall()

        rows = await self._run(page)
        found = [listed(digest.hex(), unpack_short(b"", value)) for digest, value in rows]
        return found, found[-1].handle if len(found) == limit else ""

    async def revoke_handle(self, handle: str, now_s: int) -> Listed | None:
        try:
            digest = bytes.fromhex(handle)
        except ValueError:
            return None

        def revoke() -> bytes | None:
            with self._database:
                row = self._database.execute(
                    "DELETE FROM tokens WHERE digest = ? AND expires_at > ? RETURNING value",
                    (digest, now_s),
                ).fetchone()
            return None if row is None else bytes(row[0])

        value = await self._run(revoke)
        return None if value is None else listed(handle, unpack_short(b"", value))

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
            raise _translated(error) from None


def _open(path: Path) -> sqlite3.Connection:
    try:
        database = sqlite3.connect(path, timeout=_BUSY_MS / 1000)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version not in (0, _VERSION):
            raise StorageCorrupt(f"{path} is of another release (version {version})")
        database.executescript(_SCHEMA)
        database.execute(f"PRAGMA user_version = {_VERSION}")
    except sqlite3.Error as error:
        raise _translated(error) from None
    return database


def _translated(error: sqlite3.Error) -> StorageCorrupt | StorageFull | StorageUnavailable:
    if getattr(error, "sqlite_errorname", "") == _FULL:
        return StorageFull("the disk of the token store is full")
    if isinstance(error, sqlite3.OperationalError):
        return StorageUnavailable(f"the token store cannot be used: {error}")
    return StorageCorrupt(f"the token store is damaged: {error}")


def _digest(token_id: bytes) -> bytes:
    return hashlib.sha256(token_id).digest()
