"""A peer's connection over TCP of this machine. Nothing here may import ``perdure``."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from typing import ClassVar, final

from tests.support.bounds import HANG_S
from tests.wire.peer import SUBJECT


@final
class SocketTransport:
    """One TCP connection to a port of 127.0.0.1."""

    patience_s: ClassVar[float] = HANG_S if SUBJECT == "perdure" else 0.0

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), HANG_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def now_s(self) -> float:
        """Monotonic time of this machine."""
        return time.monotonic()

    def send(self, data: bytes) -> None:
        """Sends bytes; a broker that has closed already is found out by the next read."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def receive(self, timeout_s: float) -> bytes:
        """Waits for bytes; empty at the end of the stream and for a reset.

        Raises:
            TimeoutError: nothing came in that time.
        """
        self._socket.settimeout(max(timeout_s, 0.001))
        try:
            return self._socket.recv(65536)
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        """Closes: FIN, or RST if unread bytes are left."""
        self._socket.close()

    def abort(self) -> None:
        """Closes with RST."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def half_close(self) -> None:
        """Ends our direction only (FIN).

        Raises:
            OSError: the connection is gone.
        """
        self._socket.shutdown(socket.SHUT_WR)
