"""The loop on which a driver is called, for callers elsewhere."""

from __future__ import annotations

import threading

from perdure.storage.remote.loops import DriverLoop


def test_a_driver_loop_runs_coroutines_for_others() -> None:
    loop = DriverLoop()

    async def name() -> str:
        return threading.current_thread().name

    assert not loop.is_here
    assert loop.wait(name()) == "store"
    loop.close()
