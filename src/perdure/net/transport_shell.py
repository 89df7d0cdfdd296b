"""What the TCP and the WebSocket shell share: their transport, its loss, its reading.

A shell is an ``asyncio.Protocol`` by its methods, not by inheritance: compiled, a class with a base
that is not would be an ordinary one. It knows nothing of MQTT.

Invariant: nothing is received after ``close``; the handler and then the listener are told exactly
once that the transport is lost; whatever raises in between costs this connection alone.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Final, cast

from perdure.broker.runtime.stream import ConnectionFactory, PeerInfo, StreamHandler
from perdure.net.settings import ListenerSettings
from perdure.net.shell import NO_HANDLER, ShellOwner
from perdure.net.tls import certificate_subject

DROPPED_BYTES_MAX: Final = 512 * 1024
"""What is read and dropped of a client that the broker has taken leave of: the rest of a packet
that was refused may be megabytes, and to read it costs others time."""


class TransportShell:
    """One connection's transport; a subclass knows what its bytes are.

    Args:
        factory: makes the handler.
        peer: who connected.
        settings: of the listener.
        owner: the listener.
        loop: for timers.

    Attributes:
        handler: the connection that the shell drives.
        peer: as given, with the subject of the client's certificate once it is known.
    """

    __slots__ = (
        "_closing",
        "_dropped_bytes",
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
        self._dropped_bytes = 0
        self._lost = False
        self.handler: StreamHandler = NO_HANDLER

    @property
    def connected(self) -> bool:
        """Whether it has had a transport."""
        return self._transport is not None

    def as_protocol(self) -> asyncio.Protocol:
        """The shell, as the event loop's functions are typed."""
        return cast("asyncio.Protocol", self)

    # The transport calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; for TLS the handshake is over."""
        self._transport = cast("asyncio.Transport", transport)
        if self._closing:  # aborted while the handshake below ran
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(
            high=self._settings.write_high_bytes, low=self._settings.write_low_bytes
        )
        try:
            self._begin()
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self._broke(error)

    def eof_received(self) -> None:
        """Close: MQTT has no half-open connection. The transport does it when this returns, after
        flushing what was written."""

    def pause_writing(self) -> None:
        """Pass the high-water mark on."""
        try:
            self.handler.pause_writing()
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self._broke(error)

    def resume_writing(self) -> None:
        """Pass the low-water mark on."""
        try:
            self.handler.resume_writing()
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self._broke(error)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell the connection, then the listener, and let go of both ends; once."""
        if self._lost:
            return
        self._lost = self._closing = True
        self._set_timer(None)
        handler, self.handler = self.handler, NO_HANDLER
        try:
            self._tell_lost(handler, exc)
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self._owner.shell_failed(self, error)
        finally:
            self._owner.shell_lost(self)

    # The connection calls these.

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

    # Subclasses have their own.

    def _begin(self) -> None:
        """The transport is there."""
        raise NotImplementedError

    def _tell_lost(self, handler: StreamHandler, exc: BaseException | None) -> None:
        """The transport is gone; ``handler`` is what the shell drove."""
        handler.connection_lost(exc)

    def certificate(self) -> bytes:
        """The certificate that a TLS client has shown, DER; empty = none."""
        secured = self._transport.get_extra_info("ssl_object")
        return b"" if secured is None else secured.getpeercert(binary_form=True) or b""

    # For subclasses.

    def _drop(self, size: int) -> None:
        """Count what comes after the end; of who sends on and on no more is read.

        It may still read what it was told: nothing is cut before the closing is over.
        """
        self._dropped_bytes += size
        if self._dropped_bytes > DROPPED_BYTES_MAX and not self._lost:
            self._transport.pause_reading()

    def _broke(self, error: Exception) -> None:
        """A step of this connection failed as nobody expected: cut it."""
        self._owner.shell_failed(self, error)
        self.abort()

    def _identify(self) -> None:
        """Remember whose certificate a TLS client has shown."""
        if self._settings.tls is not None:
            certificate = self.certificate()
            if certificate:
                subject = certificate_subject(self._transport.get_extra_info("peercert"))
                self.peer = dataclasses.replace(
                    self.peer, certificate_subject=subject, certificate=certificate
                )

    def _set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer
