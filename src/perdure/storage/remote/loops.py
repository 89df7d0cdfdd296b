"""The event loop on which a driver runs: the broker's own, or one in a thread.

A broker awaits its store on its own loop: a thread between them would cost two hand-overs for
each commit. Whoever has no loop, or blocks it (tools, tests), gives the driver a loop of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, final

from perdure.errors import UsageError

T = TypeVar("T")


@final
class DriverLoop:
    """Where coroutines of a driver run.

    Args:
        loop: the running loop; None = a new one in a thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._thread: threading.Thread | None = None
        if loop is not None:
            self._loop = loop
            self._thread_id = threading.get_ident()
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="store", daemon=True)
        self._thread.start()
        assert self._thread.ident is not None
        self._thread_id = self._thread.ident

    @property
    def is_here(self) -> bool:
        """Whether the caller runs on it."""
        return threading.get_ident() == self._thread_id

    def soon(self, callback: Callable[[], object]) -> None:
        """Run something on it, from any thread."""
        if self.is_here:
            self._loop.call_soon(callback)
        else:
            self._loop.call_soon_threadsafe(callback)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that must run on it."""
        if self.is_here:
            # The broker begins coroutines without a task, and clients need one for timeouts.
            return await self._loop.create_task(work)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of such a coroutine, for a caller that blocks."""
        if self.is_here:
            work.close()
            raise UsageError("the event loop of the store cannot wait for itself")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End its thread, if it has one."""
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
