"""One client's connection: packets in, decisions, packets out.

PUBLISH and acknowledgements are handled inline, in order, with no object for each effect. The
packets that need more (CONNECT, SUBSCRIBE, UNSUBSCRIBE, AUTH) are *slow*: they run as coroutines
that finish at once unless they must wait, and until then the packets behind them are kept.

States::

    NEW --CONNECT--> OPENING --commit, CONNACK--> CONNECTED --DISCONNECT or error--> CLOSED
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, final

from perdure.broker.commit import LEVEL_FSYNC
from perdure.broker.exchange import Exchange
from perdure.broker.publishing import REFUSALS, UNSPECIFIED_ERROR
from perdure.broker.scheduler import Gate, Timer, run_eagerly
from perdure.broker.sender import Sender
from perdure.errors import MqttError, ProtocolViolation, StorageError
from perdure.mqtt import reason_codes
from perdure.mqtt.decode import Decoder
from perdure.mqtt.packets import (
    EMPTY,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    V5,
    V311,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingresp,
    Properties,
    Publish,
    Subscribe,
    Unsubscribe,
)

if TYPE_CHECKING:
    from perdure.broker.auth.authenticate import EnhancedMethod
    from perdure.broker.live_session import LiveSession
    from perdure.broker.quotas import TokenBucket
    from perdure.broker.services import Services
    from perdure.broker.stream import ByteStream, PeerInfo

NEW: Final = 0
OPENING: Final = 1
CONNECTED: Final = 2
CLOSED: Final = 3

UNSUPPORTED_PROTOCOL_VERSION: Final = 0x84
SERVER_UNAVAILABLE: Final = 0x88
KEEP_ALIVE_TIMEOUT: Final = 0x8D


@final
class Connection:
    """A client at the other end of a byte stream.

    Args:
        services: the parts of the broker.
        stream: the transport.
        peer: who is there.
        level: durability that acknowledgements on this listener wait for (``commit.LEVEL_*``).
    """

    __slots__ = (
        "_auth_gate",
        "_backlog",
        "_busy",
        "_decoder",
        "_keep_alive_timer",
        "_reading_paused",
        "_services",
        "_state",
        "_stream",
        "_subscribe_bucket",
        "auth_method",
        "auth_name",
        "counted_protocol",
        "exchange",
        "is_connected",
        "keep_alive_us",
        "peer",
        "problem_information",
        "received_us",
        "sender",
        "session",
    )

    def __init__(
        self, services: Services, stream: ByteStream, peer: PeerInfo, *, level: int = LEVEL_FSYNC
    ) -> None:
        config = services.mqtt_config
        self._services = services
        self._stream = stream
        self.peer: PeerInfo = peer
        self._decoder = Decoder(server_side=True, packet_size_max=config.packet_size_max)
        self._state: int = NEW
        self.is_connected: bool = False
        """CONNACK was sent and the connection has not been closed."""
        self._auth_gate: Gate | None = None
        self._busy: bool = False
        self._backlog: list[Packet] = []
        self._reading_paused: bool = False
        self._subscribe_bucket: TokenBucket | None = None
        self.sender = Sender(
            stream,
            services.turn,
            services.metrics,
            buffer_bytes=services.session_config.outbound_buffer_bytes,
        )
        self.exchange = Exchange(services, self, level=level)
        self.session: LiveSession | None = None
        self.problem_information: bool = True
        self.counted_protocol: str = ""
        """Label under which the connection was counted; empty = not counted."""
        self.auth_method: EnhancedMethod | None = None
        self.auth_name: str = ""
        self.keep_alive_us: int = 0
        self.received_us: int = services.clock.monotonic_us()
        self._keep_alive_timer: Timer | None = services.scheduler.call_later(
            config.connect_timeout_ms * 1000, self._connect_timed_out
        )

    # Transport side.

    @property
    def is_closed(self) -> bool:
        """Whether the connection has been closed, by either side."""
        return self._state == CLOSED

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer, in any split."""
        if self._state == CLOSED:
            return
        services = self._services
        services.turn.now_us = services.clock.now_us()
        self.received_us = services.clock.monotonic_us()
        services.metrics.bytes_received += len(data)
        packets = self._decoder.feed(data)
        if self._busy:
            self._backlog.extend(packets)
            if self._auth_gate is not None:
                self._auth_gate.open()
            return
        self._process(packets)
        if services.turn.is_overloaded() and not self._reading_paused:
            self._reading_paused = True
            self._stream.pause_reading()
            services.turn.pause(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The transport is gone."""
        if self._state != CLOSED:
            self._end("connection lost" if exc is None else type(exc).__name__, send_will=True)

    def pause_writing(self) -> None:
        """The send buffer is above its high-water mark."""
        self.sender.paused = True
        self.sender.congested = True

    def resume_writing(self) -> None:
        """The send buffer is below its low-water mark again."""
        self.sender.paused = False
        self.sender.congested = False
        if self.session is not None:
            self.session.pump()

    def close(self, reason_code: int) -> None:
        """Take leave of the peer with a reason code, then close."""
        self.disconnect(reason_code, "", send_will=True)

    def commits_caught_up(self) -> None:
        """Read on after an overload."""
        if self._reading_paused:
            self._reading_paused = False
            if self._state != CLOSED:
                self._stream.resume_reading()

    # Ending.

    def disconnect(self, reason_code: int, reason: str, *, send_will: bool) -> None:
        """Send DISCONNECT (5.0; CONNACK if that was not sent yet) and close."""
        if self._state == CLOSED:
            return
        if self._state == CONNECTED:
            if self.sender.version >= 5:
                properties = self._problem(reason)
                self.sender.packet(Disconnect(reason_code, properties))
        elif (
            self.sender.version
            and reason_code >= 0x80
            and reason_codes.may_carry(reason_code, Connack.kind)
        ):
            # Some codes are for DISCONNECT alone: one that is taken over before its CONNACK is
            # just closed.
            self._refuse(reason_code, reason)
        if reason_code in (0x81, 0x82):
            self._services.metrics.protocol_errors[reason_code] += 1
        self._end(f"0x{reason_code:02x} {reason}".rstrip(), send_will=send_will)

    def storage_lost(self, reason_code: int) -> None:
        """A commit that this client waits for has failed."""
        reason = REFUSALS.get(reason_code, REFUSALS[UNSPECIFIED_ERROR])
        if self._state != CONNECTED:
            # CONNACK has a word for it, which 3.1.1 has too.
            reason_code = SERVER_UNAVAILABLE
        self.disconnect(reason_code, reason, send_will=True)

    def fail(self, error: MqttError) -> None:
        """The peer broke the protocol or was refused."""
        self.disconnect(error.reason_code, error.message, send_will=True)

    def _refuse(self, reason_code: int, reason: str) -> None:
        """CONNACK with a reason code; 3.1.1 has return codes 1 to 5 only (3.2.2.3)."""
        self._services.metrics.connack_sent[reason_code] += 1
        if self.sender.version >= 5:
            self.sender.packet(Connack(False, reason_code, self._problem(reason)))
            return
        code = {
            0x84: 1,
            0x85: 2,
            0x88: 3,
            0x89: 3,
            0x97: 3,
            0x9F: 3,
            0x86: 4,
            0x8C: 4,
            0x87: 5,
            0x8A: 5,
        }.get(reason_code, 0)
        if code:
            self.sender.packet(Connack(False, code, EMPTY))

    def _problem(self, reason: str) -> Properties:
        """A reason string, if the client wants problem information [MQTT-3.1.2-29]."""
        if reason and self.problem_information:
            return Properties(reason_string=reason)
        return EMPTY

    def _end(self, why: str, *, send_will: bool) -> None:
        """Leave the session and close the stream after what was sent."""
        was_connected = self._state == CONNECTED
        self._state = CLOSED
        self.is_connected = False
        self._backlog.clear()
        if self._auth_gate is not None:
            self._auth_gate.open()
        if self._keep_alive_timer is not None:
            self._keep_alive_timer.cancel()
            self._keep_alive_timer = None
        services = self._services
        services.turn.now_us = services.clock.now_us()
        session = self.session
        if session is not None and session.is_open:
            services.sessions.detach(session, self, send_will=send_will)
        if self.counted_protocol:
            services.metrics.connection_closed(self.peer.listener, why.split(" ", 1)[0])
        if was_connected and session is not None:
            services.log.info(
                "connection.closed",
                client_id=session.client_id,
                address=self.peer.address,
                reason=why,
            )
        self.sender.flush()
        self.sender.closed = True
        self._stream.close()
        services.turn.schedule()

    # Timers.

    def start_keep_alive(self, keep_alive_s: int) -> None:
        """Expect a packet at least every one and a half keep alives [MQTT-3.1.2-22]."""
        if self._keep_alive_timer is not None:
            self._keep_alive_timer.cancel()
            self._keep_alive_timer = None
        self.keep_alive_us = keep_alive_s * 1_500_000
        if self.keep_alive_us:
            self._keep_alive_timer = self._services.scheduler.call_later(
                self.keep_alive_us, self._keep_alive_over
            )

    def _keep_alive_over(self) -> None:
        silent_us = self._services.clock.monotonic_us() - self.received_us
        left_us = self.keep_alive_us - silent_us
        if self._busy or self._reading_paused:
            left_us = max(left_us, self.keep_alive_us // 2)  # it is we who do not read
        if left_us > 0:
            self._keep_alive_timer = self._services.scheduler.call_later(
                left_us, self._keep_alive_over
            )
            return
        self.disconnect(KEEP_ALIVE_TIMEOUT, "keep alive timeout", send_will=True)

    def _connect_timed_out(self) -> None:
        self._keep_alive_timer = None
        if self._state == NEW or self._state == OPENING:
            self._end("connect timeout", send_will=False)

    # Slow packets.

    def hold(self) -> None:
        """Keep the packets that follow until ``go_on``."""
        self._busy = True
        self._stream.pause_reading()

    def go_on(self) -> None:
        """Process the packets that were kept."""
        self._busy = False
        if self._state == CLOSED:
            return
        if not self._reading_paused:
            self._stream.resume_reading()
        backlog = self._backlog
        self._backlog = []
        self._process(backlog)

    def opened(self, session: LiveSession, connack: Connack) -> None:
        """The session is durable: CONNACK, then what waits behind the CONNECT."""
        if self._state != OPENING:
            return
        self._state = CONNECTED
        self.is_connected = True
        metrics = self._services.metrics
        metrics.connack_sent[0] += 1
        if session.resumed:
            # Nothing is read between the CONNECT, or the last AUTH, and this.
            elapsed_us = self._services.clock.monotonic_us() - self.received_us
            metrics.session_resume_seconds.observe(elapsed_us)
        self.sender.packet(connack)
        self._services.sessions.opened(session, self)
        self.go_on()

    def count(self, protocol: int) -> None:
        """Count the connection, once its protocol version is known."""
        self.counted_protocol = "3.1.1" if protocol < 5 else "5.0"
        self._services.metrics.connection_opened(self.peer.listener, self.counted_protocol)

    async def next_auth(self) -> Auth:
        """Wait for the client's AUTH during the CONNECT; anything else breaks the protocol."""
        self.sender.flush()
        self._stream.resume_reading()
        while not self._backlog:
            if self._state == CLOSED:
                raise MqttError(0x82, "closed")
            if self._decoder.failure is not None:
                raise self._decoder.failure
            self._auth_gate = self._services.scheduler.gate()
            await self._auth_gate
        packet = self._backlog.pop(0)
        self._services.metrics.packets_received[packet.kind] += 1
        if isinstance(packet, Disconnect):
            self._end("gave up authentication", send_will=False)
            raise MqttError(0x82, "closed")
        if not isinstance(packet, Auth):
            # [MQTT-3.1.2-30] until CONNACK only AUTH and DISCONNECT may come.
            raise ProtocolViolation("AUTH expected")
        self._stream.pause_reading()
        return packet

    def limit_subscribe_rate(self, bucket: TokenBucket | None) -> None:
        """Rate of SUBSCRIBE packets that this client is held to."""
        self._subscribe_bucket = bucket

    def _slow(self, packet: Packet) -> bool:
        """Handle a packet off the hot path; False if those behind it must wait."""
        kind = packet.kind
        if kind == PINGREQ:
            self.sender.packet(Pingresp())
            return True
        if isinstance(packet, Disconnect):
            self._disconnected(packet)
            return True
        services = self._services
        work: Coroutine[Any, Any, None]
        if isinstance(packet, Connect):
            self._state = OPENING
            self.hold()
            run_eagerly(
                services.scheduler,
                self._guard(services.connecting.connect(self, packet)),
                name="connect",
            )
            return not self._busy
        if isinstance(packet, Subscribe):
            wait_us = 0
            if self._subscribe_bucket is not None:
                wait_us = self._subscribe_bucket.take(1, self.received_us)
            if wait_us:
                self.throttle(wait_us)
            work = services.subscribing.subscribe(self, packet)
        elif isinstance(packet, Unsubscribe):
            work = services.subscribing.unsubscribe(self, packet)
        elif isinstance(packet, Auth):
            work = services.enhanced.auth(self, packet)
        else:
            raise ProtocolViolation("a server does not take this packet")
        finished = run_eagerly(services.scheduler, self._guard(work), name="packet")
        if finished:
            return True
        self.hold()
        return False

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a slow packet's work; a fault of the peer ends the connection, not the task."""
        try:
            await work
        except MqttError as error:
            self.fail(error)
        except StorageError as error:
            self._services.read_failed(error, address=self.peer.address)
            self.storage_lost(UNSPECIFIED_ERROR)
        if self._busy and self._state == CONNECTED:
            self.go_on()

    def _process(self, packets: list[Packet]) -> None:
        """Handle packets in order, until one of them must be waited for."""
        received = self._services.metrics.packets_received
        publish = self.exchange.publish
        acknowledged = self.exchange.acknowledged
        at = 0
        try:
            for packet in packets:
                at += 1
                kind = packet.kind
                received[kind] += 1
                if kind == PUBLISH:
                    assert isinstance(packet, Publish)
                    publish(packet)
                elif PUBACK <= kind <= PUBCOMP:
                    assert isinstance(packet, Ack)
                    acknowledged(packet)
                elif not self._slow(packet):
                    self._backlog = packets[at:] + self._backlog
                    return
                if self._state == CLOSED:
                    return
        except MqttError as error:
            self.fail(error)
            return
        failure = self._decoder.failure
        if failure is not None and not self._busy:
            if self._state == NEW:
                self.sender.version = self._version_of_refusal(failure.reason_code)
            self.fail(failure)

    def _version_of_refusal(self, reason_code: int) -> int:
        """The version in which a bad CONNECT is answered; 0 = closed without an answer."""
        decoder = self._decoder
        if decoder.version or reason_code != UNSUPPORTED_PROTOCOL_VERSION:
            return decoder.version
        if not decoder.protocol_name_ok:
            # 5.0 lets us answer 0x84; 3.1.1 has no code for another protocol [MQTT-3.1.2-1].
            return V5 if decoder.protocol_level == V5 else 0
        # [MQTT-3.1.2-2] of 3.1.1 demands return code 1, which clients of every level can read.
        return V311

    def _disconnected(self, packet: Disconnect) -> None:
        expiry_s = packet.properties.session_expiry_interval
        session = self.session
        assert session is not None
        if expiry_s is not None:
            if session.record.expiry_s == 0 and expiry_s:
                raise ProtocolViolation("session expiry 0 cannot be raised at DISCONNECT")
            self._services.sessions.change_expiry(session, expiry_s)
        self._end("disconnect", send_will=packet.reason != 0)

    # Rates.

    def throttle(self, wait_us: int) -> None:
        """Read nothing for a while; what was read already is processed."""
        if not self._reading_paused:
            self._reading_paused = True
            self._stream.pause_reading()
            self._services.scheduler.call_later(wait_us, self.commits_caught_up)
