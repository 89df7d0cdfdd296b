"""A connection to the other broker: packets in, bytes out, a keep alive, and how it ended.

It knows neither what is sent nor what comes. Invariant: once it is lost, ``check`` says why, and
whoever waits for it is woken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

from perdure.errors import MqttError, PerdureError, TargetUnavailable
from perdure.mqtt import reason_codes
from perdure.mqtt.decode import Decoder
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import (
    V5,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
)
from perdure.net.client_keep_alive import KeepAlive
from perdure.net.client_link import Endpoint, Link
from perdure.net.client_open import open_link

_V311_HEAD: Final = b"\x00\x04MQTT\x04"
_V311_BRIDGE: Final = b"\x00\x04MQTT\x84"
WRONG_VERSION: Final = 1
"""CONNACK of 3.1.1: this protocol level is not spoken here."""


class ConnectRefused(TargetUnavailable):
    """The other broker said no.

    Args:
        reason: of its CONNACK.
        text: what it means.
    """

    def __init__(self, reason: int, text: str) -> None:
        super().__init__(f"the other broker refuses us: {text}")
        self.reason = reason


@final
class Peer:
    """One connection.

    Args:
        endpoint: where.
        version: 4 or 5.
        packet_size_max: longest packet that we take, bytes.
        on_packet: is given each PUBLISH and acknowledgement.
        on_turn: called after all packets that came together, and when the connection is lost.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        version: int,
        *,
        packet_size_max: int,
        on_packet: Callable[[Publish | Ack], None],
        on_turn: Callable[[], None],
    ) -> None:
        self.version = version
        self._endpoint = endpoint
        self._decoder = Decoder(server_side=False, packet_size_max=packet_size_max, version=version)
        self._on_packet = on_packet
        self._on_turn = on_turn
        self._link: Link | None = None
        self._out: list[bytes] = []
        self._answer: asyncio.Future[Connack | Suback] | None = None
        self._error: Exception | None = None
        self._closed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._keep_alive = KeepAlive(self._ping, self._give_up)

    async def connect(self, packet: Connect, *, as_bridge: bool = False) -> Connack:
        """Open the transport and introduce ourselves.

        Args:
            packet: our CONNECT.
            as_bridge: say so, as 3.1.1 can not: by a bit of the protocol level.

        Raises:
            ConnectRefused: the broker said no.
            OSError, TargetUnavailable: it cannot be reached.
        """
        self._link = await open_link(self._endpoint, self)
        data = encode(packet, self.version)
        if as_bridge:
            data = data.replace(_V311_HEAD, _V311_BRIDGE, 1)
        answer = await self._ask(data)
        assert isinstance(answer, Connack)
        if answer.reason:
            text = reason_codes.name(answer.reason)
            if self.version != V5:
                known = reason_codes.RETURN_CODES_311
                text = known[answer.reason] if answer.reason < len(known) else str(answer.reason)
            raise ConnectRefused(answer.reason, answer.properties.reason_string or text)
        keep_alive_s = answer.properties.server_keep_alive or packet.keep_alive
        self._keep_alive.start(keep_alive_s)
        return answer

    async def subscribe(self, packet: Subscribe) -> Suback:
        """Subscribe.

        Raises:
            OSError, TargetUnavailable: the connection ended first.
        """
        answer = await self._ask(encode(packet, self.version))
        assert isinstance(answer, Suback)
        return answer

    def send(self, data: bytes) -> None:
        """Queue bytes; they leave with ``flush``."""
        self._out.append(data)

    def send_pieces(self, pieces: list[bytes]) -> None:
        """Queue the pieces of a packet."""
        self._out += pieces

    def flush(self) -> None:
        """Write what is queued."""
        if self._out and self._link is not None:
            self._keep_alive.sent()
            self._link.write(b"".join(self._out))
        self._out.clear()

    async def drain(self) -> None:
        """``flush``, and wait while the transport has too much to write."""
        self.flush()
        if not self._writable.is_set():
            await self._writable.wait()
        self.check()

    def check(self) -> None:
        """Do nothing while the connection stands.

        Raises:
            OSError, TargetUnavailable, StorageError: why it does not.
        """
        if self._error is not None:
            raise self._error

    def fail(self, error: Exception) -> None:
        """End it for a reason of ours."""
        if self._error is None:
            self._error = error
        if self._link is not None:
            self._link.abort()

    def pause_reading(self) -> None:
        """Take nothing more from the transport."""
        if self._link is not None:
            self._link.pause_reading()

    def resume_reading(self) -> None:
        """Take more again."""
        if self._link is not None:
            self._link.resume_reading()

    async def close(self) -> None:
        """Say goodbye if the connection stands, and wait until it is closed."""
        self._keep_alive.stop()
        link = self._link
        if link is None:
            return
        if self._error is None:
            self._error = TargetUnavailable("closed")
            self.send(encode(Disconnect(0), self.version))
            self.flush()
        link.close()
        await self._closed.wait()

    # The link calls these.

    def link_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._error is not None:
            return
        try:
            for packet in self._decoder.feed(data):
                self._handle(packet)
            if self._decoder.failure is not None:
                raise self._decoder.failure
        except MqttError as error:
            self.fail(TargetUnavailable(f"the other broker breaks the protocol: {error.message}"))
            return
        except PerdureError as error:
            self.fail(error)
            return
        self._on_turn()

    def link_lost(self, exc: BaseException | None) -> None:
        """The connection is gone."""
        self._keep_alive.stop()
        self._link = None
        if self._error is None:
            self._error = exc if isinstance(exc, OSError) else TargetUnavailable("connection lost")
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(self._error)
        self._writable.set()
        self._closed.set()
        self._on_turn()

    def link_writable(self, writable: bool) -> None:
        """The send buffer has passed a water mark."""
        if writable:
            self._writable.set()
        else:
            self._writable.clear()

    # Inside.

    async def _ask(self, data: bytes) -> Connack | Suback:
        self.check()
        self._answer = asyncio.get_running_loop().create_future()
        self.send(data)
        self.flush()
        try:
            return await self._answer
        finally:
            self._answer = None

    def _handle(self, packet: Packet) -> None:
        if isinstance(packet, Publish | Ack):
            self._on_packet(packet)
        elif isinstance(packet, Connack | Suback):
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(packet)
        elif isinstance(packet, Pingresp):
            self._keep_alive.answered()
        elif isinstance(packet, Disconnect):
            text = packet.properties.reason_string or reason_codes.name(packet.reason)
            self.fail(TargetUnavailable(f"the other broker closed: {text}"))

    def _ping(self) -> None:
        self.send(encode(Pingreq(), self.version))
        self.flush()

    def _give_up(self) -> None:
        self.fail(TargetUnavailable("the other broker does not answer PINGREQ"))
