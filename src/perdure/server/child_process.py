"""A process of ours beside the broker, in Python: how it is begun, told to end, and seen to end.

What it is told are lines on its standard input. The end of that means that the broker is gone, and
``stop`` that it shall go, too. Signals are the broker's matter.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, final

RESTART_PAUSES_S: Final = (0.2, 1.0, 5.0, 15.0)
"""Before a process that died is replaced; the last one again and again."""

REAP_S: Final = 5.0
"""Time for the system to end a process that was killed; one that hangs in a file system may take
longer, and is left to it."""


@final
class ChildProcess:
    """One process. Make it with ``begun``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self.stdout = process.stdout
        """What it says."""

    @classmethod
    async def begun(
        cls,
        command: Sequence[str],
        settings: bytes,
        *,
        limit: int,
        descriptors: Sequence[int] = (),
    ) -> ChildProcess:
        """Begin a process.

        Args:
            command: what to run.
            settings: its first line.
            limit: of a line that it says, bytes.
            descriptors: that it inherits.
        """
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=limit,
            pass_fds=tuple(descriptors),
        )
        child = cls(process)
        try:
            await child.tell(settings)
        except BaseException:
            # Nobody else knows of it yet.
            await child.close()
            raise
        return child

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    async def tell(self, line: bytes) -> None:
        """Write a line; one that is gone is told nothing."""
        if self._stdin.is_closing():
            return  # uvloop takes nothing for it, and raises no ConnectionError
        with contextlib.suppress(ConnectionError):
            self._stdin.write(line + b"\n")
            await self._stdin.drain()

    async def ended(self) -> int:
        """Wait for its end; its exit code."""
        return await self._process.wait()

    def kill(self) -> None:
        """End it, whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> int | None:
        """See to it that it ends; its exit code, None = the system has not ended it yet."""
        if self._process.returncode is None:
            self.kill()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REAP_S):
                    await self._process.wait()
        return self._process.returncode
