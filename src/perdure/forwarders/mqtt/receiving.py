"""What comes from the other broker: into the log first, then acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.errors import MqttError, StorageError, StorageUnavailable
from perdure.forwarders.mapping import TopicMap
from perdure.forwarders.mqtt.via import goes_round, mark_bytes
from perdure.forwarders.output import Context
from perdure.model import Message
from perdure.mqtt.encode import ack_bytes
from perdure.mqtt.packets import PUBACK, PUBCOMP, PUBREC, Ack, Publish

if TYPE_CHECKING:
    from perdure.config.schema import MqttForwarderConfig
    from perdure.forwarders.mqtt.peer import Peer


@final
class AckWaiter:
    """Acknowledgements that leave when what they acknowledge is durable."""

    __slots__ = ("_acks", "_count", "_receiving")

    def __init__(self, receiving: Receiving, acks: bytes, count: int) -> None:
        self._receiving = receiving
        self._acks = acks
        self._count = count

    def committed(self) -> None:
        """It is."""
        self._receiving.committed(self._acks, self._count)

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """It is not: the other broker sends it again."""
        self._receiving.failed(error)

    def broke(self, error: Exception) -> None:
        """Costs the connection."""
        self._receiving.failed(error)


@final
class Receiving:
    """The receiving side of the session at the other broker.

    Args:
        settings, context: of the forwarder.
        peer: the connection.
        target: who the other broker is; empty = it did not say.

    Raises:
        ConfigError: the topic template cannot be used.
    """

    def __init__(
        self, settings: MqttForwarderConfig, context: Context, peer: Peer, target: str
    ) -> None:
        self._settings = settings
        self._context = context
        self._peer = peer
        self._topic = TopicMap(
            settings.remote_strip, settings.local_topic, setting=f"{context.setting}.local_topic"
        )
        self._mark = mark_bytes(target)
        self._acks: list[bytes] = []
        self._taken = 0
        self._waiting = 0
        self._is_paused = False

    def published(self, packet: Publish) -> None:
        """A message has come.

        Raises:
            StorageUnavailable: the log takes none now.
        """
        context, session = self._context, self._context.session
        packet_id = packet.packet_id
        if packet.qos == 2 and packet_id in session.awaiting_release:
            self._ack(PUBREC, packet_id)  # [MQTT-4.3.3-10] taken already
            return
        if packet.qos and context.publish_path.refusal():
            raise StorageUnavailable("the log takes no messages")
        message = self._message(packet)
        if message is not None:
            session.take(message, packet_id if packet.qos == 2 else 0)
            self._taken += 1
        if packet.qos == 1:
            self._ack(PUBACK, packet_id)
        elif packet.qos == 2:
            self._ack(PUBREC, packet_id)

    def released(self, ack: Ack) -> None:
        """PUBREL has come."""
        self._context.session.release(ack.packet_id)
        self._ack(PUBCOMP, ack.packet_id)

    def turn_over(self) -> None:
        """All packets that came together were handled."""
        if not self._acks and not self._taken:
            return
        acks, self._acks = self._acks, []
        count, self._taken = self._taken, 0
        self._waiting += len(acks) + count
        self._context.counts.received(count)
        waiter = AckWaiter(self, b"".join(acks), len(acks) + count)
        self._context.session.wait(waiter, max(1, count))
        if self._waiting > 2 * self._settings.window and not self._is_paused:
            self._is_paused = True
            self._peer.pause_reading()

    def committed(self, acks: bytes, count: int) -> None:
        """What was acknowledged so is durable."""
        self._waiting -= count
        if acks:
            self._peer.send(acks)
            self._peer.flush()
        if self._is_paused and self._waiting <= self._settings.window:
            self._is_paused = False
            self._peer.resume_reading()

    def failed(self, error: Exception) -> None:
        """It is not durable."""
        self._peer.fail(error)

    # Inside.

    def _ack(self, kind: int, packet_id: int) -> None:
        self._acks.append(ack_bytes(kind, packet_id, 0, self._peer.version))

    def _message(self, packet: Publish) -> Message | None:
        """The message as it is taken here; None = it is not."""
        context = self._context
        pipeline = context.core.pipeline
        pipeline.now_us = now_us = context.core.clock.now_us()
        topic = self._topic(packet.topic)
        message = Message(
            topic,
            packet.payload,
            min(packet.qos, self._settings.qos_max),
            packet.retain,
            context.session.client_id,
            packet.forward + self._mark,
            now_us + packet.expiry_s * 1_000_000 if packet.expiry_s >= 0 else 0,
            pipeline.published_us(),
        )
        if context.origin and goes_round(message, context.origin):
            context.counts.dropped("loop")
            return None
        try:
            context.publish_path.check_topic(topic)
        except MqttError as error:
            context.counts.dropped("invalid")
            context.log.warning("forwarder.invalid", topic=topic, reason=error.message)
            return None
        if message.retain and context.publish_path.retained_room.refuses(
            topic, message.payload, message.properties
        ):
            message.retain = False
        return message
