"""The WebSocket shell: the handshake by websockets' sans-I/O ``ServerProtocol``, then frames.

It knows frames, not packets: the payloads of binary frames are one stream of bytes
[MQTT-6.0.0-2], and each ``write`` of the connection becomes one binary frame. What a client sends
is read in slices of ``FRAMES_PER_SLICE`` frames, and nothing more of it while frames are left.

::

    opening --request, 101--> open --close / fail / peer's Close frame--> closing --> lost
       `-------refused, timeout----------------------------------------------^
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Final, final

from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from perdure.broker.runtime.stream import ConnectionFactory, PeerInfo, StreamHandler
from perdure.broker.runtime.turn_budget import BULK_BYTES
from perdure.net.frames import (
    BINARY,
    CLOSE,
    NORMAL_CLOSURE,
    PONG,
    FrameReader,
    close_payload,
    frame,
)
from perdure.net.settings import ListenerSettings
from perdure.net.shell import NO_HANDLER, ShellOwner, close_gently
from perdure.net.transport_shell import TransportShell

SUBPROTOCOL: Final = Subprotocol("mqtt")
"""The only name that MQTT 3.1.1 and 5.0 have [MQTT-6.0.0-3]; ``mqttv3.1`` is another protocol."""

REFUSAL_MAX: Final = 200
"""Characters of a refused handshake's reason in the log: the peer has written some of them."""

REQUEST_BYTES_MAX: Final = 16 * 1024
"""Bytes of an upgrade request up to its empty line; browsers send cookies along."""

FRAMES_PER_SLICE: Final = 128
"""Frames of one connection that are read at once; a read of honest clients has less."""

_END: Final = b"\r\n\r\n"

# What fails here is the peer's doing, and the listener has one line for it.
_library_log = logging.getLogger("perdure.net.websocket.library")
_library_log.disabled = True


@final
class WebSocketShell(TransportShell):
    """One WebSocket connection: the ``ByteStream`` of its handler; arguments as of its base."""

    __slots__ = (
        "_is_ended",
        "_is_open",
        "_is_paused",
        "_is_waiting",
        "_reader",
        "_refusal",
        "_request",
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
        super().__init__(factory, peer, settings=settings, owner=owner, loop=loop)
        self._refusal: str = "no WebSocket handshake"
        self._request: bytearray = bytearray()
        self._reader: FrameReader = FrameReader(settings.message_bytes_max)
        self._is_open: bool = False
        """The handshake was accepted, and no Close frame has gone out."""
        self._is_ended: bool = False
        """Nothing that comes matters any more."""
        self._is_paused: bool = False
        """The connection does not want to be given anything."""
        self._is_waiting: bool = False
        """Frames that are left are read in the next turn."""

    # The base calls this.

    def _take(self, data: bytes) -> None:
        """Take bytes; hand the payloads of their frames on in one piece."""
        if self._is_ended:
            self._drop(len(data))
            return
        try:
            if self.handler is NO_HANDLER:
                self._take_request(data)
            elif self._is_paused or self._is_waiting:
                self._reader.keep(data)
            elif len(data) > BULK_BYTES and (
                self._owner.turn_budget.is_busy or self._owner.turn_budget.rests()
            ):
                self._reader.keep(data)
                self._read_transport(False)
                self._go_on_later()
            else:
                self._slice(data)
        except Exception as error:  # noqa: BLE001 - it costs this connection alone
            self._broke(error)

    # The connection calls these.

    def write(self, data: bytes) -> None:
        """Send ``data`` as one binary frame."""
        if not self._closing and self._is_open:
            self._send(frame(BINARY, data))

    def close(self) -> None:
        """Send what was written and a Close frame; the peer's answer ends the connection."""
        if self._closing:
            return
        if self._is_open:
            self._is_open = False
            self._send(frame(CLOSE, close_payload(NORMAL_CLOSURE)))
        self._begin_closing()

    def pause_reading(self) -> None:
        """Stop ``receive`` calls."""
        if not self._closing:
            self._is_paused = True
            self._read_transport(False)

    def resume_reading(self) -> None:
        """Let ``receive`` calls come again."""
        if not self._closing:
            self._is_paused = False
            self._read_on()

    # Inside.

    def _begin(self) -> None:
        """Wait for the upgrade request, but not for ever."""
        self._timer = self._loop.call_later(self._settings.handshake_timeout_s, self.abort)

    def _tell_lost(self, handler: StreamHandler, exc: BaseException | None) -> None:
        self._is_ended = True
        if handler is NO_HANDLER:
            self._owner.handshake_failed(self, self._refusal)
        else:
            handler.connection_lost(exc)

    def _take_request(self, data: bytes) -> None:
        """Wait for the whole request, then answer it; frames may follow in the same segment."""
        request = self._request
        begin = max(0, len(request) - len(_END) + 1)
        request += data
        found = request.find(_END, begin)
        if found < 0 or found > REQUEST_BYTES_MAX:
            if len(request) > REQUEST_BYTES_MAX:
                self._refusal = f"the request has more than {REQUEST_BYTES_MAX} bytes"
                self._is_ended = True
                self._request = bytearray()
                protocol = ServerProtocol(logger=_library_log)
                protocol.send_response(
                    protocol.reject(
                        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"{self._refusal}\n"
                    )
                )
                self._answer(protocol)
                self._finish()
            return
        head = bytes(request[: found + len(_END)])
        rest = bytes(request[found + len(_END) :])
        self._request = bytearray()
        self._open(head)
        if rest and not self._is_ended:
            self._take(rest)

    def _open(self, head: bytes) -> None:
        """Answer the upgrade request; make the connection if it was accepted."""
        origins = self._settings.origins
        protocol = ServerProtocol(
            subprotocols=[SUBPROTOCOL],
            # Only browsers send an origin; the rule is there against foreign web pages.
            origins=None if origins is None else [None, *map(Origin, origins)],
            extensions=None,
            logger=_library_log,
        )
        protocol.receive_data(head)
        status = 400
        for event in protocol.events_received():
            if isinstance(event, Request):
                if event.path.partition("?")[0] != self._settings.path:
                    response = protocol.reject(HTTPStatus.NOT_FOUND, "MQTT is not spoken here.\n")
                else:
                    response = protocol.accept(event)
                status = response.status_code
                protocol.send_response(response)
        accepted = protocol.state is State.OPEN
        if not accepted:
            why = protocol.handshake_exc or "no such path"
            self._refusal = f"HTTP {status}: {why}"[:REFUSAL_MAX]
            self._is_ended = True
        self._answer(protocol)
        if not accepted:
            self._finish()
            return
        self._set_timer(None)
        self._identify()
        self._is_open = True
        self.handler = self._factory(self, self.peer)

    def _slice(self, data: bytes) -> None:
        """Read some frames; more of them wait for the next turn."""
        reader = self._reader
        payload = reader.feed(data, FRAMES_PER_SLICE)
        if reader.pongs:
            pongs = reader.pongs
            reader.pongs = []
            if self._is_open:
                self._send(b"".join([frame(PONG, each) for each in pongs]))
        # Before the answer to a Close frame: a DISCONNECT that came in one piece with it counts.
        # But after a text frame nothing does.
        if payload and not self._closing:
            self.handler.receive(payload)
        if reader.end is not None:
            self._is_ended = True
            if self._is_open:
                self._is_open = False
                self._send(frame(CLOSE, reader.end))
            self._finish()
        elif reader.has_more:
            self._read_transport(False)
            self._go_on_later()

    def _go_on_later(self) -> None:
        if not self._is_waiting and not self._is_paused:
            self._is_waiting = True
            self._owner.turn_budget.add(self)

    @property
    def is_closed(self) -> bool:
        """Nothing more is read."""
        return self._is_ended or self._lost

    def work_on(self) -> bool:
        """Read more of the frames that are left; whether there are others."""
        self._is_waiting = False
        if self._is_ended or self._lost or self._is_paused:
            return False
        try:
            self._slice(b"")
            if not self._is_ended and not self._is_paused:
                self._read_on()
        except Exception as error:  # noqa: BLE001 - it costs this connection alone
            self._broke(error)
        return False  # it has come back to the queue by itself

    def _read_on(self) -> None:
        """Read what is kept, or else from the transport."""
        if self._reader.has_more:
            self._go_on_later()
        else:
            self._read_transport(True)

    def _answer(self, protocol: ServerProtocol) -> None:
        for piece in protocol.data_to_send():
            if piece:
                self._send(piece)

    def _send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def _finish(self) -> None:
        """Both sides have said all: close the transport."""
        if self._stop():
            self._set_timer(
                close_gently(self._transport, self._loop, self._settings.close_timeout_s)
            )

    def _begin_closing(self) -> None:
        """Wait for the peer's end of the closing handshake, but not for ever."""
        if self._stop():
            # The peer's Close frame must be read even if the connection had paused.
            self._is_paused = False
            self._read_on()
            self._set_timer(
                self._loop.call_later(self._settings.close_timeout_s, self._transport.abort)
            )
