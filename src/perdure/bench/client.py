"""The generator's MQTT client: bytes in, bytes out, no socket and no clock.

It is made for one thing, to cost less than the broker that it measures: frames of traffic are
taken in bulk by the subclasses (``publisher``, ``subscriber``); everything else goes through the
codec. Invariant: how the stream was cut into pieces changes nothing.
"""

from __future__ import annotations

from typing import Final

from perdure.bench.errors import BenchError
from perdure.bench.stamp import frame_bounds
from perdure.mqtt.decode import Decoder
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import (
    CONNACK,
    DISCONNECT,
    SUBACK,
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Properties,
    Suback,
    Subscribe,
    SubscribeFilter,
)
from perdure.mqtt.reason_codes import name

KEEP_ALIVE_S: Final = 65_535
"""Longer than any run: clients of a benchmark do not ping. Some brokers refuse 0."""
_PACKET_SIZE_MAX = 268_435_455
_SUBSCRIBE_PACKET_ID = 1


class Client:
    """One client and what it does once it is connected.

    Args:
        client_id: its identifier.
        version: 4 (3.1.1) or 5 (5.0).
        filters: (topic filter, QoS) to subscribe to when the broker has no session.
        clean: asks for a new session, which ends with the connection.
        expiry_s: Session Expiry Interval of a session that is kept (5.0).
        username, password: credentials.

    Attributes:
        out: bytes to be sent, to be taken by who owns the connection.
        is_ready: connected, and subscribed if it has filters.
        session_present: the broker had its session.
        receive_maximum: how many QoS 1 and 2 messages the broker takes at a time.
        is_wanted: it wants its connection: not closed by itself.
        connected_ns, subscribed_ns: when CONNACK and SUBACK came.
    """

    __slots__ = (
        "_credentials",
        "_rest",
        "clean",
        "client_id",
        "connected_ns",
        "expiry_s",
        "filters",
        "is_ready",
        "is_wanted",
        "out",
        "receive_maximum",
        "session_present",
        "subscribe_properties",
        "subscribed_ns",
        "version",
    )

    def __init__(
        self,
        client_id: str,
        *,
        version: int,
        filters: tuple[tuple[str, int], ...] = (),
        clean: bool = True,
        expiry_s: int = 3600,
        username: str | None = None,
        password: bytes | None = None,
    ) -> None:
        self.client_id = client_id
        self.version = version
        self.filters = filters
        self.clean = clean
        self.expiry_s = expiry_s
        self.subscribe_properties = Properties()
        self.out: list[bytes] = []
        self.is_ready = False
        self.is_wanted = False
        self.session_present = False
        self.receive_maximum = 65_535
        self.connected_ns = 0
        self.subscribed_ns = 0
        self._rest = b""
        self._credentials = (username, password)

    def open(self) -> None:
        """Begin on a new connection: CONNECT goes out."""
        self._rest = b""
        self.is_ready = False
        self.is_wanted = True
        properties = Properties()
        if self.version == V5 and not self.clean:
            properties.session_expiry_interval = self.expiry_s
        username, password = self._credentials
        packet = Connect(
            self.version,
            self.clean,
            KEEP_ALIVE_S,
            self.client_id,
            username,
            password,
            None,
            properties,
        )
        self.out = [encode(packet, self.version)]

    def close(self) -> None:
        """DISCONNECT goes out."""
        self.is_ready = self.is_wanted = False
        self.out.append(encode(Disconnect(), self.version))

    def received(self, data: bytes, now_ns: int) -> None:
        """Take what came.

        Raises:
            BenchError: the broker refused the client or its subscription.
        """
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        while at < end:
            if self.is_ready:
                at = self._bulk(data, at, end, now_ns)
                if at == end:
                    break
            body, stop = frame_bounds(data, at, end)
            if stop < 0:
                break
            self._frame(data, at, body, stop, now_ns)
            at = stop
        self._rest = data[at:] if at < end else b""

    def _bulk(self, data: bytes, at: int, end: int, now_ns: int) -> int:
        """Take all complete frames of traffic from ``at``; returns where it stopped."""
        return at

    def _frame(self, data: bytes, at: int, body: int, stop: int, now_ns: int) -> None:
        """Take one frame."""
        kind = data[at] >> 4
        if kind in (CONNACK, SUBACK, DISCONNECT):
            decoder = Decoder(
                server_side=False, packet_size_max=_PACKET_SIZE_MAX, version=self.version
            )
            for packet in decoder.feed(data[at:stop]):
                self._packet(packet, now_ns)
            if decoder.failure is not None:
                raise BenchError(f"the broker sent a bad packet: {decoder.failure}")

    def _packet(self, packet: Packet, now_ns: int) -> None:
        if isinstance(packet, Connack):
            if packet.reason:
                raise BenchError(
                    f"the broker refused {self.client_id}: {self._reason(packet.reason, CONNACK)}"
                )
            self.connected_ns = now_ns
            self.session_present = packet.session_present
            self.receive_maximum = packet.properties.receive_maximum or 65_535
            if self.filters and not self.session_present:
                self.subscribe()
            else:
                self._ready(now_ns)
        elif isinstance(packet, Suback):
            for reason in packet.reasons:
                if reason >= 0x80:
                    raise BenchError(
                        f"the broker refused the subscription of {self.client_id}: "
                        f"{self._reason(reason, SUBACK)}"
                    )
            self._ready(now_ns)
        elif isinstance(packet, Disconnect) and self.is_wanted:
            raise BenchError(
                f"the broker disconnected {self.client_id}: "
                f"{self._reason(packet.reason, DISCONNECT)}"
            )

    def subscribe(self) -> None:
        """SUBSCRIBE to ``filters`` goes out."""
        filters = [SubscribeFilter(topic_filter, qos) for topic_filter, qos in self.filters]
        packet = Subscribe(_SUBSCRIBE_PACKET_ID, filters, self.subscribe_properties)
        self.out.append(encode(packet, self.version))

    def _ready(self, now_ns: int) -> None:
        self.subscribed_ns = now_ns
        self.is_ready = True

    def _reason(self, code: int, kind: int) -> str:
        if self.version != V5:
            return f"return code {code}"
        return f"0x{code:02x} {name(code, kind)}"
