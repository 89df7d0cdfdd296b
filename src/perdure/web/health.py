"""Whether the broker beside us lives and takes messages: asked through its admin socket."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, final

import msgspec

from perdure.observe.admin_socket import socket_address

TIMEOUT_S: Final = 5.0
KEEP_S: Final = 1.0
"""An answer holds for so long: nobody who may ask for health without a token can keep the broker
busy with it."""


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
        with socket_address(self._data) as address:
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
