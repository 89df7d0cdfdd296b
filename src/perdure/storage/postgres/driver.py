"""A broker's whole state in PostgreSQL: the driver of the profile ``postgres``.

Transactions go over one connection, each as one call of a function where that can be: one round
trip and one commit. Reads (``state``) go over other connections, behind what was committed. Queues
are those of ``device_queue``: TBMQ's two tables, without an owner's epoch. The writer is who holds
an advisory lock on its connection, which ends with it, and whose token is in ``perdure_writer``: a
commit of an earlier claim finds another one there and is refused.

Names of asyncpg stay in here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Final, TypeAlias, final
from urllib.parse import urlsplit

import asyncpg

from perdure.config.backends import BACKENDS
from perdure.config.schema.storage import PostgresConfig
from perdure.errors import (
    ConfigError,
    Fenced,
    FormatTooNew,
    PerdureError,
    StorageCorrupt,
    StorageLocked,
    StorageUnavailable,
)
from perdure.storage.postgres import durability, errors, schema
from perdure.storage.postgres.state import PostgresState
from perdure.storage.postgres.transactions import Changes, statements
from perdure.storage.remote.driver import QUEUE_MAX, Claim, Transaction

FORMAT: Final = 1
LOCK_CLASS: Final = 0x50455244
"""First half of the advisory lock's name: PERD."""

LOCK_PATIENCE_S: Final = 3.0
"""How long the backend of a broker that has just died may take to see that."""

_Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@final
class PostgresDriver(PostgresState):
    """A ``storage.remote.driver.Driver`` on PostgreSQL.

    Args:
        url: ``postgresql://user:password@host/database``.
        connect_timeout_s: for one attempt to connect.
        command_timeout_s: for one statement; after it the connection is given up.
        policy: what to do about a server that may lose what it has acknowledged.
    """

    def __init__(
        self,
        url: str,
        *,
        connect_timeout_s: float = 5.0,
        command_timeout_s: float = 15.0,
        policy: durability.Policy = "warn",
    ) -> None:
        super().__init__(
            url, connect_timeout_s=connect_timeout_s, command_timeout_s=command_timeout_s
        )
        self.queue_max = QUEUE_MAX
        self._writer: _Connection | None = None
        self._token = 0
        self._policy = policy

    @classmethod
    def configured(cls, section: PostgresConfig, identity: str) -> PostgresDriver:
        """As a configuration says; see ``config.backends``. The server knows its sessions by
        itself, so ``identity`` is not needed.

        Raises:
            ConfigError: the URL is wrong.
        """
        if urlsplit(section.url).scheme not in BACKENDS["postgres"].schemes:
            raise ConfigError(
                "is no URL of PostgreSQL",
                path="storage.postgres.url",
                hint="postgresql://user:password@host:5432/database",
            )
        return cls(
            section.url,
            command_timeout_s=float(section.command_timeout_s),
            policy=section.durability,
        )

    # -- connecting ------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self._writer is not None and not self._writer.is_closed()

    async def probe(self) -> None:
        pool = self._make_pool()
        try:
            await durability.check(pool, self._policy)
            await schema.look(pool)
        finally:
            await pool.close()

    async def claim(self) -> Claim:
        self._drop_writer()
        async with self._translated():
            try:
                connection = await asyncpg.connect(
                    self._url,
                    timeout=self._connect_timeout_s,
                    command_timeout=self._command_timeout_s,
                    server_settings={"application_name": "perdure", "jit": "off"},
                )
            except ValueError as error:
                raise ConfigError(str(error), path="storage.postgres.url") from error
        self._writer = connection
        try:
            async with self._translated():
                await self._become_writer(connection)
                pool = self._pool
                if pool is None:
                    pool = self._make_pool()
                    try:
                        await durability.check(pool, self._policy)
                        await schema.migrate(pool)
                    except BaseException:
                        await pool.close()
                        raise
                    self._pool = pool
                return await self._take_token(connection)
        except BaseException:
            self._drop_writer()
            raise

    async def _become_writer(self, connection: _Connection) -> None:
        name = await connection.fetchval("SELECT hashtext(current_schema())")
        waited = 0.0
        while not await connection.fetchval(
            "SELECT pg_try_advisory_lock($1, $2)", LOCK_CLASS, name
        ):
            if self._token:
                # Another broker's token: it holds the lock for as long as it runs. Else it is our
                # own connection that the server has not given up yet.
                if await connection.fetchval("SELECT token FROM perdure_writer") != self._token:
                    raise Fenced(f"another broker has written to {self.place}")
                await connection.execute(
                    "SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l, perdure_writer AS w "
                    "WHERE l.locktype = 'advisory' AND l.classid = $1::bigint::oid "
                    "AND l.objid = ($2::integer::bigint & 4294967295)::oid AND l.granted "
                    "AND w.token = $3",
                    LOCK_CLASS,
                    name,
                    self._token,
                )
            elif waited >= LOCK_PATIENCE_S:
                raise StorageLocked(
                    f"{self.place} is in use by another broker",
                    hint="stop that broker, or give this one another database or schema",
                )
            if waited >= self._command_timeout_s:
                raise StorageUnavailable(f"{self.place} keeps a lost connection")
            await asyncio.sleep(0.1)
            waited += 0.1

    async def _take_token(self, connection: _Connection) -> Claim:
        async with connection.transaction():
            text = resources.files(__package__).joinpath("state.sql").read_text(encoding="utf-8")
            await connection.execute(text)
            stored = await connection.fetchrow(
                "SELECT format, token, number FROM perdure_writer FOR UPDATE"
            )
            if stored is None:
                raise StorageCorrupt(f"{self.place} has no row in perdure_writer")
            if stored["format"] > FORMAT:
                raise FormatTooNew(f"{self.place} was written by a later release")
            if self._token and stored["token"] != self._token:
                raise Fenced(f"another broker has written to {self.place}")
            token: int = stored["token"] + 1
            await connection.execute("UPDATE perdure_writer SET token = $1", token)
            self._has_long = await connection.fetchval(
                "SELECT EXISTS (SELECT FROM perdure_state_long)"
            )
        self._token = token
        return Claim(stored["number"])

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.terminate()

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                await writer.close(timeout=self._connect_timeout_s)
            except errors.RAISED:
                writer.terminate()
        await super().close()

    # -- writing ---------------------------------------------------------------------------

    async def commit(self, transaction: Transaction) -> None:
        writer = self._writer
        if writer is None:
            raise StorageUnavailable(f"{self.place} is not connected")
        changes = Changes(transaction)
        head, rest = statements(self._token, transaction, changes)
        touches_long = changes.has_long or (self._has_long and changes.may_touch_long)
        async with self._translated():
            if not rest and not touches_long:
                await writer.fetchval(head.sql, *head.arguments)
                return
            async with writer.transaction():
                if await writer.fetchval(head.sql, *head.arguments):
                    for statement in rest:
                        await writer.fetch(statement.sql, *statement.arguments)
                    if touches_long:
                        for statement in changes.long_statements():
                            await writer.execute(statement.sql, *statement.arguments)
        self._has_long = self._has_long or changes.has_long

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        """Errors of asyncpg as errors of ours."""
        try:
            yield
        except errors.RAISED as error:
            if errors.is_connection_lost(error):
                self._drop_writer()
            raise self._meaning(error) from error

    def _meaning(self, error: BaseException) -> PerdureError:
        code = getattr(error, "sqlstate", None)
        if code == "PD002":
            return Fenced(f"another broker writes to {self.place}")
        if code == "PD003":
            return StorageCorrupt(f"{self.place}: {error}")
        meant = errors.translate(error)
        if isinstance(meant, ConfigError) and self._token:
            # It was right before, and may be again.
            return StorageUnavailable(meant.message, hint=meant.hint)
        return meant
