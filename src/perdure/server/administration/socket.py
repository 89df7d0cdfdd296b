"""The admin socket: ``<data>/admin.sock``, for the command line and the HTTP process.

What is said on it is in ``admin.wire``. Whoever may open the socket may administer the broker: it
has mode 0600. The broker owns the data directory (its lock), so a socket file that is there at the
start was left by a dead one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any, Final, final

import msgspec

from perdure.admin.operation import Page
from perdure.admin.problems import Problem, Refused, problem_of
from perdure.admin.rights import Principal
from perdure.admin.wire import REQUEST_BYTES_MAX, Ask, decode_given, encode_line
from perdure.errors import ConfigError, PerdureError
from perdure.observe.admin_socket import SOCKET_NAME, socket_address
from perdure.observe.logs import get_logger
from perdure.server.administration.service import AdminService, Call
from perdure.server.turns import Turns

log = get_logger("admin")

CLIENTS_MAX: Final = 128
"""Connections at once: those of the HTTP processes, an operator's and some scripts'."""

ROWS_AT_ONCE_MAX: Final = 100
"""Rows of a page that are written in one step, some 0.2 ms."""

LOCAL: Final = Principal("local", "admin", source="socket")
"""Whoever may open the socket."""


@final
class AdminServer:
    """Serves the socket.

    Args:
        service: answers.
        directory: the data directory.
    """

    name = "admin"

    def __init__(self, service: AdminService, directory: Path) -> None:
        self._service = service
        self._directory = directory
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

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
                writer.write(_refusal(Refused("busy", "too many administrators at once")))
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
                writer.write(_refusal(Refused("too_large", "the request is too long")))
                return
            if not line:
                return
            writer.write(await self._answer(line))
            await writer.drain()

    async def _answer(self, line: bytes) -> bytes:
        try:
            ask = decode_given(line, Ask)
        except ValueError as error:
            return _refusal(Refused("bad_request", str(error)))
        call = Call(ask.principal or LOCAL, ask.request_id)
        try:
            result = await self._service.answer(ask.operation, bytes(ask.request), call)
        except PerdureError as error:
            return _refusal(error)
        except Exception as error:  # noqa: BLE001 - it costs one administrator an answer
            log.error("admin.failed", operation=ask.operation, error=repr(error))
            return encode_line({"error": Problem("internal", "a defect of the broker")})
        return await _result(result)


async def _result(result: Any) -> bytes:
    """The line of a result. A page of a thousand rows takes two milliseconds to write, so it is
    written row by row, with the steps of a look."""
    if isinstance(result, Page) and len(result.items) > ROWS_AT_ONCE_MAX:
        written: list[msgspec.Raw] = []
        turns = Turns()
        for item in result.items:
            written.append(msgspec.Raw(msgspec.json.encode(item)))
            await turns.step()
        result = msgspec.structs.replace(result, items=written)
    return encode_line({"result": result})


def _refusal(error: PerdureError) -> bytes:
    return encode_line({"error": problem_of(error)})
