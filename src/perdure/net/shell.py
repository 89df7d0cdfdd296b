"""What the transport shells share: the quiet handler, the gentle close, the owner's side.

Invariant: a shell tells its owner exactly once that it is gone, after its handler knows.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, final

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
