"""A server that speaks Redis' protocol and answers as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from hiredis import ProtocolError, Reader

Handler = Callable[[list[bytes]], "bytes | Awaitable[bytes] | None"]
"""A command to the bytes of its reply; None = no reply."""

OK = b"+OK\r\n"


def bulk(value: bytes) -> bytes:
    """A bulk string."""
    return b"$%d\r\n%b\r\n" % (len(value), value)


def array(*replies: bytes) -> bytes:
    """An array of replies."""
    return b"*%d\r\n%b" % (len(replies), b"".join(replies))


class FakeRedis:
    """Every command that comes is remembered and answered by the handler.

    Logging in and loading code are answered with OK unless ``raw``.
    """

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.commands: list[list[bytes]] = []
        self.connections = 0
        self.raw = False
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Cut all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    @property
    def names(self) -> list[str]:
        """The first words of the commands after the login."""
        quiet = {b"AUTH", b"SELECT", b"CLIENT", b"PING", b"SCRIPT", b"FUNCTION"}
        return [command[0].decode() for command in self.commands if command[0] not in quiet]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        parser = Reader(notEnoughData=None)
        try:
            while data := await reader.read(65_536):
                parser.feed(data)
                while (command := parser.gets()) is not None:
                    self.commands.append(command)
                    reply = self._answer(command)
                    if isinstance(reply, Awaitable):
                        reply = await reply
                    if reply is not None:
                        writer.write(reply)
        except (ConnectionError, ProtocolError):
            pass
        finally:
            writer.close()

    def _answer(self, command: list[bytes]) -> bytes | Awaitable[bytes] | None:
        if not self.raw:
            if command[0] in (b"AUTH", b"SELECT", b"CLIENT", b"PING", b"SCRIPT"):
                return OK
            if command[0] == b"FUNCTION":
                return array(bulk(b"there")) if command[1] == b"LIST" else OK
        return self.handler(command)


@asynccontextmanager
async def fake_redis(handler: Handler) -> AsyncIterator[FakeRedis]:
    """A fake server on a free port."""
    server = FakeRedis(handler)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
