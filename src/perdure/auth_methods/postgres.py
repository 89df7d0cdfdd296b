"""Users and rules in PostgreSQL, by queries of the operator's.

User name and client identifier are arguments of the statements and never a part of them. A channel
of NOTIFY, if there is one, tells of users that have changed; when its connection was lost, anybody
may have.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final, final

import asyncpg

from perdure.auth_methods.stored import StoredUser, StoredUsers, rule_line
from perdure.broker.auth.authenticate import AuthRequest
from perdure.broker.auth.method import MethodContext, MethodUnavailable, UnusableAnswer
from perdure.config.schema.auth_methods import PostgresAuthConfig
from perdure.errors import ConfigError

SETTING: Final = "auth.postgres"
USER_ROWS_MAX: Final = 16
RETRY_S: Final = 5.0
"""Between two attempts to listen."""

_ERRORS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)


@final
class PostgresMethod(StoredUsers):
    """Looks users up in PostgreSQL.

    Args:
        settings: of the method.
        context: clock, threads, chance, log.
    """

    def __init__(self, settings: PostgresAuthConfig, context: MethodContext) -> None:
        super().__init__(settings, context)
        self._settings = settings
        self._pool: asyncpg.Pool[Any] | None = None
        self._opening = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen for users that change, if there is a channel for it."""
        if self._settings.notify_channel:
            self._listening = asyncio.create_task(self._listen(), name="auth.postgres.listen")

    async def close(self) -> None:
        """Close the connections."""
        await super().close()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._pool is not None:
            self._pool.terminate()

    async def find_user(self, request: AuthRequest) -> StoredUser | None:
        """The rows of a user: a hash in each."""
        rows = await self._rows(self._settings.user_query, request, USER_ROWS_MAX)
        if not rows:
            return None
        if "password_hash" not in rows[0]:
            raise UnusableAnswer("user_query has no column password_hash")
        entries = [row["password_hash"] for row in rows]
        superuser = any(bool(row.get("is_superuser", False)) for row in rows)
        return StoredUser(tuple(entry for entry in entries if isinstance(entry, str)), superuser)

    async def find_rules(self, request: AuthRequest) -> list[str] | None:
        """The rows of what a user may do."""
        settings = self._settings
        if not settings.acl_query:
            return None
        rows = await self._rows(settings.acl_query, request, settings.acl_rows_max)
        if rows and not {"permission", "topic"} <= rows[0].keys():
            raise UnusableAnswer("acl_query has no columns permission and topic")
        return [rule_line(row["permission"], row["topic"]) for row in rows]

    async def _rows(self, query: str, request: AuthRequest, rows_max: int) -> list[dict[str, Any]]:
        """The rows of a query.

        Raises:
            MethodUnavailable: the server is away, or does not take it.
            UnusableAnswer: there are too many.
        """
        names = (request.username, request.client_id)[: _arguments(query)]
        if any("\0" in (name or "") for name in names):
            return []  # PostgreSQL has no such text
        # Whatever the query is, no more rows than these come over.
        bounded = f"SELECT * FROM ({query}) AS perdure_rows LIMIT {rows_max + 1}"  # noqa: S608
        try:
            pool = self._pool or await self._open()
            found = await pool.fetch(bounded, *names)
        except _ERRORS as error:
            raise MethodUnavailable(str(error) or type(error).__name__) from None
        if len(found) > rows_max:
            raise UnusableAnswer(f"{request.username!r} has more than {rows_max} rows")
        return [dict(row) for row in found]

    async def _open(self) -> asyncpg.Pool[Any]:
        async with self._opening:
            if self._pool is None:
                timeout_s = self._settings.timeout_ms / 1000
                # Connections are made when they are needed: a server that is away now may come.
                self._pool = await asyncpg.create_pool(
                    self._settings.url,
                    min_size=0,
                    max_size=self._settings.connections_max,
                    timeout=timeout_s,
                    command_timeout=timeout_s,
                )
            return self._pool

    async def _listen(self) -> None:
        context, settings = self._context, self._settings
        was_lost = False
        while True:
            try:
                connection = await asyncpg.connect(settings.url, timeout=settings.timeout_ms / 1000)
            except _ERRORS as error:
                context.log.warning("auth.not_listening", method=context.name, error=str(error))
                was_lost = True
                await asyncio.sleep(RETRY_S)
                continue
            ended = asyncio.Event()
            try:
                connection.add_termination_listener(lambda _connection, ended=ended: ended.set())
                await connection.add_listener(settings.notify_channel, self._heard)
                if was_lost:
                    context.changed(None)
                await ended.wait()
                was_lost = True
            except _ERRORS as error:
                context.log.warning("auth.not_listening", method=context.name, error=str(error))
                was_lost = True
                await asyncio.sleep(RETRY_S)
            finally:
                with contextlib.suppress(*_ERRORS):
                    connection.terminate()

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._context.changed(str(payload) if payload else None)


def _arguments(query: str) -> int:
    return 2 if "$2" in query else 1


def open_method(settings: PostgresAuthConfig, context: MethodContext) -> PostgresMethod:
    """Make the method.

    Raises:
        ConfigError: the URL or a query cannot be used.
    """
    if not settings.url.startswith(("postgresql://", "postgres://")):
        raise ConfigError(
            "is no URL of PostgreSQL",
            path=f"{SETTING}.url",
            hint="postgresql://user:password@host:5432/database",
        )
    for name in ("user_query", "acl_query"):
        query: str = getattr(settings, name)
        if not query and name == "acl_query":
            continue
        if "$1" not in query or ";" in query:
            raise ConfigError(
                "is not one SELECT with $1 in it",
                path=f"{SETTING}.{name}",
                hint="$1 is the user name, $2 the client identifier; without a semicolon",
            )
    return PostgresMethod(settings, context)
