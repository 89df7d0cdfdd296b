"""What comes in: a message enters the log, the retained store and the dispatch, as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from perdure.broker.dispatch import Passed
from perdure.errors import StorageError
from perdure.model import Message
from perdure.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL
from perdure.topic.matching import matches

if TYPE_CHECKING:
    from perdure.broker.connection import Connection
    from perdure.broker.services import Services

QUOTA_EXCEEDED = 0x97
UNSPECIFIED_ERROR = 0x80


@final
class Publishing:
    """Takes messages, from clients and from the broker itself.

    Args:
        services: the parts of the broker.
        record: filters of the QoS 1 and 2 messages that are recorded.
        record_qos0: filters of the QoS 0 messages that are recorded.
    """

    def __init__(
        self, services: Services, *, record: Sequence[str], record_qos0: Sequence[str]
    ) -> None:
        self._services = services
        self._record = tuple(record)
        self._record_all = "#" in record
        self._record_qos0 = tuple(record_qos0)
        self.disk_full: bool = False
        """The disk budget is used up and its policy is to refuse."""

    def take(self, message: Message) -> None:
        """Add a message to the open batch and to this turn's dispatch."""
        services = self._services
        batch = services.committer.batch
        now_us = services.turn.now_us
        if self._is_recorded(message):
            batch.append(message, now_us)
        services.turn.dispatch(message)
        if message.retain:
            if not message.payload:
                # [MQTT-3.3.1-6] an empty payload clears the topic's retained message.
                batch.delete_retained(message.topic)
            elif message.offset:
                batch.put_retained(message)
            else:
                kept = self._with_offset(message, now_us)
                batch.put_retained(kept)
                services.turn.dispatch(Passed(kept.offset))

    def refusal(self) -> int:
        """Reason code if the store takes no messages now, else 0."""
        if not self._services.committer.writable:
            return UNSPECIFIED_ERROR
        if self.disk_full:
            return QUOTA_EXCEEDED
        return 0

    def _is_recorded(self, message: Message) -> bool:
        if message.qos:
            if self._record_all:
                return True
            filters = self._record
        else:
            filters = self._record_qos0
            if not filters:
                return False
        return any(matches(topic_filter, message.topic) for topic_filter in filters)

    def _with_offset(self, message: Message, now_us: int) -> Message:
        """A copy to retain: an unrecorded message has no offset, a retained one needs one."""
        return Message(
            message.topic,
            message.payload,
            message.qos,
            True,
            message.publisher,
            message.properties,
            message.expires_at_us,
            message.published_at_us,
            self._services.database.allocate_offset(now_us),
        )


@final
class PublishAck:
    """PUBACK or PUBREC that waits for the commit of its message."""

    __slots__ = ("connection", "kind", "offset", "packet_id", "started_us")

    def __init__(
        self, connection: Connection, kind: int, packet_id: int, offset: int, started_us: int
    ) -> None:
        self.connection: Connection = connection
        self.kind: int = kind
        self.packet_id: int = packet_id
        self.offset: int = offset
        self.started_us: int = started_us

    def committed(self) -> None:
        """[MQTT-4.3.2-4] [MQTT-4.3.3-8] the message is ours now: say so."""
        self.connection.acknowledge(self.kind, self.packet_id, self.offset, self.started_us)

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """The message was not taken, or nobody knows."""
        connection = self.connection
        code = QUOTA_EXCEEDED if error.code == "storage_full" else UNSPECIFIED_ERROR
        if in_doubt or connection.sender.version < 5:
            # In doubt the client must keep the message and send it again under the same
            # identifier, so nothing that ends the exchange may be sent.
            connection.storage_lost(code)
        else:
            connection.refuse_publish(self.kind, self.packet_id, code)


@final
class OwedAck:
    """An acknowledgement that waits for session state: PUBREL after PUBREC, PUBCOMP after
    PUBREL, PUBREC again for a duplicate."""

    __slots__ = ("connection", "kind", "packet_id", "reason")

    def __init__(self, connection: Connection, kind: int, packet_id: int, reason: int) -> None:
        assert kind in (PUBACK, PUBREC, PUBREL, PUBCOMP)
        self.connection: Connection = connection
        self.kind: int = kind
        self.packet_id: int = packet_id
        self.reason: int = reason

    def committed(self) -> None:
        """The state is durable."""
        connection = self.connection
        if self.kind == PUBCOMP and not self.reason and connection.session is not None:
            connection.session.inbound.acknowledged()
        if connection.is_connected:
            connection.sender.ack(self.kind, self.packet_id, self.reason)

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """The state is not durable: the client must ask again after a reconnect."""
        self.connection.storage_lost(UNSPECIFIED_ERROR)
