"""The WebSocket shell: drives websockets' sans-I/O ``ServerProtocol`` over a transport.

It knows frames, not packets: the payloads of binary frames are one stream of bytes
[MQTT-6.0.0-2], and each ``write`` of the connection becomes one binary frame.

::

    opening --Request, 101--> open --close / fail / peer's Close frame--> closing --> lost
       `-------refused, timeout----------------------------------------------^
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Final, final

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from perdure.broker.stream import ConnectionFactory, PeerInfo, StreamHandler
from perdure.net.settings import ListenerSettings
from perdure.net.shell import NO_HANDLER, ShellOwner, close_gently
from perdure.net.transport_shell import TransportShell

SUBPROTOCOL: Final = Subprotocol("mqtt")
"""The only name that MQTT 3.1.1 and 5.0 have [MQTT-6.0.0-3]; ``mqttv3.1`` is another protocol."""

REFUSAL_MAX: Final = 200
"""Characters of a refused handshake's reason in the log: the peer has written some of them."""

# The library reports each handshake and closing; only its own failures concern an operator.
_library_log = logging.getLogger("perdure.net.websocket.library")
_library_log.setLevel(logging.ERROR)


@final
class WebSocketShell(TransportShell):
    """One WebSocket connection: the ``ByteStream`` of its handler; arguments as of its base."""

    __slots__ = ("_protocol", "_refusal")

    def __init__(
        self,
        factory: ConnectionFactory,
        peer: PeerInfo,
        *,
        settings: ListenerSettings,
        owner: ShellOwner,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(factory, peer, settings=settings, owner=owner, loop=loop)
        self._refusal = "no WebSocket handshake"
        origins = settings.origins
        self._protocol = ServerProtocol(
            subprotocols=[SUBPROTOCOL],
            # Only browsers send an origin; the rule is there against foreign web pages.
            origins=None if origins is None else [None, *map(Origin, origins)],
            extensions=None,
            max_size=settings.message_bytes_max,
            logger=_library_log,
        )

    # The transport calls this.

    def data_received(self, data: bytes) -> None:
        """Take bytes; hand the payloads of all their frames on in one piece."""
        protocol = self._protocol
        protocol.receive_data(data)
        payloads: list[bytes] = []
        text = False
        for event in protocol.events_received():
            if isinstance(event, Request):
                self._open(event)
            elif isinstance(event, Frame):
                # A continuation can only belong to a binary message: a text frame ends it all.
                if event.opcode is Opcode.BINARY or event.opcode is Opcode.CONT:
                    payloads.append(bytes(event.data))
                elif event.opcode is Opcode.TEXT:
                    text = True
                    break
        # Before the flush, which may carry our Close frame: a DISCONNECT that came in one piece
        # with the peer's Close frame counts.
        if payloads and not self._closing:
            self.handler.receive(payloads[0] if len(payloads) == 1 else b"".join(payloads))
        if text:
            # [MQTT-6.0.0-1] any other type of data frame closes the connection.
            protocol.fail(CloseCode.UNSUPPORTED_DATA, "MQTT needs binary frames")
        self._flush()

    # The connection calls these.

    def write(self, data: bytes) -> None:
        """Send ``data`` as one binary frame."""
        if not self._closing and self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)
            self._flush()

    def close(self) -> None:
        """Send what was written and a Close frame; the peer's answer ends the connection."""
        if self._closing:
            return
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()
        self._begin_closing()

    # Inside.

    def _begin(self) -> None:
        """Wait for the upgrade request, but not for ever."""
        self._timer = self._loop.call_later(self._settings.handshake_timeout_s, self.abort)

    def _tell_lost(self, handler: StreamHandler, exc: BaseException | None) -> None:
        if handler is NO_HANDLER:
            self._owner.handshake_failed(self, self._refusal)
        else:
            handler.connection_lost(exc)

    def _open(self, request: Request) -> None:
        """Answer the upgrade request; make the connection if it was accepted."""
        protocol = self._protocol
        if request.path.partition("?")[0] != self._settings.path:
            response = protocol.reject(HTTPStatus.NOT_FOUND, "MQTT is not spoken here.\n")
        else:
            response = protocol.accept(request)
        protocol.send_response(response)
        self._flush()
        if protocol.state is not State.OPEN:
            why = protocol.handshake_exc or "no such path"
            self._refusal = f"HTTP {response.status_code}: {why}"[:REFUSAL_MAX]
            return
        self._set_timer(None)
        self._identify()
        self.handler = self._factory(self, self.peer)

    def _flush(self) -> None:
        """Give the transport what the protocol has to send; an empty piece is the end."""
        for piece in self._protocol.data_to_send():
            if self._lost or self._transport.is_closing():
                return
            if piece:
                self._transport.write(piece)
            else:
                self._closing = True
                self._set_timer(
                    close_gently(self._transport, self._loop, self._settings.close_timeout_s)
                )

    def _begin_closing(self) -> None:
        """Wait for the peer's end of the closing handshake, but not for ever."""
        if self._closing:
            return
        self._closing = True
        if not self._transport.is_closing():
            # The peer's Close frame must be read even if the connection had paused.
            self._transport.resume_reading()
            self._set_timer(
                self._loop.call_later(self._settings.close_timeout_s, self._transport.abort)
            )
