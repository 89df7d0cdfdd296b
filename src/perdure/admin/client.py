"""Asks a running broker over its admin socket, from an event loop.

A few connections are kept; each carries one request at a time. Invariant: a connection whose
answer was not read whole is closed, never used again.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final, TypeVar, final

import msgspec

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.rights import Principal
from perdure.admin.table import operation_of
from perdure.admin.wire import ANSWER_BYTES_MAX, Answer, Ask, encode_line
from perdure.observe.admin_socket import socket_address

CONNECTIONS_MAX: Final = 16
"""Connections of one process at once; more requests wait for one."""

TIMEOUT_S: Final = 30.0

R = TypeVar("R")

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@final
class AsyncAdmin:
    """The broker of a data directory.

    Args:
        data: the directory.
        timeout_s: for an answer.
    """

    def __init__(self, data: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._data = data
        self._timeout_s = timeout_s
        self._idle: list[_Connection] = []
        self._turns = asyncio.Semaphore(CONNECTIONS_MAX)

    async def call(self, request: Request[R], principal: Principal | None = None) -> R:
        """The result of an operation.

        Args:
            request: says which one.
            principal: on whose behalf; None = this process itself, as an admin.

        Raises:
            Refused: the broker refused, or does not answer (``broker_unavailable``).
        """
        operation = operation_of(type(request))
        raw = await self.ask(operation.name, msgspec.json.encode(request), principal)
        result: R = msgspec.json.decode(raw, type=operation.result)
        return result

    async def ask(
        self, operation: str, request: bytes, principal: Principal | None, request_id: str = ""
    ) -> bytes:
        """Ask with JSON, for JSON: what only passes through needs no decoding."""
        line = encode_line(Ask(operation, msgspec.Raw(request), principal, request_id))
        try:
            async with asyncio.timeout(self._timeout_s), self._turns:
                text = await self._exchange(line)
            answer = msgspec.json.decode(text, type=Answer)
        except (OSError, TimeoutError, ValueError) as error:
            raise Refused(
                "broker_unavailable", "the broker does not answer", hint=str(error)
            ) from error
        if answer.error is not None:
            found = answer.error
            raise Refused(found.code, found.message, hint=found.hint, details=found.details)
        return bytes(answer.result)

    async def close(self) -> None:
        """Hang up."""
        for _, writer in self._idle:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        self._idle.clear()

    async def _exchange(self, line: bytes) -> bytes:
        while self._idle:
            connection = self._idle.pop()
            if connection[0].at_eof():
                connection[1].close()
                continue
            break
        else:
            connection = await self._connect()
        reader, writer = connection
        kept = False
        try:
            writer.write(line)
            await writer.drain()
            answer = await reader.readline()
            if not answer.endswith(b"\n"):
                raise ConnectionResetError("the broker closed the connection")
            kept = True
        finally:
            if kept:
                self._idle.append(connection)
            else:
                writer.close()
        return answer

    async def _connect(self) -> _Connection:
        with socket_address(self._data) as address:
            return await asyncio.open_unix_connection(address, limit=ANSWER_BYTES_MAX)
