"""Messages to the service manager (``sd_notify``), without a library.

The protocol is one datagram of ``KEY=VALUE`` lines to the Unix socket that ``NOTIFY_SOCKET``
names. Without that variable every call does nothing, so the broker need not know who started it.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from typing import final


@final
class Notifier:
    """Tells the service manager how the broker is doing.

    Args:
        address: of the Unix socket, ``@`` first for an abstract one; empty = nobody to tell.
        watchdog_interval_s: how often to call ``alive``; 0 = not at all.
    """

    def __init__(self, address: str = "", *, watchdog_interval_s: float = 0.0) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_interval_s = watchdog_interval_s

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], *, pid: int) -> Notifier:
        """The notifier that the service manager's variables ask for.

        Args:
            environ: the environment of the process.
            pid: of this process; the watchdog may be meant for another one.
        """
        address = environ.get("NOTIFY_SOCKET", "")
        interval_us = environ.get("WATCHDOG_USEC", "")
        for_us = environ.get("WATCHDOG_PID", str(pid)) == str(pid)
        interval_s = 0.0
        if address and for_us and interval_us.isascii() and interval_us.isdigit():
            # Twice in each interval, as sd_watchdog_enabled(3) recommends.
            interval_s = int(interval_us) / 2_000_000
        return cls(address, watchdog_interval_s=interval_s)

    def ready(self, status: str) -> None:
        """Started, or reloaded."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self, *, monotonic_us: int) -> None:
        """A reload has begun; ``ready`` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={monotonic_us}\nSTATUS=Reloading")

    def stopping(self, status: str) -> None:
        """The broker is going down."""
        self._send(f"STOPPING=1\nSTATUS={status}")

    def waiting(self, status: str, *, longer_s: float) -> None:
        """The start takes longer, and may not be ended for it."""
        self._send(f"STATUS={status}\nEXTEND_TIMEOUT_USEC={int(longer_s * 1_000_000)}")

    def alive(self) -> None:
        """The event loop turns."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        # A service manager that cannot be reached must not stop a broker that can run.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(message.encode(), self._address)
