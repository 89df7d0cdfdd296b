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
from perdure.broker.farewell import refuse, send_disconnect, version_of_refusal
from perdure.broker.intake import Intake
from perdure.broker.keep_alive import KeepAlive
from perdure.broker.publishing import REFUSALS, UNSPECIFIED_ERROR
from perdure.broker.scheduler import run_eagerly
from perdure.broker.sender import Sender
from perdure.errors import MqttError, ProtocolViolation, StorageError
from perdure.mqtt.decode import Decoder
from perdure.mqtt.packets import (
    PINGREQ,
    PUBACK,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingresp,
    Publish,
    Subscribe,
    Unsubscribe,
)
from perdure.mqtt.reason_codes import MALFORMED_PACKET, PROTOCOL_ERROR, SERVER_UNAVAILABLE

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
        "_decoder",
        "_services",
        "_state",
        "_stream",
        "_subscribe_bucket",
        "auth_method",
        "auth_name",
        "counted_protocol",
        "exchange",
        "intake",
        "is_connected",
        "keep_alive",
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
        self.intake = Intake(services.scheduler, stream, self._decoder)
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
        self.received_us: int = services.clock.monotonic_us()
        self.keep_alive = KeepAlive(services, self)

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
        received_us = services.clock.monotonic_us()
        self.received_us = received_us
        turn = services.turn
        turn.arrived(received_us)
        services.metrics.bytes_received += len(data)
        packets = self._decoder.feed(data)
        intake = self.intake
        if intake.is_held:
            intake.keep(packets)
            return
        self._process(packets)
        if turn.is_overloaded() and not intake.is_paused:
            intake.pause()
            turn.pause(intake)

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

    # Ending.

    def disconnect(self, reason_code: int, reason: str, *, send_will: bool) -> None:
        """Send DISCONNECT (5.0; CONNACK if that was not sent yet) and close."""
        if self._state == CLOSED:
            return
        told = reason if self.problem_information else ""  # [MQTT-3.1.2-29]
        metrics = self._services.metrics
        if self._state == CONNECTED:
            send_disconnect(self.sender, reason_code, told)
        else:
            refuse(self.sender, metrics, reason_code, told)
        if reason_code in (MALFORMED_PACKET, PROTOCOL_ERROR):
            metrics.protocol_errors[reason_code] += 1
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

    def give_up(self, why: str) -> None:
        """Close without a word, if CONNACK was not sent yet."""
        if self._state == NEW or self._state == OPENING:
            self._end(why, send_will=False)

    def _end(self, why: str, *, send_will: bool) -> None:
        """Leave the session and close the stream after what was sent."""
        was_connected = self._state == CONNECTED
        self._state = CLOSED
        self.is_connected = False
        self.intake.close()
        self.keep_alive.stop()
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

    # Slow packets.

    def _go_on(self) -> None:
        """Process the packets that were kept."""
        packets = self.intake.release()
        if self._state != CLOSED:
            self._process(packets)

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
        self._go_on()

    def count(self, protocol: int) -> None:
        """Count the connection, once its protocol version is known."""
        self.counted_protocol = "3.1.1" if protocol < 5 else "5.0"
        self._services.metrics.connection_opened(self.peer.listener, self.counted_protocol)

    async def next_auth(self) -> Auth:
        """Wait for the client's AUTH during the CONNECT; anything else breaks the protocol."""
        self.sender.flush()
        packet = await self.intake.next_packet()
        self._services.metrics.control_packets_received[packet.kind] += 1
        if isinstance(packet, Disconnect):
            self.give_up("gave up authentication")
            raise MqttError(PROTOCOL_ERROR, "closed")
        if not isinstance(packet, Auth):
            # [MQTT-3.1.2-30] until CONNACK only AUTH and DISCONNECT may come.
            raise ProtocolViolation("AUTH expected")
        self.intake.hold()
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
            self.intake.hold()
            run_eagerly(
                services.scheduler,
                self._guard(services.connecting.connect(self, packet)),
                name="connect",
            )
            return not self.intake.is_held
        if isinstance(packet, Subscribe):
            wait_us = 0
            if self._subscribe_bucket is not None:
                wait_us = self._subscribe_bucket.take(1, self.received_us)
            if wait_us:
                self.intake.throttle(wait_us)
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
        self.intake.hold()
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
        if self.intake.is_held and self._state == CONNECTED:
            self._go_on()

    def _process(self, packets: list[Packet]) -> None:
        """Handle packets in order, until one of them must be waited for."""
        metrics = self._services.metrics
        received = metrics.control_packets_received
        exchange = self.exchange
        at = 0
        publishes = 0
        pubacks = 0
        try:
            for packet in packets:
                at += 1
                if isinstance(packet, Publish):
                    publishes += 1
                    exchange.publish(packet)
                elif isinstance(packet, Ack):
                    if packet.kind == PUBACK:
                        pubacks += 1
                    else:
                        received[packet.kind] += 1
                    exchange.acknowledged(packet)
                else:
                    received[packet.kind] += 1
                    exchange.end_run()
                    if not self._slow(packet):
                        self.intake.put_back(packets[at:])
                        return
                if self._state == CLOSED:
                    return
        except MqttError as error:
            exchange.end_run()
            self.fail(error)
            return
        finally:
            exchange.end_run()
            metrics.publishes_received += publishes
            metrics.pubacks_received += pubacks
        failure = self._decoder.failure
        if failure is not None and not self.intake.is_held:
            if self._state == NEW:
                self.sender.version = version_of_refusal(self._decoder, failure.reason_code)
            self.fail(failure)

    def _disconnected(self, packet: Disconnect) -> None:
        expiry_s = packet.properties.session_expiry_interval
        session = self.session
        assert session is not None
        if expiry_s is not None:
            if session.record.expiry_s == 0 and expiry_s:
                raise ProtocolViolation("session expiry 0 cannot be raised at DISCONNECT")
            self._services.sessions.change_expiry(session, expiry_s)
        self._end("disconnect", send_will=packet.reason != 0)
