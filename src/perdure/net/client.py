"""An MQTT client on asyncio: ``ClientProtocol`` with a link, a keep alive and futures.

``perdure pub`` and ``perdure sub`` and the tests use it. Protocol decisions are all below, in
``perdure.mqtt``; here are only sockets, timers and waiting.

Invariants: what the server said first (a refusal, a DISCONNECT, its own fault) is the error that
everybody who waits gets; reading stops before the queue of messages grows beyond its bound.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final, TypeVar, assert_never, final

from perdure.errors import MqttError
from perdure.mqtt.client_events import (
    ClientEvent,
    Connected,
    Disconnected,
    Failed,
    Ponged,
    Published,
    Reauthenticated,
    Received,
    Refused,
    Subscribed,
    Unsubscribed,
)
from perdure.mqtt.client_protocol import CONNECTED, ClientProtocol
from perdure.mqtt.packets import EMPTY, Properties, Publish, SubscribeFilter
from perdure.mqtt.reason_codes import UNSPECIFIED_ERROR
from perdure.net.client_keep_alive import KeepAlive
from perdure.net.client_link import Endpoint, Link
from perdure.net.client_open import open_link

T = TypeVar("T")

MESSAGES_MAX: Final = 1000
"""Messages held for the caller before reading from the socket pauses."""


@final
class Client:
    """One MQTT client, over as many connections as it is told to make.

    Args:
        protocol: who it is; its session outlives a connection.
        endpoint: where the broker is.
        messages_max: see ``MESSAGES_MAX``.
    """

    def __init__(
        self, protocol: ClientProtocol, endpoint: Endpoint, *, messages_max: int = MESSAGES_MAX
    ) -> None:
        self.protocol = protocol
        self.endpoint = endpoint
        self._messages_max = messages_max
        self._messages: deque[Publish] = deque()
        self._changed = asyncio.Event()
        self._reading_paused = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._link: Link | None = None
        self._closed = asyncio.Event()
        self._closed.set()
        self._leaving = False
        self._error: Exception | None = None
        self._connecting: asyncio.Future[Connected] | None = None
        self._requests: dict[int, asyncio.Future[Subscribed | Unsubscribed]] = {}
        self._published: dict[int, asyncio.Future[Published]] = {}
        self._flush_pending = False
        self._keep_alive = KeepAlive(self._ping, self._give_up)

    @property
    def is_connected(self) -> bool:
        """Whether the server has accepted us and the connection stands."""
        return self._link is not None and self.protocol.state == CONNECTED

    async def connect(
        self, *, clean_start: bool | None = None, timeout_s: float = 10.0
    ) -> Connected:
        """Open a connection and wait for CONNACK.

        Args:
            clean_start: instead of the protocol's own, from now on.
            timeout_s: for the transport and CONNACK together.

        Raises:
            MqttError: the server said no (``reason_code`` is the return code of 3.1.1, 1 to 5,
                or the reason code of 5.0), or broke the protocol.
            OSError: the server cannot be reached, hung up, or took too long.
        """
        assert self._link is None, "connected already"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                self._error = None
                self._leaving = False
                self._closed.clear()
                self._writable.set()
                link = await open_link(self.endpoint, self)
                if self._closed.is_set():
                    raise ConnectionResetError("the server hung up at once")
                self._link = link
                self._connecting = loop.create_future()
                self.protocol.connect(clean_start=clean_start)
                self._flush()
                connected = await self._connecting
        except BaseException:
            if self._link is None:
                self._closed.set()
            self.abort()
            await self._closed.wait()
            raise
        finally:
            self._connecting = None
        if self.is_connected:
            self._keep_alive.start(self.protocol.keep_alive)
        return connected

    def post(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = EMPTY,
    ) -> asyncio.Future[Published]:
        """Publish without waiting.

        Returns:
            Done when the message is settled: at once with QoS 0; with QoS 1 and 2 perhaps only
            after another ``connect``.

        Raises:
            MqttError: the server has said that it does not take such a message.
            OSError: QoS 0 without a connection (or the ``MqttError`` that ended it).
            UsageError: not a topic name.
        """
        if not qos:
            self.check_connected()
        handle = self.protocol.publish(topic, payload, qos, retain, properties)
        future: asyncio.Future[Published] = asyncio.get_running_loop().create_future()
        if handle:
            self._published[handle] = future
        else:
            future.set_result(Published(0, 0, EMPTY))
        self._flush_soon()
        return future

    async def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = EMPTY,
    ) -> Published:
        """Publish and wait until the message is settled.

        Raises:
            MqttError: the server refused the message, or ended the connection.
            OSError: the connection broke; with QoS 1 and 2 the next one sends it again.
        """
        published = await self.until_lost(self.post(topic, payload, qos, retain, properties))
        await self.drain()
        if published.reason >= UNSPECIFIED_ERROR:
            raise MqttError(published.reason, published.properties.reason_string or "")
        return published

    async def drain(self) -> None:
        """Wait until what was sent has left for the most part."""
        self._flush()
        while self._link is not None and not self._writable.is_set():
            await self._writable.wait()

    async def subscribe(
        self, filters: list[SubscribeFilter], properties: Properties = EMPTY
    ) -> Subscribed:
        """Subscribe and wait for SUBACK; its reasons say what was granted.

        Raises:
            MqttError, OSError: the connection ended first.
        """
        self.check_connected()
        answer = await self._request(self.protocol.subscribe(filters, properties))
        assert isinstance(answer, Subscribed)
        return answer

    async def unsubscribe(self, filters: list[str], properties: Properties = EMPTY) -> Unsubscribed:
        """Unsubscribe and wait for UNSUBACK.

        Raises:
            MqttError, OSError: the connection ended first.
        """
        self.check_connected()
        answer = await self._request(self.protocol.unsubscribe(filters, properties))
        assert isinstance(answer, Unsubscribed)
        return answer

    def ack(self, publish: Publish, reason: int = 0) -> None:
        """Acknowledge a message where the protocol leaves that to us."""
        if self.protocol.ack(publish, reason):
            self._flush_soon()

    def forget_unacknowledged(self) -> None:
        """Drop what waits to be taken and is not acknowledged: a resumed session sends it again.

        Only where acknowledgements are manual.
        """
        taken = [publish for publish in self._messages if publish.qos == 0]
        self._messages.clear()
        self._messages.extend(taken)

    async def next_batch(self) -> list[Publish]:
        """All messages that have arrived, at least one; empty after ``disconnect``.

        Raises:
            MqttError, OSError: the connection ended otherwise, and all messages were taken.
        """
        while not self._messages:
            if self._link is None:
                if self._error is not None:
                    raise self._error
                return []
            self._changed.clear()
            await self._changed.wait()
        batch = list(self._messages)
        self._messages.clear()
        if self._reading_paused and self._link is not None:
            self._reading_paused = False
            self._link.resume_reading()
        return batch

    async def messages(self) -> AsyncIterator[Publish]:
        """Each message as it arrives, until ``disconnect``.

        Raises:
            MqttError, OSError: the connection ended otherwise.
        """
        while batch := await self.next_batch():
            for publish in batch:
                yield publish

    async def disconnect(self, reason: int = 0, properties: Properties = EMPTY) -> None:
        """Say goodbye, flush, and wait until the connection is closed."""
        if self._link is not None:
            link = self._link
            self._leaving = True
            self._keep_alive.stop()
            self.protocol.disconnect(reason, properties)
            self._flush()
            link.close()
            await self._closed.wait()

    def abort(self) -> None:
        """Cut the connection without a word."""
        if self._link is not None:
            self._link.abort()

    async def wait_closed(self) -> None:
        """Wait until there is no connection."""
        await self._closed.wait()

    def check_connected(self) -> None:
        """Do nothing while the connection stands.

        Raises:
            MqttError, OSError: why it does not.
        """
        if not self.is_connected:
            raise self._error or ConnectionResetError("not connected")

    async def until_lost(self, future: asyncio.Future[T]) -> T:
        """The result of ``future``, or the error that ended the connection before it.

        Raises:
            MqttError, OSError: the connection ended first.
        """
        while not future.done():
            if self._link is None:
                raise self._error or ConnectionResetError("not connected")
            closed = asyncio.ensure_future(self._closed.wait())
            try:
                await asyncio.wait((future, closed), return_when=asyncio.FIRST_COMPLETED)
            finally:
                closed.cancel()
        return future.result()

    # The link calls these.

    def link_received(self, data: bytes) -> None:
        """Take bytes from the server."""
        events = self.protocol.receive(data)
        self._flush()
        for event in events:
            self._handle(event)
        if len(self._messages) >= self._messages_max and self._link is not None:
            self._reading_paused = True
            self._link.pause_reading()

    def link_lost(self, exc: BaseException | None) -> None:
        """The connection is gone: tell everybody who waits."""
        self.protocol.connection_lost()
        if self._error is None and not self._leaving:
            lost = exc if isinstance(exc, OSError) else ConnectionResetError("connection lost")
            self._error = lost
        self._link = None
        self._reading_paused = False
        self._keep_alive.stop()
        error = self._error or ConnectionResetError("disconnected")
        for future in (self._connecting, *self._requests.values()):
            if future is not None and not future.done():
                future.set_exception(error)
        self._requests.clear()
        self._changed.set()
        self._writable.set()
        self._closed.set()

    def link_writable(self, writable: bool) -> None:
        """The send buffer has passed a water mark."""
        if writable:
            self._writable.set()
        else:
            self._writable.clear()

    # Inside.

    def _handle(self, event: ClientEvent) -> None:
        if isinstance(event, Received):
            self._messages.append(event.publish)
            self._changed.set()
        elif isinstance(event, Published):
            future = self._published.pop(event.handle, None)
            if future is not None and not future.done():
                future.set_result(event)
        elif isinstance(event, Subscribed | Unsubscribed):
            request = self._requests.pop(event.packet_id, None)
            if request is not None and not request.done():
                request.set_result(event)
        elif isinstance(event, Connected):
            if self._connecting is not None and not self._connecting.done():
                self._connecting.set_result(event)
        elif isinstance(event, Ponged):
            self._keep_alive.answered()
        elif isinstance(event, Refused | Disconnected):
            self._end(MqttError(event.reason, _text(event.text, event.properties)))
        elif isinstance(event, Failed):
            self._end(event.error)
        elif isinstance(event, Reauthenticated):
            pass
        else:
            assert_never(event)

    def _end(self, error: MqttError) -> None:
        """The connection has no future: remember why, and close it."""
        if self._error is None:
            self._error = error
        self._keep_alive.stop()
        if self._connecting is not None and not self._connecting.done():
            self._connecting.set_exception(error)
        if self._link is not None:
            self._link.close()

    async def _request(self, packet_id: int) -> Subscribed | Unsubscribed:
        future: asyncio.Future[Subscribed | Unsubscribed]
        future = asyncio.get_running_loop().create_future()
        self._requests[packet_id] = future
        self._flush()
        return await future

    def _flush_soon(self) -> None:
        """Write once for all that is posted in this turn of the loop."""
        if not self._flush_pending:
            self._flush_pending = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_pending = False
        data = self.protocol.data_to_send()
        if data and self._link is not None:
            self._keep_alive.sent()
            self._link.write(data)

    def _ping(self) -> None:
        self.protocol.ping()
        self._flush()

    def _give_up(self) -> None:
        self._error = self._error or TimeoutError("the server does not answer PINGREQ")
        self.abort()


def _text(text: str, properties: Properties) -> str:
    """What a code means, and the server's own words if it sent some."""
    return f"{text}: {properties.reason_string}" if properties.reason_string else text
