"""The TCP and TLS shell: carries bytes from a transport to a connection and back.

TLS is the same shell: the event loop puts the encryption below. The shell knows nothing of MQTT.

Invariant: nothing is written after ``close`` and nothing is received after it.
"""

from __future__ import annotations

from typing import final

from perdure.net.shell import close_gently
from perdure.net.transport_shell import TransportShell


@final
class TcpShell(TransportShell):
    """One TCP or TLS connection: the ``ByteStream`` of its handler."""

    __slots__ = ()

    # The base calls this.

    def _take(self, data: bytes) -> None:
        """Hand bytes to the connection, or drop them when it has closed."""
        if self._closing:
            self._drop(len(data))
            return
        try:
            self.handler.receive(data)
        except Exception as error:  # noqa: BLE001 - it costs this connection alone
            self._broke(error)

    # The connection calls these.

    def write(self, data: bytes) -> None:
        """Queue ``data``."""
        if not self._closing:
            self._transport.write(data)

    def close(self) -> None:
        """Close after what was written has been flushed."""
        if self._closing:
            return
        if self._stop():
            self._timer = close_gently(self._transport, self._loop, self._settings.close_timeout_s)

    # Inside.

    def _begin(self) -> None:
        """Make the connection."""
        self._identify()
        self.handler = self._factory(self, self.peer)
