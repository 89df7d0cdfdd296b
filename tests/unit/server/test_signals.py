"""Real signals to this process, on both loops."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from perdure.server.signals import Signals
from tests.support.bounds import HANG_S


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_first_signal_stops_and_second_leaves(number: signal.Signals) -> None:
    left: list[int] = []
    gone = asyncio.Event()

    def leave(code: int) -> None:
        left.append(code)
        gone.set()

    with Signals(reload=lambda: None, leave=leave) as signals:
        assert not signals.stopping.is_set()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(signals.stopping.wait(), HANG_S)
        assert left == []
        os.kill(os.getpid(), number)
        await asyncio.wait_for(gone.wait(), HANG_S)
        assert left == [128 + number]


async def test_hangup_reloads_each_time() -> None:
    reloads: list[int] = []
    reloaded = asyncio.Event()

    def reload() -> None:
        reloads.append(1)
        reloaded.set()

    with Signals(reload=reload) as signals:
        for _ in range(2):
            reloaded.clear()
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.wait_for(reloaded.wait(), HANG_S)
        assert not signals.stopping.is_set()
    assert len(reloads) == 2


async def test_handlers_are_given_back() -> None:
    with Signals(reload=lambda: None):
        pass
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
