"""A process beside the broker: told, ended, and gone."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from perdure.server.child_process import ChildProcess
from tests.support.bounds import HANG_S

ECHO = (sys.executable, "-c", "import sys\nfor line in sys.stdin: print(line, end='', flush=True)")


async def test_it_is_told_and_says() -> None:
    child = await ChildProcess.begun(ECHO, b"first", limit=1_000)
    assert await child.stdout.readline() == b"first\n"
    await child.tell(b"second")
    assert await child.stdout.readline() == b"second\n"
    assert os.path.exists(f"/proc/{child.pid}")  # noqa: PTH110
    assert await child.close() == -9
    assert await child.close() == -9


async def test_one_that_is_gone_is_told_nothing() -> None:
    child = await ChildProcess.begun(ECHO, b"first", limit=1_000)
    child.kill()
    async with asyncio.timeout(HANG_S):
        assert await child.ended() == -9
        # What the loop knows of it comes turn by turn.
        for _ in range(50):
            await child.tell(b"x" * 100)
            await asyncio.sleep(0)
        while not child._stdin.is_closing():
            await asyncio.sleep(0.01)
    await child.tell(b"x")
    child.kill()
    assert await child.close() == -9


async def test_one_whose_beginning_is_given_up_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[ChildProcess] = []
    tells = asyncio.Event()
    tell = ChildProcess.tell

    async def told(child: ChildProcess, line: bytes) -> None:
        begun.append(child)
        tells.set()
        await tell(child, line)

    monkeypatch.setattr(ChildProcess, "tell", told)
    # It reads nothing, so that what it is told first does not fit into the pipe.
    sleeper = (sys.executable, "-c", "import time\ntime.sleep(600)")
    beginning = asyncio.create_task(ChildProcess.begun(sleeper, bytes(4_000_000), limit=1_000))
    async with asyncio.timeout(HANG_S):
        await tells.wait()
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
    assert begun[0]._process.returncode == -9
