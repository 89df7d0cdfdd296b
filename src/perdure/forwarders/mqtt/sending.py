"""What goes to the other broker: numbered, windowed, and settled by its acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from perdure.errors import StorageError, TargetUnavailable
from perdure.forwarders.mapping import TopicMap, payload_of
from perdure.forwarders.mqtt.via import goes_round, mark_bytes
from perdure.forwarders.output import Context, Refusal
from perdure.limits import PACKET_ID_MAX
from perdure.model import Cursor, Message
from perdure.mqtt import reason_codes
from perdure.mqtt.encode import ack_bytes, append_publish, publish_size
from perdure.mqtt.packets import PUBACK, PUBREC, PUBREL, V5, Ack, Properties
from perdure.session.inflight import RELEASED, Delivery
from perdure.session.outbound import ACK_RELEASE, ACK_UNKNOWN, Outbound

if TYPE_CHECKING:
    from perdure.config.schema import MqttForwarderConfig
    from perdure.forwarders.mqtt.peer import Peer


@final
class Sending:
    """The sending side of the session at the other broker.

    Args:
        settings, context: of the forwarder.
        peer: the connection.
        cursor: where an earlier connection left off.
        server: properties of CONNACK.
        target: who the other broker is; empty = it did not say.

    Raises:
        ConfigError: the topic template cannot be used.
    """

    def __init__(
        self,
        settings: MqttForwarderConfig,
        context: Context,
        peer: Peer,
        cursor: Cursor,
        server: Properties,
        target: str,
    ) -> None:
        self._settings = settings
        self._context = context
        self._peer = peer
        self._target = target
        self._mark = mark_bytes(context.origin) if peer.version == V5 else b""
        self._topic = TopicMap(settings.strip, settings.topic, setting=f"{context.setting}.topic")
        maximum_qos = 2 if server.maximum_qos is None else server.maximum_qos
        self._qos_max = min(settings.qos_max, maximum_qos)
        self._retains = server.retain_available != 0
        self._size_max = server.maximum_packet_size or 0
        self._outbound = Outbound(
            cursor,
            window_max=min(settings.window, server.receive_maximum or PACKET_ID_MAX),
            maybe_sent_offset=context.session.maybe_sent_offset,
        )
        self._originals: dict[int, Message] = {}
        """What was given, by the serial number under which it is in flight."""
        self._refused: list[Refusal] = []
        self._to_release: list[int] = []
        self._releasing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.passed_over: int = 0
        """Messages of the last ``write`` that were expired, or on their way round a loop."""

    @property
    def cursor(self) -> Cursor:
        """How far it is."""
        return self._outbound.cursor()

    def lift(self, through_offset: int) -> Cursor:
        """Nothing is owed up to an offset."""
        self._outbound.lift(through_offset)
        return self._outbound.cursor()

    async def write(self, messages: Sequence[Message]) -> list[Refusal]:
        """Send messages, and wait until each is settled."""
        self.passed_over = 0
        for message in messages:
            self._offer(message)
            if not self._outbound.has_room():
                await self._peer.drain()
        while True:
            self._pump()
            await self._peer.drain()
            if self._outbound.is_idle():
                break
            self._changed.clear()
            await self._changed.wait()
            self._peer.check()
        refused, self._refused = self._refused, []
        return refused

    def turn_over(self) -> None:
        """All packets that came together were handled."""
        if self._to_release and self._releasing is None:
            loop = asyncio.get_running_loop()
            self._releasing = loop.create_task(self._release(), name="forwarder release")
        self._changed.set()

    async def close(self) -> None:
        """Nothing more is sent."""
        if self._releasing is not None:
            self._releasing.cancel()
            await asyncio.gather(self._releasing, return_exceptions=True)

    def acknowledged(self, ack: Ack) -> None:
        """PUBACK, PUBREC or PUBCOMP has come.

        Raises:
            ProtocolViolation: it fits nothing that is in flight.
        """
        failed = ack.reason >= reason_codes.UNSPECIFIED_ERROR
        if failed and ack.reason == reason_codes.QUOTA_EXCEEDED and ack.kind in (PUBACK, PUBREC):
            raise TargetUnavailable("the other broker has no room (quota exceeded)")
        outbound, packet_id = self._outbound, ack.packet_id
        delivery = outbound.inflight.get(packet_id)
        serial = delivery.serial if delivery is not None else 0
        if ack.kind == PUBACK:
            outbound.acknowledge(packet_id)
        elif ack.kind == PUBREC:
            state = outbound.receive(packet_id, failed=failed)
            if state == ACK_RELEASE:
                self._to_release.append(packet_id)
                return
            if state == ACK_UNKNOWN and not failed:
                code = reason_codes.PACKET_IDENTIFIER_NOT_FOUND
                self._peer.send(ack_bytes(PUBREL, packet_id, code, self._peer.version))
                return
        else:
            outbound.complete(packet_id)
            failed = False  # the other broker has forgotten it: it was released
        original = self._originals.pop(serial, None)
        if failed and original is not None:
            self._refuse(original, reason_codes.name(ack.reason))

    # Inside.

    def _offer(self, message: Message) -> None:
        context, outbound = self._context, self._outbound
        if self._target and goes_round(message, self._target):
            context.counts.dropped("loop")
            self.passed_over += 1
            return
        serial = outbound.next_serial
        now_us = context.core.clock.now_us()
        expired = 0 < message.expires_at_us <= now_us
        if expired and not outbound.was_sent(serial) and not outbound.was_settled(serial):
            context.counts.dropped("expired")
            self.passed_over += 1
            outbound.skip(message.offset)
            return
        mapped = self._mapped(message)
        qos = min(message.qos, self._qos_max)
        if not qos:
            outbound.skip(message.offset)
            self._publish(mapped, message, 0, dup=False, packet_id=0)
            return
        if not outbound.was_settled(serial):
            self._originals[serial] = message
        delivery = outbound.offer(mapped, qos, mapped.retain, (), message.offset)
        if delivery is not None:
            self._send(delivery)

    def _pump(self) -> None:
        while (delivery := self._outbound.next_to_send()) is not None:
            self._send(delivery)

    def _send(self, delivery: Delivery) -> None:
        peer = self._peer
        if delivery.state == RELEASED:
            peer.send(ack_bytes(PUBREL, delivery.packet_id, 0, peer.version))
            return
        message, original = delivery.message, self._originals[delivery.serial]
        assert message is not None
        sent = self._publish(
            message, original, delivery.qos, dup=delivery.dup, packet_id=delivery.packet_id
        )
        if not sent:
            self._outbound.settle_unsent(delivery)
            self._originals.pop(delivery.serial, None)

    def _publish(
        self, message: Message, original: Message, qos: int, *, dup: bool, packet_id: int
    ) -> bool:
        """Send a message; False if the other broker takes none of its size."""
        version, expiry_s = self._peer.version, -1
        if message.expires_at_us:
            left_us = message.expires_at_us - self._context.core.clock.now_us()
            expiry_s = max(1, -(-left_us // 1_000_000))
        arguments = (message, version, qos, message.retain, dup, packet_id, expiry_s)
        if self._size_max and publish_size(*arguments) > self._size_max:
            self._refuse(original, f"larger than {self._size_max} bytes")
            return False
        pieces: list[bytes] = []
        append_publish(pieces, *arguments)
        self._peer.send_pieces(pieces)
        return True

    def _mapped(self, message: Message) -> Message:
        return Message(
            self._topic(message.topic),
            payload_of(message, self._settings.payload),
            message.qos,
            message.retain and self._retains,
            message.publisher,
            message.properties + self._mark,
            message.expires_at_us,
            message.published_at_us,
            message.offset,
        )

    def _refuse(self, original: Message, reason: str) -> None:
        self._refused.append(Refusal(original, reason))

    async def _release(self) -> None:
        """PUBREL, once it is durable that PUBREC has come."""
        try:
            while self._to_release:
                ids, self._to_release = self._to_release, []
                await self._context.session.keep(self._outbound.cursor())
                for packet_id in ids:
                    self._peer.send(ack_bytes(PUBREL, packet_id, 0, self._peer.version))
                self._peer.flush()
        except StorageError as error:
            self._peer.fail(error)
        finally:
            self._releasing = None
