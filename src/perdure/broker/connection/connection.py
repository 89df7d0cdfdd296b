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

from typing import TYPE_CHECKING, final

from perdure.broker.commit.waiters import LEVEL_FSYNC
from perdure.broker.connection.client import (
    CLOSED,
    CONNECTED,
    NEW,
    OPENING,
)
from perdure.broker.connection.disconnect_reply import version_of_refusal
from perdure.broker.connection.ending import EndingConnection
from perdure.broker.connection.heavy_turns import Waiting
from perdure.broker.connection.inbound_frames import LARGE_FRAME_BYTES
from perdure.broker.connection.inbound_gate import InboundGate
from perdure.broker.connection.qos_flow import QosFlow
from perdure.broker.connection.refusal_log import foreign
from perdure.broker.delivery.sender import Sender
from perdure.broker.runtime.stream import NoStream, PeerInfo
from perdure.broker.runtime.turn_budget import BULK_BYTES, FEW, SLICE, Beginning, FanOut
from perdure.errors import MqttError
from perdure.limits import CONNECT_HEAD_BYTES
from perdure.mqtt.decode import Decoder
from perdure.mqtt.packets import (
    PUBACK,
    Ack,
    Connack,
    Packet,
    Publish,
)
from perdure.mqtt.puback_run import PubackRun
from perdure.mqtt.reason_codes import (
    QUOTA_EXCEEDED,
)

if TYPE_CHECKING:
    from perdure.broker.connection.parts import ConnectionParts
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.runtime.stream import ByteStream
    from perdure.broker.runtime.token_bucket import TokenBucket


@final
class Connection(EndingConnection):
    """A client at the other end of a byte stream.

    Args:
        parts: what every part stands on.
        stream: the transport.
        peer: who is there.
        level: durability that acknowledgements on this listener wait for (``waiters.LEVEL_*``).
    """

    __slots__ = (
        "_beginning",
        "_decoder",
        "_fan",
        "_parts",
        "_publishes",
        "_turn",
        "flow",
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
        self._decoder = Decoder(
            server_side=True,
            # Nobody knows yet who it is.
            packet_size_max=min(
                config.connect_size_max + CONNECT_HEAD_BYTES, config.packet_size_max
            ),
            filters_max=config.subscribe_filters_max,
            properties_max=config.properties_max,
            joins_pubacks=True,
        )
        self._fan: FanOut | None = None
        """None = no message of this client was seen to go to many."""
        self._beginning: Beginning | None = Beginning()
        """None = it has had slices enough."""
        self._publishes: bool = False
        """There were messages in its last slice."""
        self._turn: int = -1
        """Number of the turn in which it had its last slice of what was just read."""
        super().__init__(
            parts,
            stream,
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
            if self._state != NEW or self._may_wait(len(data)):
                self._decoder.feed(data, 0)
                self.inbound_gate.arrived()
            return
        fan = self._fan
        is_new = self._state == NEW
        if (
            # An event loop reads on and on while its buffer is filled: one slice in a turn.
            len(data) > BULK_BYTES
            and (
                parts.turn_budget.is_busy
                or parts.turn_budget.is_spent
                or parts.turn_budget.rests()
                or self._turn == pipeline.number
                or is_new
            )
        ) or (
            not parts.turn_budget.may_begin(pipeline.number)
            if is_new
            else fan is not None and fan.waits(parts.turn_budget, pipeline.number)
        ):
            if is_new:
                self.foreign = foreign(data)
            if not is_new or self._may_wait(len(data)):
                self._decoder.feed(data, 0)
                self.go_on()
            return
        self._turn = pipeline.number
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
            self._wait_for_slice()

    def _wait_for_slice(self) -> None:
        parts = self._parts
        if self._state != NEW:
            parts.turn_budget.add(self)
        elif self.unknown_bytes > BULK_BYTES:
            parts.heavy_turns.wait(Waiting(parts.heavy_turns, self.unknown_bytes, self.work_on))
        else:
            parts.turn_budget.add_newcomer(self)

    def _slice(self, data: bytes) -> bool:
        """Process what the budget of a slice allows.

        Returns:
            Whether the caller, who gives out slices, should give it another one.
        """
        inbound_gate = self.inbound_gate
        decoder = self._decoder
        is_extra = not data
        parts = self._parts
        pipeline, admission = parts.pipeline, parts.pipeline.admission
        taken = admission.taken
        fan = self._fan
        units = SLICE if fan is None else fan.units()
        beginning = self._beginning
        if beginning is not None:
            units = min(units, beginning.units)
        budget = parts.turn_budget
        if self._publishes:
            units = min(units, budget.allowance.messages)
        try:
            packets = decoder.feed(data, units)
            if self._state == NEW and decoder.failure is not None:
                self.foreign = self.foreign or foreign(data)
            self._process(packets)
        except Exception as error:  # noqa: BLE001 - the invariant of the module
            self.broke(error, "packet")
            return False
        if self._state == CLOSED:
            return False
        published = admission.taken - taken
        self._publishes = published > 0
        is_many = published > 0 and (is_extra or published > FEW or len(data) > BULK_BYTES)
        if is_many:
            budget.many(published)
        if is_many or decoder.taken_bytes > BULK_BYTES:  # the last piece of a packet may be small
            parts.committer.log_sync.large_bytes += decoder.taken_bytes
        dispatcher = pipeline.dispatcher
        if fan is not None or (dispatcher is not None and dispatcher.caused):
            self._learn_fan(published)
        if beginning is not None and beginning.had(published, budget, pipeline.number):
            self._beginning = None
        if not inbound_gate.is_paused:
            if pipeline.is_overloaded() or (is_many and parts.committer.log_sync.is_large()):
                inbound_gate.pause()
                pipeline.pause(inbound_gate)
            elif published and admission.published(inbound_gate):
                # Only who has published: acknowledgements are what the sessions behind wait for.
                inbound_gate.pause()
        size = decoder.incomplete_bytes
        if size > LARGE_FRAME_BYTES or self.has_large_frame:
            self._admit_frame(size)
        if decoder.has_more:
            if inbound_gate.waits or not inbound_gate.fall_behind():
                return False
            if is_extra:
                return True
            budget.add(self)
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

    def let_go(self) -> None:
        """Leave no circle of references behind: who still knows one of its parts (an answer that
        waits for the disk) keeps that part alone, and the collector has nothing to find. Two
        thousand connections in a minute were a walk through all that they had left."""
        nobody = self._parts.nobody
        if not isinstance(nobody, Connection):
            nobody = self._parts.nobody = _closed_connection(self._parts)
        session = self.session
        if session is not None and session.connection is self:
            session.connection = nobody
        self.sender.let_go(nobody)
        self.sender = nobody.sender
        self.inbound_gate = nobody.inbound_gate
        self.keep_alive = nobody.keep_alive
        self.flow = nobody.flow

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

    def has_hung_up(self) -> bool:
        """Whether the client is gone, and has said nothing that is still to be processed."""
        return self.is_closed or (not self.inbound_gate.keeps_any and self._stream.has_ended())

    def retire(self) -> None:
        """Be closed from the beginning."""
        self._state = CLOSED
        self.inbound_gate.close()
        self.keep_alive.stop()
        self.sender.closed = True

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

    def give_back_frame(self) -> None:
        """The large packet has come, or will not: others may have its room."""
        self._parts.inbound_frames.give_back(self)

    def _admit_frame(self, size: int) -> None:
        """Take room for a large packet, once, and give it back when it is complete."""
        frames = self._parts.inbound_frames
        if size <= LARGE_FRAME_BYTES:
            self.has_large_frame = False
            self.give_back_frame()
        elif not self.has_large_frame:
            self.has_large_frame = True
            if not frames.take(self, size):
                self.inbound_gate.run_short()

    # Packets.

    def resume(self) -> None:
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
        self.resume()

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
        self.subscribe_bucket = subscribe

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
                elif isinstance(packet, PubackRun):
                    pubacks += len(packet)
                    flow.pubacks(packet)
                else:
                    received[packet.kind] += 1
                    flow.end_run()
                    if not self._parts.control_packets.handle(self, packet):
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


def _closed_connection(parts: ConnectionParts) -> Connection:
    """A connection that never was one."""
    made = Connection(parts, NoStream(), PeerInfo("", "", "", 0, loopback=False))
    made.retire()
    return made
