"""The TCP and TLS shell: carries bytes from a transport to a connection and back.

It is an ``asyncio.Protocol`` by its methods, not by inheritance: compiled, a class with a base
that is not would be an ordinary one. TLS is the same shell: the event loop puts the encryption
below. The shell knows nothing of MQTT.

Invariant: nothing is written after ``close`` and nothing is received after it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import cast, final

from perdure.broker.stream import ConnectionFactory, PeerInfo, StreamHandler
from perdure.net.settings import ListenerSettings
from perdure.net.shell import NO_HANDLER, ShellOwner, close_gently
from perdure.net.tls import certificate_subject


@final
class TcpShell:
    """One TCP or TLS connection: the ``ByteStream`` of its handler."""

    __slots__ = (
        "_closing",
        "_factory",
        "_loop",
        "_lost",
        "_owner",
        "_settings",
        "_timer",
        "_transport",
        "handler",
        "peer",
    )

    def __init__(
        self,
        factory: ConnectionFactory,
        peer: PeerInfo,
        *,
        settings: ListenerSettings,
        owner: ShellOwner,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._factory = factory
        self.peer = peer
        self._settings = settings
        self._owner = owner
        self._loop = loop
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._lost = False
        self.handler: StreamHandler = NO_HANDLER

    @property
    def connected(self) -> bool:
        """Whether it has had a transport."""
        return self._transport is not None

    # The transport calls these.

    def as_protocol(self) -> asyncio.Protocol:
        """The shell, as the event loop's functions are typed."""
        return cast("asyncio.Protocol", self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make the connection; for TLS the handshake is over."""
        self._transport = cast("asyncio.Transport", transport)
        if self._closing:  # aborted while the handshake below ran
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(
            high=self._settings.write_high_bytes, low=self._settings.write_low_bytes
        )
        if self._settings.tls is not None:
            subject = certificate_subject(transport.get_extra_info("peercert"))
            if subject is not None:
                self.peer = dataclasses.replace(self.peer, certificate_subject=subject)
        try:
            self.handler = self._factory(self, self.peer)
        except BaseException:
            # The loop only reports what connection_made raises; it would keep the socket.
            self.abort()
            raise

    def data_received(self, data: bytes) -> None:
        """Hand bytes to the connection, or drop them when it has closed."""
        if not self._closing:
            self.handler.receive(data)

    def eof_received(self) -> None:
        """Close: MQTT has no half-open connection. What was written is still flushed."""

    def pause_writing(self) -> None:
        """Pass the high-water mark on."""
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        """Pass the low-water mark on."""
        self.handler.resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell the connection, then the listener, and let go of both ends; once."""
        if self._lost:
            return
        self._lost = self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        handler, self.handler = self.handler, NO_HANDLER
        try:
            handler.connection_lost(exc)
        finally:
            self._owner.shell_lost(self)

    # The connection calls these.

    def write(self, data: bytes) -> None:
        """Queue ``data``."""
        if not self._closing:
            self._transport.write(data)

    def close(self) -> None:
        """Close after what was written has been flushed."""
        if self._closing:
            return
        self._closing = True
        if not self._transport.is_closing():
            self._timer = close_gently(self._transport, self._loop, self._settings.close_timeout_s)

    def abort(self) -> None:
        """Close at once and drop what was not sent."""
        self._closing = True
        if not self._lost and self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Stop ``receive`` calls."""
        if not self._closing and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Let ``receive`` calls come again."""
        if not self._closing and not self._transport.is_closing():
            self._transport.resume_reading()

    def write_buffer_size(self) -> int:
        """Bytes written and not yet given to the operating system."""
        return 0 if self._lost else self._transport.get_write_buffer_size()
