"""Whether the broker beside us lives and takes messages: asked through its admin socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, final

import msgspec

SOCKET_NAME: Final = "admin.sock"
TIMEOUT_S: Final = 5.0
KEEP_S: Final = 1.0
"""An answer holds for so long: nobody who may ask for health without a token can keep the broker
busy with it."""

_PATH_BYTES_MAX: Final = 100


@final
class Health:
    """The broker's state, as of a moment ago.

    Args:
        data: its data directory.
        clock: monotonic, seconds.
    """

    def __init__(self, data: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._data = data
        self._clock = clock
        self._asking = asyncio.Lock()
        self._asked_s = float("-inf")
        self._stats: dict[str, Any] | None = None

    async def stats(self) -> dict[str, Any] | None:
        """What ``perdure status`` shows; None = the broker does not answer."""
        async with self._asking:
            if self._clock() - self._asked_s > KEEP_S:
                try:
                    async with asyncio.timeout(TIMEOUT_S):
                        self._stats = await self._ask()
                except (OSError, TimeoutError, ValueError):
                    self._stats = None
                self._asked_s = self._clock()
            return self._stats

    async def _ask(self) -> dict[str, Any] | None:
        with _address(self._data) as address:
            reader, writer = await asyncio.open_unix_connection(address)
        try:
            writer.write(b'{"command":"stats"}\n')
            line = await reader.readline()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        try:
            answer = msgspec.json.decode(line, type=dict[str, dict[str, Any]])
        except msgspec.DecodeError:
            return None
        return answer.get("result")


@contextlib.contextmanager
def _address(data: Path) -> Iterator[str]:
    """The socket's address, through a descriptor of the directory where its path is too long."""
    path = data / SOCKET_NAME
    if len(os.fsencode(path)) <= _PATH_BYTES_MAX:
        yield str(path)
        return
    descriptor = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)
