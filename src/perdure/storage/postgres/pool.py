"""A few connections to one PostgreSQL server: made when needed, given back, dropped when lost.

It knows statements, not what they mean. asyncpg's own pool costs one more round trip for each use,
which is what this one is about.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, final

import asyncpg
import msgspec

from perdure.errors import StorageUnavailable
from perdure.storage.postgres import errors

POOL_SIZE: Final = 4
"""Connections, if nobody says otherwise: each is a process of the server."""

CONNECT_TIMEOUT_S: Final = 10.0
COMMAND_TIMEOUT_S: Final = 60.0

# Plans are made for tables of any size: by index, never along a table that happens to be small
# now. Compiling such a plan would cost more than it runs.
_SESSION: Final = {"application_name": "perdure", "enable_seqscan": "off", "jit": "off"}

Row: TypeAlias = Any
"""A mapping from column names to values, and a sequence."""


class Statement(msgspec.Struct, frozen=True):
    """A statement with its arguments, ready to run anywhere."""

    sql: str
    arguments: tuple[object, ...] = ()


@final
class Pool:
    """Connections to one database.

    Args:
        url: ``postgresql://user:password@host:port/database``; query parameters may name
            settings of the session (``?search_path=perdure``) and TLS (``sslmode=verify-full``).
        size: most connections at a time.
        connect_timeout_s, command_timeout_s: how long to wait for a connection, for an answer.
    """

    def __init__(
        self,
        url: str,
        *,
        size: int = POOL_SIZE,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        command_timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> None:
        self.size = size
        self._url = url
        self._connect_timeout_s = connect_timeout_s
        self._command_timeout_s = command_timeout_s
        self._slots = asyncio.Semaphore(size)
        self._idle: list[asyncpg.Connection[Any]] = []
        self._is_closed = False

    async def run(self, statement: Statement) -> list[Row]:
        """Run one statement in a transaction of its own; returns its rows.

        Raises:
            PerdureError: see ``errors.translate``.
        """
        async with self.connection() as connection:
            rows: list[Row] = await connection.fetch(
                statement.sql, *statement.arguments, timeout=self._command_timeout_s
            )
            return rows

    async def run_all(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Run statements in one transaction; returns the rows of each."""
        if len(statements) == 1:
            return [await self.run(statements[0])]
        async with self.connection() as connection, connection.transaction():
            return [
                await connection.fetch(
                    statement.sql, *statement.arguments, timeout=self._command_timeout_s
                )
                for statement in statements
            ]

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection[Any]]:
        """A connection for a while; asyncpg's exceptions leave it as ours."""
        async with self._slots:
            try:
                connection = await self._acquire()
                try:
                    yield connection
                except BaseException as error:
                    # What a cancelled command does to the connection takes a while to find out.
                    if errors.is_connection_lost(error) or isinstance(
                        error, asyncio.CancelledError
                    ):
                        connection.terminate()
                    raise
                finally:
                    if self._is_closed:
                        connection.terminate()
                    elif not connection.is_closed():
                        self._idle.append(connection)
            except errors.RAISED as error:
                raise errors.translate(error) from error

    async def close(self) -> None:
        """Close what is idle now, and the others when they come back."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            with contextlib.suppress(*errors.RAISED):
                await connection.close(timeout=self._connect_timeout_s)

    async def _acquire(self) -> asyncpg.Connection[Any]:
        if self._is_closed:
            raise StorageUnavailable("the connections to PostgreSQL are closed")
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
            # Those that were idle with it have most likely ended with it: asyncpg knows.
        try:
            made: asyncpg.Connection[Any] = await asyncpg.connect(
                self._url, timeout=self._connect_timeout_s, server_settings=_SESSION
            )
        except ValueError as error:
            raise asyncpg.ClientConfigurationError(str(error)) from error
        return made
