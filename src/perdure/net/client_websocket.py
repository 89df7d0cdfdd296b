"""A client's link over WebSocket: drives websockets' sans-I/O ``ClientProtocol``.

Apart from ``client_link`` because the library is slow to import.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, final

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from perdure.limits import REMAINING_LENGTH_MAX
from perdure.net.client_link import (
    CLOSE_TIMEOUT_S,
    Endpoint,
    LinkOwner,
    TransportLink,
    open_transport,
)
from perdure.net.shell import close_gently

SUBPROTOCOL: Final = Subprotocol("mqtt")

_library_log = logging.getLogger("perdure.net.client_websocket.library")
_library_log.setLevel(logging.ERROR)


async def open_websocket_link(endpoint: Endpoint, owner: LinkOwner) -> WebSocketLink:
    """Connect and upgrade.

    Raises:
        OSError: the server cannot be reached, or does not speak MQTT over WebSocket there.
    """
    loop = asyncio.get_running_loop()
    link = await open_transport(endpoint, lambda: WebSocketLink(endpoint, owner, loop))
    try:
        await link.opened
    except BaseException:
        link.abort()
        raise
    return link


@final
class WebSocketLink(TransportLink):
    """A link whose bytes travel in binary frames."""

    def __init__(
        self, endpoint: Endpoint, owner: LinkOwner, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(owner, loop)
        self._is_open = False
        self.opened: asyncio.Future[None] = loop.create_future()
        """Done when frames may flow."""
        secure = endpoint.tls is not None
        path, _, query = endpoint.path.partition("?")
        self._protocol = ClientProtocol(
            WebSocketURI(secure, endpoint.host, endpoint.port, path, query),
            subprotocols=[SUBPROTOCOL],
            max_size=REMAINING_LENGTH_MAX + 5,
            logger=_library_log,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade."""
        super().connection_made(transport)
        self._protocol.send_request(self._protocol.connect())
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Take frames; hand their payloads up in one piece."""
        self._protocol.receive_data(data)
        payloads: list[bytes] = []
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                self._upgraded()
            elif isinstance(event, Frame):
                if event.opcode is Opcode.BINARY or event.opcode is Opcode.CONT:
                    payloads.append(bytes(event.data))
                elif event.opcode is Opcode.TEXT:
                    # [MQTT-6.0.0-1]
                    self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "MQTT needs binary frames")
                    break
        if payloads and not self._closing:
            self._owner.link_received(b"".join(payloads))
        self._flush()
        if self._protocol.close_expected():
            self.close()

    def write(self, data: bytes) -> None:
        """Send ``data`` as one binary frame."""
        if not self._closing and self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)
            self._flush()

    def close(self) -> None:
        """Send a Close frame after what was written; the server closes then."""
        if self._closing:
            return
        self._closing = True
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()
        if self._timer is None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._timer = self._loop.call_later(CLOSE_TIMEOUT_S, self._transport.abort)

    def _tell_lost(self, exc: BaseException | None) -> None:
        """Tell the client, if it ever heard of this link."""
        if self._is_open:
            self._owner.link_lost(exc)
        elif not self.opened.done():
            why = self._protocol.handshake_exc
            self.opened.set_exception(
                ConnectionAbortedError(f"no WebSocket connection: {why or exc or 'closed'}")
            )

    def _upgraded(self) -> None:
        if self._protocol.handshake_exc is not None:
            return  # the flush closes the transport
        if self._protocol.subprotocol != SUBPROTOCOL:
            # [MQTT-6.0.0-4] the server must choose it; one that does not may speak anything.
            self._protocol.handshake_exc = InvalidHandshake("the server does not speak MQTT")
            self._transport.abort()
            return
        self._is_open = True
        if not self.opened.done():
            self.opened.set_result(None)

    def _flush(self) -> None:
        for piece in self._protocol.data_to_send():
            if self._transport.is_closing():
                return
            if piece:
                self._transport.write(piece)
            else:
                self._closing = True
                self._set_timer(close_gently(self._transport, self._loop, CLOSE_TIMEOUT_S))
