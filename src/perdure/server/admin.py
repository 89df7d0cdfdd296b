"""The admin socket: ``<data>/admin.sock``, for the command line on the same machine.

A line of JSON asks, lines of JSON answer::

    > {"command": "sessions.list", "arguments": {"prefix": "pump-"}}
    < {"row": {...}}                      none or more
    < {"result": {...}}                   the last line, or
    < {"error": {"code": "not_found", "message": "..."}}

Whoever may open the socket may administer the broker: it has mode 0600. The broker owns the data
directory (its lock), so a socket file that is there at the start was left by a dead one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, final

import msgspec

from perdure.errors import ConfigError, PerdureError
from perdure.observe.admin_socket import SOCKET_NAME, socket_address
from perdure.observe.logs import get_logger
from perdure.server.explain import What
from perdure.topic.proposal import Structure, check_structure

log = get_logger("admin")

REQUEST_BYTES_MAX: Final = 256 * 1024
"""A client id and a topic have up to 65,535 bytes each, and JSON may double them."""

CLIENTS_MAX: Final = 16
"""Connections at once; an operator and some scripts."""

ROWS_PER_TURN: Final = 64
"""Rows after which the event loop may serve MQTT clients."""

Row: TypeAlias = dict[str, Any]


class AdminHandler(Protocol):
    """What a running broker can be asked. Methods raise ``PerdureError`` to refuse."""

    def sessions(self, *, prefix: str, state: str) -> AsyncIterator[Row]:
        """Rows of sessions (``inspect.session_rows``); empty strings = all."""
        ...

    async def session(self, client_id: str) -> Row | None:
        """Details of a session (``inspect.session_details``), or None."""
        ...

    async def explain(self, client_id: str, topic: str, what: What) -> Row | None:
        """``explain.explain`` as a row, or None if there is no such session."""
        ...

    async def discard(self, client_id: str) -> bool:
        """Close the connection, delete the session; False if there is none."""
        ...

    async def kick(self, client_id: str) -> bool:
        """Close the connection, keep the session; False if not connected."""
        ...

    async def set_owner(self, client_id: str, username: str) -> bool:
        """Give a session to a user, empty = to anonymous clients; False if there is none."""
        ...

    async def rotate(self, structure: Structure | None) -> Row:
        """Begin a new generation of the log, with a structure if one is given; what it is."""
        ...

    def bans(self) -> list[Row]:
        """All bans (``bans.ban_row``)."""
        ...

    async def ban(self, kind: str, value: str, *, reason: str, until_us: int) -> Row:
        """Ban durably and disconnect whom it means; what it is, and how many it closed."""
        ...

    async def unban(self, kind: str, value: str) -> Row | None:
        """Take a ban back; None if there is none."""
        ...

    def stats(self) -> Row:
        """A few numbers on the broker."""
        ...


@final
class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line from the client."""

    command: str
    arguments: dict[str, str] = {}


@final
class _Refused(Exception):
    """A request that cannot be answered: code and sentence for the client."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@final
class AdminServer:
    """Serves the socket.

    Args:
        handler: the broker.
        directory: the data directory.
    """

    name = "admin"

    def __init__(self, handler: AdminHandler, directory: Path) -> None:
        self._handler = handler
        self._directory = directory
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._commands: dict[str, Callable[[Row], Awaitable[Row]]] = {
            "sessions.show": self._show,
            "sessions.explain": self._explain,
            "sessions.discard": self._discard,
            "sessions.kick": self._kick,
            "sessions.set_owner": self._set_owner,
            "storage.rotate": self._rotate,
            "bans.add": self._ban,
            "bans.remove": self._unban,
            "stats": self._stats,
        }

    async def start(self) -> None:
        """Bind and listen.

        Raises:
            ConfigError: the socket cannot be made.
        """
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with socket_address(self._directory) as address:
                (self._directory / SOCKET_NAME).unlink(missing_ok=True)
                # Nobody can connect before listen(), so the mode is right in time.
                listening.bind(address)
                (self._directory / SOCKET_NAME).chmod(0o600)
            self._server = await asyncio.start_unix_server(
                self._connected, sock=listening, limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            listening.close()
            raise ConfigError(
                f"cannot make {self._directory / SOCKET_NAME}: {error.strerror or error}",
                path="storage.path",
            ) from error

    async def stop(self) -> None:
        """Close, and cut the clients off."""
        if self._server is None:
            return
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None
        (self._directory / SOCKET_NAME).unlink(missing_ok=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) > CLIENTS_MAX:
                _send(writer, _error("busy", "too many administrators at once"))
                return
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            # The client has gone, or the broker stops: either way the connection ends here.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                line = await reader.readline()
            except ValueError:  # longer than the limit
                _send(writer, _error("bad_request", "the request is too long"))
                return
            if not line:
                return
            await self._answer(line, writer)
            await writer.drain()

    async def _answer(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        try:
            request = msgspec.json.decode(line, type=Request)
        except msgspec.DecodeError as error:
            _send(writer, _error("bad_request", str(error)))
            return
        log.debug("admin.asked", command=request.command)
        try:
            if request.command == "sessions.list":
                await self._list(request.arguments, writer)
                return
            if request.command == "bans.list":
                await _send_rows(_each(self._handler.bans()), writer)
                return
            command = self._commands.get(request.command)
            if command is None:
                raise _Refused("unknown_command", f"there is no command {request.command}")
            _send(writer, {"result": await command(request.arguments)})
        except (_Refused, PerdureError) as error:
            _send(writer, _error(error.code, error.message))

    async def _list(self, arguments: Row, writer: asyncio.StreamWriter) -> None:
        rows = self._handler.sessions(
            prefix=arguments.get("prefix", ""), state=arguments.get("state", "")
        )
        await _send_rows(rows, writer)

    async def _show(self, arguments: Row) -> Row:
        client_id = _argument(arguments, "client_id")
        return _found(await self._handler.session(client_id), client_id)

    async def _explain(self, arguments: Row) -> Row:
        client_id = _argument(arguments, "client_id")
        asked: Row = {
            name: int(value) if value.isascii() and value.isdigit() and len(value) < 16 else value
            for name in ("qos", "size")
            if (value := arguments.get(name)) is not None
        }
        try:
            what = msgspec.convert({"publisher": arguments.get("publisher"), **asked}, What)
        except msgspec.ValidationError as error:
            raise _Refused("bad_request", str(error)) from error
        found = await self._handler.explain(client_id, _argument(arguments, "topic"), what)
        return _found(found, client_id)

    async def _discard(self, arguments: Row) -> Row:
        client_id = _argument(arguments, "client_id")
        log.info("admin.discard", client_id=client_id)
        if not await self._handler.discard(client_id):
            raise _Refused("not_found", f"there is no session {client_id!r}")
        return {"client_id": client_id, "action": "discarded"}

    async def _kick(self, arguments: Row) -> Row:
        client_id = _argument(arguments, "client_id")
        log.info("admin.kick", client_id=client_id)
        if not await self._handler.kick(client_id):
            raise _Refused("not_found", f"{client_id!r} is not connected")
        return {"client_id": client_id, "action": "kicked"}

    async def _set_owner(self, arguments: Row) -> Row:
        client_id, username = _argument(arguments, "client_id"), _argument(arguments, "username")
        log.info("admin.set_owner", client_id=client_id, username=username)
        if not await self._handler.set_owner(client_id, username):
            raise _Refused("not_found", f"there is no session {client_id!r}")
        return {"client_id": client_id, "action": "given"}

    async def _rotate(self, arguments: Row) -> Row:
        structure = None
        if "structure" in arguments:
            try:
                structure = msgspec.json.decode(_argument(arguments, "structure"), type=Structure)
                check_structure(structure)
            except (msgspec.DecodeError, ConfigError) as error:
                raise _Refused("bad_request", f"structure: {error}") from error
        log.info("admin.rotate", seeded=structure is not None)
        return await self._handler.rotate(structure)

    async def _ban(self, arguments: Row) -> Row:
        until = arguments.get("until_us", "0")
        if not isinstance(until, str) or not until.isdecimal():
            raise _Refused("bad_request", "the argument until_us is no moment")
        return await self._handler.ban(
            _argument(arguments, "kind"),
            _argument(arguments, "value"),
            reason=_argument(arguments, "reason"),
            until_us=int(until),
        )

    async def _unban(self, arguments: Row) -> Row:
        kind, value = _argument(arguments, "kind"), _argument(arguments, "value")
        found = await self._handler.unban(kind, value)
        if found is None:
            raise _Refused("not_found", f"there is no ban of {kind} {value!r}")
        return found

    async def _stats(self, arguments: Row) -> Row:
        return self._handler.stats()


def _argument(arguments: Row, name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise _Refused("bad_request", f"the argument {name} is missing")
    return value


def _found(row: Row | None, client_id: str) -> Row:
    if row is None:
        raise _Refused("not_found", f"there is no session {client_id!r}")
    return row


def _error(code: str, message: str) -> Row:
    return {"error": {"code": code, "message": message}}


def _send(writer: asyncio.StreamWriter, answer: Row) -> None:
    writer.write(msgspec.json.encode(answer) + b"\n")


async def _send_rows(rows: AsyncIterator[Row], writer: asyncio.StreamWriter) -> None:
    """Send rows as they come, then their number."""
    count = 0
    async for row in rows:
        _send(writer, {"row": row})
        count += 1
        if count % ROWS_PER_TURN == 0:
            await writer.drain()
            # drain() returns at once while the buffer is short: let others run all the same.
            await asyncio.sleep(0)
    _send(writer, {"result": {"count": count}})


async def _each(rows: list[Row]) -> AsyncIterator[Row]:
    for row in rows:
        yield row
