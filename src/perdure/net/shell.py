"""What the transport shells share: what stands where a handler or a transport was, the gentle
close, the owner's side.

Invariant: a shell tells its owner exactly once that it is gone, after its handler knows.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast, final

from perdure.broker.runtime.stream import StreamHandler
from perdure.broker.runtime.turn_budget import TurnBudget


@final
class NoHandler:
    """Stands where no connection is: before the handshake, and after the end.

    A shell that let go of its connection leaves no reference cycle behind.
    """

    __slots__ = ()

    def receive(self, data: bytes) -> None:
        """Drop ``data``."""

    def connection_lost(self, exc: BaseException | None) -> None:
        """Nobody to tell."""

    def pause_writing(self) -> None:
        """Nobody to tell."""

    def resume_writing(self) -> None:
        """Nobody to tell."""

    def close(self, reason_code: int) -> None:
        """Nobody to tell."""


NO_HANDLER: Final = NoHandler()


@final
class NoTransport:
    """Stands where the transport was, after its loss.

    What still knows the shell (its connection, until the collector comes) then keeps no TLS state
    alive: uvloop's buffer and OpenSSL's are some 300 KiB for each connection.
    """

    __slots__ = ()

    def is_closing(self) -> bool:
        """It is closed."""
        return True

    def abort(self) -> None:
        """It is closed."""

    def close(self) -> None:
        """It is closed."""

    def write(self, data: bytes) -> None:
        """Drop ``data``."""

    def pause_reading(self) -> None:
        """Nothing comes."""

    def resume_reading(self) -> None:
        """Nothing comes."""

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Nothing is known any more."""
        return default


NO_TRANSPORT: Final = cast("asyncio.Transport", NoTransport())


class Shell(Protocol):
    """A transport shell as its listener sees it."""

    @property
    def handler(self) -> StreamHandler:
        """The connection that the shell drives."""
        ...

    @property
    def connected(self) -> bool:
        """Whether it has had a transport: then it reports its loss, once its opening is over."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let go of both ends; a second call does nothing."""
        ...


class ShellOwner(Protocol):
    """The listener as its shells see it."""

    @property
    def turn_budget(self) -> TurnBudget:
        """Who has work left for the next turn."""
        ...

    def shell_lost(self, shell: Shell) -> None:
        """The shell's transport is gone."""
        ...

    def handshake_failed(self, shell: Shell, reason: str) -> None:
        """The peer never came as far as MQTT."""
        ...

    def shell_failed(self, shell: Shell, error: Exception) -> None:
        """Something of this connection failed as nobody expected; it is cut."""
        ...


def close_gently(
    transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, timeout_s: float
) -> asyncio.TimerHandle:
    """Flush, close our side, and read what the peer still sends until it closes too.

    A plain ``close`` with unread bytes in the kernel makes it answer with RST, which may destroy
    the last packet (DISCONNECT with its reason code) before the peer has read it. TLS has its own
    closing exchange. Who does not close within ``timeout_s`` is aborted.

    Returns:
        The timer, to be cancelled when the transport is lost.
    """
    timer = loop.call_later(timeout_s, transport.abort)
    if transport.can_write_eof():
        transport.write_eof()
        transport.resume_reading()
    else:
        transport.close()
    return timer
