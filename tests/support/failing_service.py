"""An HTTP service that takes batches, and fails in every way when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import final

FAILURES = ("close", "half", "slow", "500", "503", "429", "408", "404", "302", "garbage")
"""Closes without an answer, breaks off an answer, never ends one, answers so, speaks no HTTP."""
LONG_BYTES = 1_000_000


@final
class FailingService:
    """Listens on a free port.

    Args:
        refused: a payload for which a batch is answered with 400.

    Attributes:
        plan: what becomes of the next requests; empty = they are taken, ``long`` = with much text.
        taken: bodies that were answered with 200.
        headers: of the last request, names in small letters.
    """

    def __init__(self, *, refused: str = "") -> None:
        self._refused = refused
        self.plan: list[str] = []
        self.taken: list[bytes] = []
        self.headers: dict[str, str] = {}
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/hook"

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        """Close."""
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._answer(reader, writer):
                await writer.drain()
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = [line.partition(":") for line in head.split("\r\n")[1:] if line]
        self.headers = {name.lower(): value.strip() for name, _, value in lines}
        body = await reader.readexactly(int(self.headers["content-length"]))
        failure = self.plan.pop(0) if self.plan else ""
        if failure == "close":
            return False
        if failure == "half":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            return False
        if failure == "slow":
            writer.write(b"HTTP/1.1 200 OK\r\n")
            await reader.read()  # until the client has had enough
            return False
        if failure == "garbage":
            writer.write(b"SSH-2.0-no-such-thing\r\n\r\n")
            return False
        told = bytes(LONG_BYTES if failure == "long" else 0)
        status = failure.replace("long", "") or self._verdict(body)
        if status == "200":
            self.taken.append(body)
        writer.write(f"HTTP/1.1 {status} .\r\nContent-Length: {len(told)}\r\n\r\n".encode() + told)
        return True

    def _verdict(self, body: bytes) -> str:
        payloads = [each.get("payload") for each in json.loads(body)["messages"]]
        return "400" if self._refused and self._refused in payloads else "200"
