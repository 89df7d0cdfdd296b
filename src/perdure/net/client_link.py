"""How a client's bytes travel: one link over TCP or TLS, and the choice of a link.

The client above sees bytes only. Invariant: ``link_lost`` is called exactly once for a link that
was opened, and nothing is called after it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeVar, cast, final

from perdure.net.shell import NO_TRANSPORT, close_gently

P = TypeVar("P", bound=asyncio.Protocol)

CLOSE_TIMEOUT_S: Final = 5.0
"""Time for a server to close after our DISCONNECT."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a broker is and how to reach it."""

    host: str = "localhost"
    port: int = 1883
    transport: Literal["tcp", "ws"] = "tcp"
    path: str = "/mqtt"
    """HTTP path, WebSocket only."""
    tls: ssl.SSLContext | None = None
    bind: str = ""
    """Local address to connect from; empty = the system's choice."""


class LinkOwner(Protocol):
    """The client as its link sees it."""

    def link_received(self, data: bytes) -> None:
        """Bytes from the server."""
        ...

    def link_lost(self, exc: BaseException | None) -> None:
        """The transport is gone."""
        ...

    def link_writable(self, writable: bool) -> None:
        """The send buffer has passed a water mark."""
        ...


class Link(Protocol):
    """A client's transport."""

    def write(self, data: bytes) -> None:
        """Queue ``data``."""
        ...

    def close(self) -> None:
        """Close after what was written has been flushed."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...

    def pause_reading(self) -> None:
        """Stop ``link_received`` calls."""
        ...

    def resume_reading(self) -> None:
        """Let ``link_received`` calls come again."""
        ...


async def open_transport(endpoint: Endpoint, make: Callable[[], P]) -> P:
    """Make a protocol and connect it.

    Raises:
        OSError: the server cannot be reached, or TLS could not be agreed on.
    """
    _, protocol = await asyncio.get_running_loop().create_connection(
        make,
        endpoint.host,
        endpoint.port,
        ssl=endpoint.tls,
        local_addr=(endpoint.bind, 0) if endpoint.bind else None,
    )
    return protocol


class TransportLink(asyncio.Protocol):
    """What the links share: a transport, its water marks, and its end."""

    __slots__ = ("_closing", "_loop", "_owner", "_timer", "_transport")

    def __init__(self, owner: LinkOwner, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self._loop = loop
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        """Pass the high-water mark on."""
        self._owner.link_writable(False)

    def resume_writing(self) -> None:
        """Pass the low-water mark on."""
        self._owner.link_writable(True)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell the client."""
        self._closing = True
        self._set_timer(None)
        self._transport = NO_TRANSPORT
        self._tell_lost(exc)

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._transport.abort()

    def pause_reading(self) -> None:
        """Stop ``link_received`` calls."""
        if not self._closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Let ``link_received`` calls come again."""
        if not self._closing:
            self._transport.resume_reading()

    def _tell_lost(self, exc: BaseException | None) -> None:
        self._owner.link_lost(exc)

    def _set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer


@final
class TcpLink(TransportLink):
    """A link over TCP or TLS."""

    __slots__ = ()

    def data_received(self, data: bytes) -> None:
        """Hand bytes up; after our DISCONNECT nothing is of interest."""
        if not self._closing:
            self._owner.link_received(data)

    def write(self, data: bytes) -> None:
        """Queue ``data``."""
        if not self._closing:
            self._transport.write(data)

    def close(self) -> None:
        """Close after what was written has been flushed."""
        if not self._closing:
            self._closing = True
            if not self._transport.is_closing():
                self._timer = close_gently(self._transport, self._loop, CLOSE_TIMEOUT_S)
