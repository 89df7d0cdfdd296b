"""Signals as events of the loop.

========== ==============================================
SIGTERM    first: drain and stop; second: leave at once
SIGINT     likewise
SIGHUP     reload certificates and live settings
========== ==============================================

Leaving at once is safe: what was acknowledged is on disk already.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from types import TracebackType
from typing import Final, final

from perdure.observe.log_writer import flush_all
from perdure.observe.logs import get_logger

log = get_logger("server")

_STOP: Final = (signal.SIGTERM, signal.SIGINT)


@final
class Signals:
    """Catches the process's signals while it is entered as a context.

    Args:
        reload: called for each SIGHUP.
        leave: ends the process at once with an exit code.
    """

    def __init__(
        self, *, reload: Callable[[], object], leave: Callable[[int], object] = os._exit
    ) -> None:
        self._reload = reload
        self._leave = leave
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stopping = asyncio.Event()
        """Set by the first signal to stop."""

    def __enter__(self) -> Signals:
        self._loop = loop = asyncio.get_running_loop()
        for number in _STOP:
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._loop is not None
        for number in (*_STOP, signal.SIGHUP):
            self._loop.remove_signal_handler(number)

    def _stop(self, number: signal.Signals) -> None:
        if self.stopping.is_set():
            log.warning("server.left_at_once", signal=number.name)
            flush_all()  # what leaves at once runs nothing else any more
            self._leave(128 + number)
            return
        log.info("server.stop_requested", signal=number.name)
        self.stopping.set()
