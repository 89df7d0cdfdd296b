"""One client's connection: packets in, decisions, packets out.

PUBLISH and acknowledgements are handled inline, in order, with no object for each effect. The
packets that need more (CONNECT, SUBSCRIBE, UNSUBSCRIBE, AUTH) are *slow*: they run as coroutines
that finish at once unless they must wait, and until then the packets behind them are kept.

States::

    NEW --CONNECT--> OPENING --commit, CONNACK--> CONNECTED --DISCONNECT or error--> CLOSED

A client has a slice of each turn (``turn_budget``): what it sent beyond it waits, and nothing more
of it is read. Invariant: whatever a client sends costs at most its own connection
(``unexpected_errors``).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, final

from perdure.broker.commit.waiters import LEVEL_FSYNC
from perdure.broker.connection.client import (
    CLOSED,
    CONNECTED,
    NEW,
    OPENING,
    ClientConnection,
)
from perdure.broker.connection.disconnect_reply import refuse, send_disconnect, version_of_refusal
from perdure.broker.connection.inbound_frames import LARGE_FRAME_BYTES
from perdure.broker.connection.inbound_gate import InboundGate
from perdure.broker.connection.keep_alive import KeepAlive
from perdure.broker.connection.qos_flow import QosFlow
from perdure.broker.connection.refusal_log import foreign
from perdure.broker.delivery.sender import Sender
from perdure.broker.publish.path import REFUSALS
from perdure.broker.runtime.scheduler import run_eagerly
from perdure.broker.runtime.turn_budget import BULK_BYTES, SLICE, FanOut
from perdure.errors import LoginRefused, MqttError, ProtocolViolation, StorageError
from perdure.limits import CONNECT_HEAD_BYTES
from perdure.mqtt.decode import Decoder
from perdure.mqtt.packets import (
    KIND_NAMES,
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
from perdure.mqtt.reason_codes import (
    IMPLEMENTATION_SPECIFIC_ERROR,
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    QUOTA_EXCEEDED,
    SERVER_SHUTTING_DOWN,
    SERVER_UNAVAILABLE,
    UNSPECIFIED_ERROR,
)

if TYPE_CHECKING:
    from perdure.broker.connection.parts import ConnectionParts
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.runtime.stream import ByteStream, PeerInfo
    from perdure.broker.runtime.token_bucket import TokenBucket


@final
class Connection(ClientConnection):
    """A client at the other end of a byte stream.

    Args:
        parts: what every part stands on.
        stream: the transport.
        peer: who is there.
        level: durability that acknowledgements on this listener wait for (``waiters.LEVEL_*``).
    """

    __slots__ = (
        "_decoder",
        "_fan",
        "_has_large_frame",
        "_parts",
        "_stream",
        "_subscribe_bucket",
        "counted_protocol",
        "flow",
        "keep_alive",
    )

    def __init__(
        self,
        parts: ConnectionParts,
        stream: ByteStream,
        peer: PeerInfo,
        *,
        level: int = LEVEL_FSYNC,
    ) -> None:
        config = parts.mqtt_config
        self._parts = parts
        self._stream = stream
        self._decoder = Decoder(
            server_side=True,
            # Nobody knows yet who it is.
            packet_size_max=min(
                config.connect_size_max + CONNECT_HEAD_BYTES, config.packet_size_max
            ),
            filters_max=config.subscribe_filters_max,
            properties_max=config.properties_max,
        )
        self._fan: FanOut | None = None
        """None = no message of this client was seen to go to many."""
        self._has_large_frame: bool = False
        """It has room for a large packet, or waits for it."""
        self._subscribe_bucket: TokenBucket | None = None
        super().__init__(
            peer,
            InboundGate(parts.scheduler, stream, self._decoder, self),
            Sender(
                stream,
                parts.pipeline,
                parts.metrics,
                buffer_bytes=parts.session_config.outbound_buffer_bytes,
                owner=self,
            ),
            received_us=parts.clock.monotonic_us(),
        )
        self.flow = QosFlow(parts, self, level=level)
        self.counted_protocol: str = ""
        """Label under which the connection was counted; empty = not counted."""
        self.keep_alive = KeepAlive(parts, self)

    # Transport side.

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer, in any split."""
        if self._state == CLOSED:
            return
        parts = self._parts
        received_us = parts.clock.monotonic_us()
        self.received_us = received_us
        pipeline = parts.pipeline
        pipeline.arrived(received_us)
        parts.metrics.bytes_received += len(data)
        if self.inbound_gate.waits:
            self._decoder.feed(data, 0)
            self.inbound_gate.arrived()
            return
        fan = self._fan
        if (len(data) > BULK_BYTES and (parts.turn_budget.is_busy or self._state == NEW)) or (
            fan is not None and fan.waits(parts.turn_budget, pipeline.number)
        ):
            self._decoder.feed(data, 0)
            self.go_on()
            return
        self._slice(data)

    def work_on(self) -> bool:
        """Process another slice of what was received; whether there is more to do now."""
        if not self.inbound_gate.catch_up():
            return False
        pipeline = self._parts.pipeline
        pipeline.now_us = self._parts.clock.now_us()
        return self._slice(b"")

    def go_on(self) -> None:
        """Nothing keeps us from processing what was received, or from reading more of it."""
        if self._state == CLOSED:
            return
        if not self._decoder.has_more:
            self.inbound_gate.read_on()
        elif self.inbound_gate.fall_behind():
            self._parts.turn_budget.add(self)

    def _slice(self, data: bytes) -> bool:
        """Process what the budget of a slice allows.

        Returns:
            Whether the caller, who gives out slices, should give it another one.
        """
        inbound_gate = self.inbound_gate
        decoder = self._decoder
        is_extra = not data
        pipeline = self._parts.pipeline
        admission = pipeline.admission
        taken = admission.taken
        fan = self._fan
        units = SLICE if fan is None else fan.units()
        try:
            packets = decoder.feed(data, units)
            if self._state == NEW and decoder.failure is not None:
                self.foreign = foreign(data)
            self._process(packets)
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self.broke(error, "packet")
            return False
        if self._state == CLOSED:
            return False
        dispatcher = pipeline.dispatcher
        if fan is not None or (dispatcher is not None and dispatcher.caused):
            self._learn_fan(admission.taken - taken)
        if not inbound_gate.is_paused:
            if pipeline.is_overloaded():
                inbound_gate.pause()
                pipeline.pause(inbound_gate)
            elif admission.taken != taken and admission.published(inbound_gate):
                # Only who has published: acknowledgements are what the sessions behind wait for.
                inbound_gate.pause()
        size = decoder.incomplete_bytes
        if size > LARGE_FRAME_BYTES or self._has_large_frame:
            self._admit_frame(size)
        if decoder.has_more:
            if inbound_gate.waits or not inbound_gate.fall_behind():
                return False
            if is_extra:
                return True
            self._parts.turn_budget.add(self)
        elif is_extra:
            inbound_gate.read_on()
        return False

    def _learn_fan(self, published: int) -> None:
        """Have it counted what the messages of the slices before have caused.

        Args:
            published: messages in this slice, which have caused nothing yet.
        """
        parts = self._parts
        dispatcher = parts.pipeline.dispatcher
        session = self.session
        if dispatcher is None or session is None or not published:
            return
        if self._fan is None:
            self._fan = FanOut()
        caused = dispatcher.caused.pop(session.client_id, 0)
        self._fan.learn(caused, published, parts.turn_budget, parts.pipeline.number)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The transport is gone."""
        if self._state != CLOSED:
            self._end("connection lost" if exc is None else type(exc).__name__, send_will=True)

    def pause_writing(self) -> None:
        """The send buffer is above its high-water mark: who does not read is not read from."""
        self.sender.paused = True
        self.sender.congested = True
        self.inbound_gate.block()

    def resume_writing(self) -> None:
        """The send buffer is below its low-water mark again."""
        self.sender.paused = False
        self.sender.congested = False
        try:
            if self.session is not None:
                self.session.pump()
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self.broke(error, "delivery")
        self.inbound_gate.unblock()

    def write_buffer_size(self) -> int:
        """Bytes that the client has not taken yet."""
        return self._stream.write_buffer_size()

    # Large packets.

    @property
    def kept_bytes(self) -> int:
        """How much of an incomplete packet has come."""
        return self._decoder.kept_bytes

    def has_room(self) -> None:
        """The large packet that has begun may come now."""
        self.inbound_gate.has_room()

    def too_slow(self) -> None:
        """Others wait for the room that its large packet takes."""
        self.disconnect(QUOTA_EXCEEDED, "the packet takes too long", send_will=True)

    def _admit_frame(self, size: int) -> None:
        """Take room for a large packet, once, and give it back when it is complete."""
        frames = self._parts.inbound_frames
        if size <= LARGE_FRAME_BYTES:
            self._has_large_frame = False
            frames.give_back(self)
        elif not self._has_large_frame:
            self._has_large_frame = True
            if not frames.take(self, size):
                self.inbound_gate.run_short()

    def close(self, reason_code: int) -> None:
        """Take leave of the peer with a reason code, then close."""
        self.disconnect(reason_code, "", send_will=True)

    # Ending.

    def disconnect(
        self, reason_code: int, reason: str, *, send_will: bool, is_logged: bool = False
    ) -> None:
        """Send DISCONNECT (5.0; CONNACK if that was not sent yet) and close.

        Args:
            reason_code: why.
            reason: for people.
            send_will: the will is due.
            is_logged: the log has a line of it already.
        """
        if self._state == CLOSED:
            return
        reason_string = reason if self.problem_information else ""  # [MQTT-3.1.2-29]
        metrics = self._parts.metrics
        if self._state == CONNECTED:
            send_disconnect(self.sender, reason_code, reason_string)
        else:
            refuse(self.sender, metrics, reason_code, reason_string)
            if reason_code != SERVER_SHUTTING_DOWN and not is_logged:
                self._parts.refusal_log.connect(self, reason_code, reason)
        if reason_code in (MALFORMED_PACKET, PROTOCOL_ERROR):
            metrics.protocol_errors[reason_code] += 1
        why = f"0x{reason_code:02x} {reason}".rstrip()
        self._end(why, send_will=send_will, is_logged=is_logged)

    def storage_lost(self, reason_code: int) -> None:
        """A commit that this client waits for has failed."""
        reason = REFUSALS.get(reason_code, REFUSALS[UNSPECIFIED_ERROR])
        if self._state != CONNECTED:
            # CONNACK has a word for it, which 3.1.1 has too.
            reason_code = SERVER_UNAVAILABLE
        self.disconnect(reason_code, reason, send_will=True)

    def fail(self, error: MqttError) -> None:
        """The peer broke the protocol or was refused."""
        is_client = self._state == CONNECTED
        if is_client:
            self._parts.refusal_log.dropped(self, error.reason_code, error.message)
        self.disconnect(error.reason_code, error.message, send_will=True, is_logged=is_client)

    def _refuse_later(self, error: LoginRefused) -> None:
        """Log a failed login now and answer it after a while, for which nothing of it is kept."""
        if self._state != OPENING:
            return
        self._parts.refusal_log.connect(self, error.reason_code, error.message)
        self.opening = self.about = None
        self.inbound_gate.close()
        self.keep_alive.refuse_later(error.delay_us, error.reason_code, error.message)

    def give_up(self, why: str) -> None:
        """Close without a word, if CONNACK was not sent yet."""
        if self._state == NEW or self._state == OPENING:
            self._parts.refusal_log.connect(self, 0, why)
            self._end(why, send_will=False)

    def broke(self, error: Exception, where: str, packet: Packet | None = None) -> None:
        """Something of this connection failed as nobody expected: it ends, the others go on.

        Args:
            error: what was raised.
            where: kind of step.
            packet: what was worked on.
        """
        parts = self._parts
        if isinstance(error, StorageError):
            parts.read_failed(error, address=self.peer.address)
            self._try_to_end(UNSPECIFIED_ERROR, REFUSALS[UNSPECIFIED_ERROR])
            return
        session = self.session
        parts.unexpected_errors.report(
            error,
            where,
            client_id=session.client_id if session is not None else "",
            username=session.identity.username if session is not None else "",
            address=self.peer.address,
            listener=self.peer.listener,
            packet=KIND_NAMES[packet.kind] if packet is not None else "",
        )
        self._try_to_end(IMPLEMENTATION_SPECIFIC_ERROR, "internal error")

    def _try_to_end(self, reason_code: int, reason: str) -> None:
        """End a connection whose state cannot be trusted; the transport goes in any case."""
        try:
            self.disconnect(reason_code, reason, send_will=True)
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self._parts.unexpected_errors.report(error, "close", address=self.peer.address)
            self.abort()

    def abort(self) -> None:
        """Cut the connection without a word; whatever it holds may stay as it is."""
        self._state = CLOSED
        self.is_connected = False
        self.inbound_gate.close()
        self._stream.abort()

    def _end(self, why: str, *, send_will: bool, is_logged: bool = False) -> None:
        """Leave the session and close the stream after what was sent."""
        was_connected = self._state == CONNECTED
        self._state = CLOSED
        self.is_connected = False
        self.inbound_gate.close()
        self.keep_alive.stop()
        parts = self._parts
        if self._has_large_frame:
            parts.inbound_frames.give_back(self)
        parts.pipeline.now_us = parts.clock.now_us()
        session = self.session
        if session is not None and session.is_open:
            parts.sessions.detach(session, send_will=send_will)
        if self.counted_protocol:
            parts.metrics.connection_closed(self.peer.listener, why.split(" ", 1)[0])
        self.opening = self.about = None
        if was_connected and session is not None and not is_logged:
            parts.log.info(
                "connection.closed",
                client_id=session.client_id,
                username=session.identity.username,
                address=self.peer.address,
                listener=self.peer.listener,
                reason=why,
            )
        self.sender.flush()
        self.sender.closed = True
        self._stream.close()
        parts.pipeline.schedule()

    # Slow packets.

    def _go_on(self) -> None:
        """Process the packets that were kept."""
        packets = self.inbound_gate.release()
        if self._state == CLOSED:
            return
        self._process(packets)
        if not self.inbound_gate.waits:
            self.go_on()

    def opened(self, session: LiveSession, connack: Connack) -> None:
        """The session is durable: CONNACK, then what waits behind the CONNECT."""
        if self._state != OPENING:
            return
        self._state = CONNECTED
        self.is_connected = True
        self.opening = self.about = None
        self._decoder.packet_size_max = self._parts.mqtt_config.packet_size_max
        metrics = self._parts.metrics
        metrics.connack_sent[0] += 1
        if session.resumed:
            # Nothing is read between the CONNECT, or the last AUTH, and this.
            elapsed_us = self._parts.clock.monotonic_us() - self.received_us
            metrics.session_resume_seconds.observe(elapsed_us)
        self.sender.packet(connack)
        self._parts.sessions.opened(session)
        self._go_on()

    def count(self, protocol: int) -> None:
        """Count the connection, once its protocol version is known."""
        self.counted_protocol = "3.1.1" if protocol < 5 else "5.0"
        self._parts.metrics.connection_opened(self.peer.listener, self.counted_protocol)

    async def next_auth(self) -> Auth:
        """Wait for the client's AUTH during the CONNECT; anything else breaks the protocol."""
        self.sender.flush()
        packet = await self.inbound_gate.next_packet()
        self._parts.metrics.control_packets_received[packet.kind] += 1
        if isinstance(packet, Disconnect):
            self.give_up("gave up authentication")
            raise MqttError(PROTOCOL_ERROR, "closed")
        if not isinstance(packet, Auth):
            # [MQTT-3.1.2-30] until CONNACK only AUTH and DISCONNECT may come.
            raise ProtocolViolation("AUTH expected")
        self.inbound_gate.hold()
        return packet

    def accept(
        self,
        *,
        keep_alive_s: int,
        topic_aliases: int,
        publish: TokenBucket | None,
        publish_bytes: TokenBucket | None,
        subscribe: TokenBucket | None,
    ) -> None:
        """Hold the client to what CONNACK tells it; see ``ClientConnection``."""
        if topic_aliases >= 0:
            self.flow.accept_aliases(topic_aliases)
        self.keep_alive.start(keep_alive_s)
        self.flow.limit_rates(publish, publish_bytes)
        self._subscribe_bucket = subscribe

    def _slow(self, packet: Packet) -> bool:
        """Handle a packet off the hot path; False if those behind it must wait."""
        kind = packet.kind
        if kind == PINGREQ:
            self.sender.packet(Pingresp())
            return True
        if isinstance(packet, Disconnect):
            self._disconnected(packet)
            return True
        parts = self._parts
        work: Coroutine[Any, Any, None]
        if isinstance(packet, Connect):
            self._state = OPENING
            self.inbound_gate.hold()
            is_answered = run_eagerly(
                parts.scheduler,
                self._guard(parts.connect_handler.connect(self, packet), packet),
                name="connect",
            )
            if not is_answered and self.is_connack_due:
                self.keep_alive.answer_is_owed()
            return not self.inbound_gate.is_held
        if isinstance(packet, Subscribe):
            self._take_rate()
            work = parts.subscribe_handler.subscribe(self, packet)
        elif isinstance(packet, Unsubscribe):
            self._take_rate()
            work = parts.subscribe_handler.unsubscribe(self, packet)
        elif isinstance(packet, Auth):
            work = parts.enhanced_auth.auth(self, packet)
        else:
            raise ProtocolViolation("a server does not take this packet")
        finished = run_eagerly(parts.scheduler, self._guard(work, packet), name="packet")
        if finished:
            return True
        self.inbound_gate.hold()
        return False

    def _take_rate(self) -> None:
        """A SUBSCRIBE or UNSUBSCRIBE came: read no more for a while if there were too many."""
        if self._subscribe_bucket is not None:
            wait_us = self._subscribe_bucket.take(1, self.received_us)
            if wait_us:
                self.inbound_gate.throttle(wait_us)

    async def _guard(self, work: Coroutine[Any, Any, None], packet: Packet) -> None:
        """Run a slow packet's work; a fault of the peer ends the connection, not the task."""
        try:
            await work
        except LoginRefused as error:
            if error.delay_us:
                self._refuse_later(error)
            else:
                self.fail(error)
        except MqttError as error:
            self.fail(error)
        except StorageError as error:
            self._parts.read_failed(error, address=self.peer.address)
            self.storage_lost(UNSPECIFIED_ERROR)
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self.broke(error, "packet", packet)
        try:
            if self.inbound_gate.is_held and self._state == CONNECTED:
                self._go_on()
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self.broke(error, "packet")

    def _process(self, packets: list[Packet]) -> None:
        """Handle packets in order, until one of them must be waited for."""
        metrics = self._parts.metrics
        received = metrics.control_packets_received
        flow = self.flow
        at = 0
        publishes = 0
        pubacks = 0
        try:
            for packet in packets:
                at += 1
                if isinstance(packet, Publish):
                    publishes += 1
                    flow.publish(packet)
                elif isinstance(packet, Ack):
                    if packet.kind == PUBACK:
                        pubacks += 1
                    else:
                        received[packet.kind] += 1
                    flow.acknowledged(packet)
                else:
                    received[packet.kind] += 1
                    flow.end_run()
                    if not self._slow(packet):
                        self.inbound_gate.put_back(packets[at:])
                        return
                if self._state == CLOSED:
                    return
        except MqttError as error:
            flow.end_run()
            self.fail(error)
            return
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            flow.end_run()
            self.broke(error, "packet", packets[at - 1])
            return
        finally:
            flow.end_run()
            metrics.publishes_received += publishes
            self._parts.pipeline.admission.taken += publishes
            metrics.pubacks_received += pubacks
        failure = self._decoder.failure
        if failure is not None and not self.inbound_gate.is_held:
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
            self._parts.sessions.change_expiry(session, expiry_s)
        self._end("disconnect", send_will=packet.reason != 0)
