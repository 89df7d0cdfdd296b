"""What a peer's bytes travel on, and the time that passes meanwhile.

There are two: sockets of this machine (``sockets``) and the virtual network (``virtual_broker``).
Nothing here may import ``perdure``.
"""

from __future__ import annotations

from typing import ClassVar, Protocol


class Transport(Protocol):
    """One connection to a broker, seen from the client.

    Attributes:
        patience_s: what comes is waited for so long at least; 0 where time is virtual.
    """

    patience_s: ClassVar[float]

    def now_s(self) -> float:
        """Monotonic time, seconds, of the world in which the broker lives."""
        ...

    def send(self, data: bytes) -> None:
        """Sends bytes; does nothing if the broker has closed already."""
        ...

    def receive(self, timeout_s: float) -> bytes:
        """Waits for bytes; empty at the end of the stream, however it ended.

        Raises:
            TimeoutError: nothing came in that time.
        """
        ...

    def close(self) -> None:
        """Closes in order; closing twice is harmless."""
        ...

    def abort(self) -> None:
        """Closes as a reset connection does."""
        ...

    def half_close(self) -> None:
        """Ends our direction only; the broker's can still be read.

        Raises:
            OSError: the connection is gone.
        """
        ...
