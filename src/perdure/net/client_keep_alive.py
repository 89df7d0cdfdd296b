"""A client's keep alive: PINGREQ before the server loses patience, and an end to our own.

It knows the times at which something was sent and answered, and neither packets nor links.

Invariant: between ``start`` and ``stop`` nothing is silent for longer than a part of the keep
alive [MQTT-3.1.2-20], and a server that leaves a PINGREQ unanswered for as long is given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

PING_AFTER: Final = 0.75
"""Part of the keep alive after which an idle client sends PINGREQ [MQTT-3.1.2-20]."""


@final
class KeepAlive:
    """The keep alive of one client, over as many connections as it makes.

    Args:
        ping: sends PINGREQ.
        give_up: the server has not answered the last one.
    """

    __slots__ = ("_give_up", "_pause_s", "_ping", "_sent_at_s", "_timer", "_unanswered")

    def __init__(self, ping: Callable[[], None], give_up: Callable[[], None]) -> None:
        self._ping = ping
        self._give_up = give_up
        self._pause_s = 0.0
        self._sent_at_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unanswered = False

    @property
    def is_running(self) -> bool:
        """Whether a connection is watched."""
        return self._timer is not None

    def start(self, keep_alive_s: int) -> None:
        """Watch a connection; 0 = there is nothing to keep alive."""
        self.stop()
        if keep_alive_s:
            self._unanswered = False
            self._pause_s = keep_alive_s * PING_AFTER
            self._schedule()

    def stop(self) -> None:
        """The connection has no future."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def sent(self) -> None:
        """Something was sent: the server has seen that we live."""
        self._sent_at_s = asyncio.get_running_loop().time()

    def answered(self) -> None:
        """PINGRESP came."""
        self._unanswered = False

    def check(self) -> None:
        """Send PINGREQ if it is time, or give up; called by the timer."""
        if asyncio.get_running_loop().time() - self._sent_at_s >= self._pause_s:
            if self._unanswered:
                self.stop()
                self._give_up()
                return
            self._unanswered = True
            self._ping()
        if self.is_running:
            self._schedule()

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_at(
            self._sent_at_s + self._pause_s, self.check
        )
