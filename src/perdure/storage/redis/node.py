"""One Redis server and the connection to it, which is made again whenever it was lost.

A caller that comes while there is no connection waits a while for the next one. What had been
sent when a connection was lost fails: nobody knows what became of it, and only the caller knows
whether to do it again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Final, final

import msgspec

from perdure.errors import ConfigError, StorageError, StorageUnavailable
from perdure.observe.logs import get_logger
from perdure.storage.redis.commands import Argument, Library, Reply, Script, check, pack
from perdure.storage.redis.connection import Connection, is_error, open_connection
from perdure.storage.redis.url import RedisAddress, show_node

log = get_logger("storage")

_BACKOFF_FIRST_S: Final = 0.02
_BACKOFF_MAX_S: Final = 1.0
_CLIENT_NAME: Final = "perdure"


class ClientSettings(msgspec.Struct, frozen=True):
    """How patient a client is, and how much it holds in flight.

    Attributes:
        connect_timeout_s: for one attempt to connect.
        timeout_s: how long a batch may stay unanswered before the connection is given up.
        wait_s: how long a call waits for a connection, or for a node that says "try again".
        bytes_max: unanswered bytes of one connection at which calls wait, bytes.
    """

    connect_timeout_s: float = 5.0
    timeout_s: float = 10.0
    wait_s: float = 5.0
    bytes_max: int = 8 * 1024 * 1024


@final
class Code:
    """What has to be loaded into every server: libraries of functions, and scripts."""

    __slots__ = ("libraries", "scripts")

    def __init__(self, libraries: Sequence[Library] = (), scripts: Sequence[Script] = ()) -> None:
        self.libraries = tuple(libraries)
        self.scripts = tuple(scripts)


@final
class Node:
    """A server by host and port.

    Args:
        address: login, database and TLS; its nodes are not looked at.
        code: loaded at each connect.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        address: RedisAddress,
        context: ssl.SSLContext | None,
        settings: ClientSettings,
        code: Code,
    ) -> None:
        self.host = host
        self.port = port
        self.name = f"Redis at {show_node(host, port)}"
        self._address = address
        self._context = context
        self._settings = settings
        self._code = code
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False
        self._last_error: StorageError | ConfigError | None = None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._connection is not None and self._connection.is_open

    def ready(self) -> Connection | None:
        """The connection, if a batch may be sent on it now."""
        connection = self._connection
        if connection is not None and connection.is_open and connection.has_room:
            return connection
        return None

    async def request(self, packed: bytes, count: int) -> list[Reply]:
        """Send commands in wire form; their replies, error replies among them.

        Raises:
            StorageUnavailable: no connection in time, or it was lost before all were answered.
            StorageTimeout: no answer in time.
        """
        while True:
            connection = self._connection
            if connection is None or not connection.is_open:
                connection = await self._connected()
            if connection.has_room:
                return await connection.send(packed, count)
            await connection.room()

    async def open(self) -> Connection:
        """Make a connection of the caller's own, logged in, which is not made again if it is lost.

        Raises:
            ConfigError: the login is refused.
            StorageUnavailable: the server is not there.
        """
        connection = await open_connection(
            self.host,
            self.port,
            name=self.name,
            context=self._context,
            connect_timeout_s=self._settings.connect_timeout_s,
            timeout_s=self._settings.timeout_s,
            bytes_max=self._settings.bytes_max,
        )
        try:
            await self._log_in(connection)
            await self._load(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def connect(self) -> None:
        """Connect and log in, once.

        Raises:
            ConfigError: the login is refused.
            StorageUnavailable: the server is not there.
        """
        connection = await self.open()
        if self._closed:
            connection.close()
            raise StorageUnavailable(f"{self.name}: the client was closed")
        self._connection = connection
        connection.lost.add_done_callback(self._on_lost)

    async def load(self) -> None:
        """Load the code again: the server has lost it."""
        connection = self._connection
        if connection is not None and connection.is_open:
            await self._load(connection)

    def reset(self) -> None:
        """Give the connection up and make another: the name may mean another server by now."""
        if self._connection is not None:
            self._connection.close()

    async def close(self) -> None:
        """Close, and stop trying."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()

    async def _connected(self) -> Connection:
        if self._closed:
            raise StorageUnavailable(f"{self.name}: the client is closed")
        task = self._connecting
        if task is None or task.done():
            task = self._connecting = asyncio.create_task(self._reconnect())
        try:
            async with asyncio.timeout(self._settings.wait_s):
                await asyncio.shield(task)
        except TimeoutError:
            reason = self._last_error.message if self._last_error else "no connection"
            raise StorageUnavailable(reason) from None
        except asyncio.CancelledError:
            if self._closed:
                raise StorageUnavailable(f"{self.name}: the client was closed") from None
            raise
        connection = self._connection
        if connection is None:
            raise StorageUnavailable(f"{self.name}: no connection")
        return connection

    async def _reconnect(self) -> None:
        backoff_s = _BACKOFF_FIRST_S
        while not self._closed:
            try:
                await self.connect()
            except (StorageError, ConfigError) as error:
                if self._last_error is None:
                    # Once: the attempts after it say the same.
                    log.warning("redis.unreachable", server=self.name, reason=error.message)
                self._last_error = error
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)
            else:
                log.info("redis.connected", server=self.name)
                self._last_error = None
                return

    def _on_lost(self, _: object) -> None:
        if self._closed:
            return
        reason = self._connection.reason if self._connection is not None else ""
        log.warning("redis.lost", server=self.name, reason=reason)
        # At once, so that the next caller need not wait for it.
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._reconnect())

    async def _log_in(self, connection: Connection) -> None:
        address = self._address
        commands: list[tuple[Argument, ...]] = []
        if address.password:
            login = (address.username, address.password) if address.username else None
            commands.append(("AUTH", *(login or (address.password,))))
        if address.database:
            commands.append(("SELECT", address.database))
        commands.append(("CLIENT", "SETNAME", _CLIENT_NAME))
        commands.append(("PING",))
        replies = await _ask(connection, commands)
        for command, reply in zip(commands, replies, strict=True):
            kind = str(reply).partition(" ")[0] if is_error(reply) else ""
            if kind in ("NOAUTH", "WRONGPASS") or (kind and command[0] in ("AUTH", "SELECT")):
                raise ConfigError(
                    f"{self.name} refuses the login: {reply!s}",
                    hint="give user and password in the URL: redis://user:password@host:6379/0",
                )
        # A name is a courtesy; the answer to PING says whether it is loading its data.
        check(replies[-1])

    async def _load(self, connection: Connection) -> None:
        for script in self._code.scripts:
            check((await _ask(connection, [("SCRIPT", "LOAD", script.body)]))[0])
        for library in self._code.libraries:
            listing = ("FUNCTION", "LIST", "LIBRARYNAME", library.name)
            (found,) = await _ask(connection, [listing])
            if is_error(found) and "unknown command" in str(found).lower():
                raise ConfigError(
                    f"{self.name} has no functions", hint="Redis 7.0 or later is needed"
                )
            if check(found):
                continue
            (loaded,) = await _ask(connection, [("FUNCTION", "LOAD", library.code)])
            # Another client was faster.
            if not (is_error(loaded) and "already exists" in str(loaded)):
                check(loaded)


async def _ask(connection: Connection, commands: list[tuple[Argument, ...]]) -> list[Reply]:
    return await connection.send(b"".join(map(pack, commands)), len(commands))
