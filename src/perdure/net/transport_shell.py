"""What the TCP and the WebSocket shell share: their transport, its loss, its reading.

A shell is an ``asyncio.Protocol`` by its methods, not by inheritance: compiled, a class with a base
that is not would be an ordinary one. It knows nothing of MQTT.

A client that hangs up has said what came before: what of it was not processed yet (records that
are left, frames that are left, packets that the connection keeps) is, and its loss is told after
that. A transport that has nothing between itself and the kernel does so by itself, since it sees
no end while reading is paused; TLS sees it at once.

Invariant: nothing is received after ``close``; the handler and then the listener are told exactly
once that the transport is lost; whatever raises in between costs this connection alone.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import socket
import ssl
from typing import Final, cast

from perdure.broker.runtime.stream import ConnectionFactory, PeerInfo, StreamHandler
from perdure.net.records import MeteredTls, RecordTurns
from perdure.net.settings import ListenerSettings
from perdure.net.shell import NO_HANDLER, NO_TRANSPORT, ShellOwner
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
        "_is_unread",
        "_loop",
        "_loss",
        "_lost",
        "_owner",
        "_settings",
        "_timer",
        "_tls",
        "_transport",
        "_turns",
        "_wants",
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
        self._is_unread = False
        """The peer takes nothing of what is written."""
        self._loss: BaseException | None = None
        self._lost = False
        """The connection knows."""
        self._wants = True
        """The connection wants to be given what comes."""
        self._tls: MeteredTls | None = None
        self._turns: RecordTurns | None = None
        """Where records wait that were not read at once; None = there never were some."""
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
        secured = self._transport.get_extra_info("ssl_object")
        if isinstance(secured, MeteredTls):
            self._tls = secured
        try:
            self._begin()
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self._broke(error)

    def data_received(self, data: bytes) -> None:
        """Take bytes; TLS records that are left are read in the next turns."""
        self._take(data)
        tls = self._tls
        if tls is None:
            return
        tls.handed_on()
        if tls.is_behind and not self._transport.is_closing():
            self._transport.pause_reading()
            if self._wants:
                self._read_records_later()

    def eof_received(self) -> None:
        """Close: MQTT has no half-open connection. The transport does it when this returns, after
        flushing what was written."""

    def pause_writing(self) -> None:
        """Pass the high-water mark on."""
        self._is_unread = True
        try:
            self.handler.pause_writing()
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self._broke(error)

    def resume_writing(self) -> None:
        """Pass the low-water mark on."""
        self._is_unread = False
        try:
            self.handler.resume_writing()
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self._broke(error)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let go of the transport; tell the connection when it has been given all that came."""
        if self._is_gone:
            return
        self._loss = exc
        self._transport = NO_TRANSPORT
        if self._closing or self._is_unread or (self._wants and self._tls is None):
            self._tell()
        elif self._wants:
            self._read_records_later()

    def _tell(self) -> None:
        """Tell the connection, then the listener, and let go of both ends; once."""
        if self._lost:
            return
        self._lost = self._closing = True
        self._set_timer(None)
        self._tls = self._turns = None
        handler, self.handler = self.handler, NO_HANDLER
        exc, self._loss = self._loss, None
        try:
            self._tell_lost(handler, exc)
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self._owner.shell_failed(self, error)
        finally:
            self._owner.shell_lost(self)

    # The connection calls these.

    def abort(self) -> None:
        """Close at once and drop what was not sent."""
        self._stop()
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Stop ``receive`` calls."""
        if not self._closing:
            self._read_transport(False)

    def resume_reading(self) -> None:
        """Let ``receive`` calls come again."""
        if not self._closing:
            self._read_transport(True)

    def write_buffer_size(self) -> int:
        """Bytes written and not yet given to the operating system."""
        return self._transport.get_write_buffer_size()

    def has_ended(self) -> bool:
        """Whether the peer has hung up and nothing is left to read; of TLS its last word is."""
        if self._is_gone:
            return self._tls is None
        if self._transport.is_closing():
            return True
        # Of uvloop's there is no more than the descriptor.
        found = self._transport.get_extra_info("socket")
        if found is None:
            return False
        with socket.socket(fileno=os.dup(found.fileno())) as peeked:
            try:
                return not peeked.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except OSError:
                return True

    # Subclasses have their own.

    def _begin(self) -> None:
        """The transport is there."""
        raise NotImplementedError

    def _take(self, data: bytes) -> None:
        """Bytes have come; nothing is raised."""
        raise NotImplementedError

    def _tell_lost(self, handler: StreamHandler, exc: BaseException | None) -> None:
        """The transport is gone; ``handler`` is what the shell drove."""
        handler.connection_lost(exc)

    def certificate(self) -> bytes:
        """The certificate that a TLS client has shown, DER; empty = none."""
        secured = self._transport.get_extra_info("ssl_object")
        return b"" if secured is None else secured.getpeercert(binary_form=True) or b""

    # For subclasses.

    @property
    def _is_gone(self) -> bool:
        """The transport is lost; the connection may not know yet."""
        return self._transport is NO_TRANSPORT

    def _read_transport(self, reads: bool) -> None:
        """Whether the transport is to give what comes."""
        self._wants = reads
        if self._is_gone:
            if reads and self._tls is not None:
                self._read_records_later()
            elif reads:
                self._loop.call_soon(self._tell)
            return
        if self._transport.is_closing():
            return
        if not reads:
            self._transport.pause_reading()
        elif self._tls is not None and self._tls.is_behind:
            self._read_records_later()
        else:
            self._transport.resume_reading()

    def _read_records_later(self) -> None:
        if self._turns is None:
            self._turns = RecordTurns(self._owner.turn_budget, self._read_records)
        self._turns.wait()

    def _read_records(self) -> None:
        """Read a slice of the records that are left, past the transport, which reads all or none:
        it would drop them at the peer's end."""
        tls = self._tls
        if tls is None or not self._wants or (self._transport.is_closing() and not self._is_gone):
            return
        try:
            data = tls.read_some()
        except ssl.SSLError:
            self.abort()
            return
        if data:
            self._take(data)
        if self._is_gone:
            if tls.is_over or not tls.is_behind:
                self._tls = None
            if self._wants:
                self._read_transport(True)
        elif tls.is_over:
            # uvloop sees no end that was read here; after that of the socket it waits for the one.
            self._transport.resume_reading()
            self._transport.close()
        elif self._wants:
            self._read_transport(True)

    def _stop(self) -> bool:
        """Give the connection nothing more; whether there is a transport left to close."""
        self._closing = True
        if self._is_gone:
            self._loop.call_soon(self._tell)
            return False
        return self._transport is not None and not self._transport.is_closing()

    def _drop(self, size: int) -> None:
        """Count what comes after the end; of who sends on and on no more is read.

        It may still read what it was told: nothing is cut before the closing is over.
        """
        self._dropped_bytes += size
        if self._dropped_bytes > DROPPED_BYTES_MAX:
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
