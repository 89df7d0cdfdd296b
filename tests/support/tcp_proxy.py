"""A way between two processes that can be slow, stand still, or break: TCP, on this machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final, final

from perdure.bench.ports import free_port

_CHUNK: Final = 65_536


@final
class TcpProxy:
    """Passes bytes on from its port to another one.

    Args:
        target: port of the loopback address, or what chooses one for each connection.
        on_data: is told what passes, before it does: number of the connection from 0 on, whether
            it comes from the target, and the bytes.

    Attributes:
        port: its own.
        delay_s: how long each chunk waits, in each direction.
    """

    def __init__(
        self,
        target: int | Callable[[], int],
        *,
        on_data: Callable[[int, bool, bytes], None] = lambda number, is_back, data: None,
    ) -> None:
        self.port = free_port()
        self.delay_s = 0.0
        self._target = target
        self._on_data = on_data
        self._count = 0
        self._flows = asyncio.Event()
        self._flows.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Take connections from now on."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    def cut(self) -> None:
        """Nothing passes any more, and nobody is told: a cable that was pulled out."""
        self._flows.clear()

    def mend(self, *, reset: bool = False) -> None:
        """All passes again, also what has waited, unless connections are to be reset."""
        if reset:
            self.reset()
        self._flows.set()

    def reset(self) -> None:
        """Break the connections that are there."""
        for writer in self._writers:
            writer.transport.abort()

    async def stop(self) -> None:
        """Take nothing more."""
        if self._server is not None:
            self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            await self._flows.wait()
            port = self._target if isinstance(self._target, int) else self._target()
            back, there = await asyncio.open_connection("127.0.0.1", port)
            self._writers.add(there)
            number, self._count = self._count, self._count + 1
            await asyncio.gather(
                self._pass_on(reader, there, partial(self._on_data, number, False)),
                self._pass_on(back, writer, partial(self._on_data, number, True)),
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for each in (writer, there):
                if each is not None:
                    each.transport.abort()
                    self._writers.discard(each)
            self._tasks.discard(task)

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_data: Callable[[bytes], None],
    ) -> None:
        while data := await reader.read(_CHUNK):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            await self._flows.wait()
            on_data(data)
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()
