"""A PUBLISH that is not taken: what its client is told, and who else hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.broker.connection.pending_acks import AckSender
from perdure.broker.publish.path import REFUSALS
from perdure.mqtt.packets import PUBACK, PUBREC, Publish
from perdure.mqtt.reason_codes import NOT_AUTHORIZED, QUOTA_EXCEEDED
from perdure.observe.instruments import add

if TYPE_CHECKING:
    from perdure.broker.connection.client import ClientConnection
    from perdure.broker.connection.refusal_log import RefusalLog
    from perdure.broker.core import BrokerCore


class RefusingFlow(AckSender):
    """A QoS flow, as far as it answers what it does not take."""

    __slots__ = ()

    def end_run(self) -> None:
        """Hand on what was taken before."""
        raise NotImplementedError

    def refuse_in_turn(self, kind: int, packet_id: int, reason_code: int) -> None:
        """Answer through the commit queue: it must not overtake earlier acknowledgements."""
        raise NotImplementedError


@final
class PublishRefusals:
    """Refuses, for all connections.

    Args:
        core: what every part stands on.
        refusal_log: is told.
    """

    def __init__(self, core: BrokerCore, *, refusal_log: RefusalLog) -> None:
        self._core = core
        self._refusal_log: RefusalLog = refusal_log

    def storage(
        self,
        flow: RefusingFlow,
        connection: ClientConnection,
        packet: Publish,
        reason_code: int,
        topic: str,
    ) -> None:
        """The store takes no messages. 3.1.1 has no way to say so but to close."""
        flow.end_run()
        self._refusal_log.publish(
            connection, reason_code, REFUSALS.get(reason_code, ""), topic, packet.qos
        )
        if reason_code == QUOTA_EXCEEDED:
            flow.count_full()
        if not flow.has_reason_codes:
            flow.storage_lost(reason_code)
            return
        kind = PUBACK if packet.qos == 1 else PUBREC
        if self._core.committer.writable:
            flow.refuse_in_turn(kind, packet.packet_id, reason_code)
        else:
            # Whatever was before it in the commit queue has failed already.
            flow.refuse(kind, packet.packet_id, reason_code)

    def retained(
        self, flow: RefusingFlow, connection: ClientConnection, packet: Publish, limit: str
    ) -> bool:
        """No room for another retained message.

        Returns:
            Whether the message is refused. A client that cannot be told (QoS 0, 3.1.1) has its
            message delivered and not retained, which the log and the metrics show.
        """
        core = self._core
        session = connection.session
        assert session is not None
        add(core.metrics.limit_refusals, (limit,))
        core.log.warning(
            "retained.refused",
            client_id=session.client_id,
            topic=packet.topic,
            limit=limit,
        )
        if not packet.qos or not flow.has_reason_codes:
            return False
        core.metrics.messages_dropped_quota += 1
        kind = PUBACK if packet.qos == 1 else PUBREC
        flow.refuse_in_turn(kind, packet.packet_id, QUOTA_EXCEEDED)
        return True

    def unauthorized(
        self, flow: RefusingFlow, connection: ClientConnection, packet: Publish, topic: str
    ) -> None:
        """The client may not publish there: 5.0 is told so; 3.1.1 has no way to say it, so the
        message is acknowledged and dropped [MQTT-3.3.5-2]."""
        core = self._core
        core.metrics.messages_dropped_not_authorized += 1
        session = connection.session
        assert session is not None
        self._refusal_log.publish(connection, NOT_AUTHORIZED, "not authorised", topic, packet.qos)
        if not packet.qos:
            return
        kind = PUBACK if packet.qos == 1 else PUBREC
        reason = NOT_AUTHORIZED if connection.sender.version >= 5 else 0
        if kind == PUBREC and not reason and session.durable:
            core.committer.batch.put_awaiting_release(
                session.client_id, packet.packet_id, epoch=session.record.epoch
            )
        flow.refuse_in_turn(kind, packet.packet_id, reason)
