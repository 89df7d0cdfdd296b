"""The message exchanges of one connection: PUBLISH and its acknowledgements, both ways.

This is the hot path: everything is inline. Messages of one QoS that came together are a *run*: they
enter the log and the dispatch in one step (``end_run``), and one small waiter holds all their
acknowledgements. What each packet does to a session is in ``session.inbound`` and
``session.outbound``; here it meets authorisation, rates and the commit.

Invariant: acknowledgements go out in the order of the packets they answer [MQTT-4.6.0-2]
[MQTT-4.6.0-3], refusals included, so all of them pass through the commit queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.broker.connection.pending_acks import (
    PublishAcks,
    RefusalAck,
    StateAcks,
    puback_unmatched,
)
from perdure.broker.connection.publish_rate import PublishRate
from perdure.broker.connection.publish_refusals import RefusingFlow
from perdure.broker.delivery.held_session import CURSOR_MESSAGES_MAX
from perdure.broker.publish.path import REFUSALS
from perdure.errors import MqttError
from perdure.model import Message
from perdure.mqtt.aliases import InboundAliases
from perdure.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Properties, Publish
from perdure.mqtt.primitives import UINT16_BYTES
from perdure.mqtt.puback_run import PubackRun
from perdure.mqtt.reason_codes import (
    PACKET_IDENTIFIER_NOT_FOUND,
    QOS_NOT_SUPPORTED,
    RECEIVE_MAXIMUM_EXCEEDED,
    RETAIN_NOT_SUPPORTED,
    TOPIC_ALIAS_INVALID,
)
from perdure.session.inbound import RECEIVE_DUPLICATE, RECEIVE_EXCEEDED
from perdure.session.outbound import ACK_RELEASE, ACK_SETTLED

if TYPE_CHECKING:
    from perdure.broker.commit.waiters import Waiter
    from perdure.broker.connection.client import ClientConnection
    from perdure.broker.connection.parts import ConnectionParts
    from perdure.broker.delivery.live_session import LiveSession
    from perdure.broker.delivery.sender import Sender
    from perdure.broker.runtime.token_bucket import TokenBucket


@final
class QosFlow(RefusingFlow):
    """The exchanges of one connection.

    Args:
        parts: what every part stands on.
        connection: whose they are.
        level: durability that acknowledgements wait for (``waiters.LEVEL_*``).
    """

    __slots__ = (
        "_aliases",
        "_connection",
        "_level",
        "_parts",
        "_pending_ack_ids",
        "_pending_ack_kind",
        "_rate",
        "_run",
        "_run_ids",
        "_run_qos",
        "_sender",
        "_window_has_room",
    )

    def __init__(self, parts: ConnectionParts, connection: ClientConnection, *, level: int) -> None:
        self._parts: ConnectionParts = parts
        self._connection: ClientConnection = connection
        self._sender: Sender = connection.sender
        self._level: int = level
        self._aliases: InboundAliases | None = None
        self._rate: PublishRate | None = None
        # The messages that were taken and not handed on yet, and their packet identifiers.
        self._run: list[Message] | None = None
        self._run_ids: list[bytes] | None = None
        self._run_qos: int = 0
        # Acknowledgements of one kind that wait for session state and were not queued yet.
        self._pending_ack_ids: list[bytes] | None = None
        self._pending_ack_kind: int = 0
        # Acknowledgements have made room for messages that wait.
        self._window_has_room: bool = False

    @property
    def has_reason_codes(self) -> bool:
        """Whether the client can be told why (5.0)."""
        return self._sender.version >= 5

    def accept_aliases(self, maximum: int) -> None:
        """Topic aliases that the client may set, from our CONNACK."""
        self._aliases = InboundAliases(maximum)

    def limit_rates(self, messages: TokenBucket | None, payload: TokenBucket | None) -> None:
        """Rates of messages and payload bytes that this client is held to."""
        if messages is not None or payload is not None:
            self._rate = PublishRate(messages, payload)

    def publish(self, packet: Publish) -> None:
        """PUBLISH: take the message, refuse it, or raise what ends the connection."""
        connection = self._connection
        session = connection.session
        assert session is not None
        parts = self._parts
        topic = packet.topic
        if packet.topic_alias:
            if self._aliases is None:
                raise MqttError(TOPIC_ALIAS_INVALID, "no topic aliases were offered")
            topic = self._aliases.resolve(packet)
        qos = packet.qos
        publishing = parts.publish_path
        run = self._run
        # What let the message before it pass, lets it pass too.
        same_topic = run is not None and qos == self._run_qos and topic is run[-1].topic
        if not same_topic and qos > publishing.qos_max:
            raise MqttError(QOS_NOT_SUPPORTED, f"QoS {qos} is not supported")
        if packet.retain and not publishing.retain_available:
            raise MqttError(RETAIN_NOT_SUPPORTED, "retained messages are not supported")
        metrics = parts.metrics
        if qos == 1:
            metrics.messages_received_1 += 1
        elif qos:
            metrics.messages_received_2 += 1
        else:
            metrics.messages_received_0 += 1
        metrics.payload_bytes_received += len(packet.payload)
        packet_id = packet.packet_id
        if qos == 1:
            if not session.inbound.publish_qos1():
                raise MqttError(RECEIVE_MAXIMUM_EXCEEDED, "receive maximum exceeded")
        elif qos == 2:
            result = session.inbound.publish_qos2(packet_id)
            if result == RECEIVE_DUPLICATE:
                # [MQTT-4.3.3-10] the same message again; its commit may still be under way.
                self._ack_after_commit(PUBREC, packet_id)
                return
            if result == RECEIVE_EXCEEDED:
                raise MqttError(RECEIVE_MAXIMUM_EXCEEDED, "receive maximum exceeded")
        if not same_topic and topic not in publishing.topics:
            publishing.check_topic(topic)
        if self._rate is not None:
            wait_us = self._rate.take(len(packet.payload), connection.received_us)
            if wait_us:
                connection.inbound_gate.throttle(wait_us)
        if not same_topic:
            authorizer = parts.authorizer
            if (not authorizer.allow_all or topic[0] == "$") and not authorizer.publish(
                session.identity, topic
            ):
                parts.refusals.unauthorized(self, connection, packet, topic)
                return
            if qos and (publishing.disk_full or not parts.committer.writable):
                parts.refusals.storage(self, connection, packet, publishing.refusal(), topic)
                return
        retain = packet.retain
        if retain:
            limit = publishing.retained_room.refuses(topic, packet.payload, packet.forward)
            if limit:
                if parts.refusals.retained(self, connection, packet, limit):
                    return
                retain = False
        now_us = parts.pipeline.now_us
        message = Message(
            topic,
            packet.payload,
            qos,
            retain,
            session.client_id,
            packet.forward,
            now_us + packet.expiry_s * 1_000_000 if packet.expiry_s >= 0 else 0,
            parts.pipeline.published_us(),
        )
        if qos == 2 and session.durable:
            parts.committer.batch.put_awaiting_release(
                session.client_id, packet_id, epoch=session.record.epoch
            )
        if run is None or qos != self._run_qos:
            self.end_run()
            run = self._run = []
            self._run_ids = None
            self._run_qos = qos
        run.append(message)
        if qos:
            ids = self._run_ids
            if ids is None:
                ids = self._run_ids = []
            ids.append(UINT16_BYTES[packet_id])

    def _ack_after_commit(self, kind: int, packet_id: int) -> None:
        """Answer with PUBREC, PUBREL or PUBCOMP once the state behind it is durable."""
        ids = self._pending_ack_ids
        if ids is None or kind != self._pending_ack_kind or self._run is not None:
            self.end_run()
            ids = self._pending_ack_ids = []
            self._pending_ack_kind = kind
        ids.append(UINT16_BYTES[packet_id])

    def end_run(self) -> None:
        """Hand on the messages, or the acknowledgements, that were taken; what follows comes after
        them."""
        pending_acks = self._pending_ack_ids
        if pending_acks is not None:
            self._pending_ack_ids = None
            self._wait_for_state(pending_acks)
        if self._window_has_room:
            self._window_has_room = False
            session = self._connection.session
            if session is not None and session.is_open:
                session.pump()
        run = self._run
        if run is None:
            return
        self._run = None
        qos = self._run_qos
        if self._parts.peers is not None and self._connection.session is not None:
            self._parts.publish_path.speaks(self._connection.session.record)
        self._parts.publish_path.take_run(run, qos)
        ids, self._run_ids = self._run_ids, None
        if ids is None:
            return
        kind = PUBACK if qos == 1 else PUBREC
        messages = run if qos == 1 and self._sender.version >= 5 else None
        acks = PublishAcks(self, kind, ids, messages, self._connection.received_us)
        self._parts.committer.wait(acks, self._level, len(ids))

    def _wait_for_state(self, packet_ids: list[bytes]) -> None:
        session = self._connection.session
        if self._pending_ack_kind == PUBREL and session is not None and session.durable:
            self._parts.cursors.put_now(session)
        self._wait(StateAcks(self, self._pending_ack_kind, packet_ids, 0), len(packet_ids))

    def _wait(self, waiter: Waiter, count: int = 1) -> None:
        """Answer after the open batch, whether or not a message is in it."""
        self._parts.committer.wait(waiter, self._level, count)
        self._parts.pipeline.schedule()

    def acknowledge(
        self, kind: int, packet_ids: list[bytes], messages: list[Message] | None, started_us: int
    ) -> None:
        """The messages are committed: see ``AckSender``."""
        connection = self._connection
        session = connection.session
        if session is None or not connection.is_connected:
            return
        parts = self._parts
        elapsed_us = parts.committer.notified_us - started_us
        count = len(packet_ids)
        if kind == PUBACK:
            session.inbound.acknowledged(count)
            parts.metrics.publish_to_ack_seconds_1.observe(elapsed_us, count)
            unmatched = parts.dispatcher.unmatched
            if messages is not None and unmatched:
                offsets = [message.offset for message in messages]
                if not unmatched.isdisjoint(offsets):
                    # 3.4.2.1. What offline sessions want is not known here (and not asked), so
                    # while there are any, nobody is told that there is no subscriber.
                    tells = not parts.metrics.sessions_offline
                    puback_unmatched(self._sender, packet_ids, offsets, unmatched, tells=tells)
                    return
        else:
            parts.metrics.publish_to_ack_seconds_2.observe(elapsed_us, count)
        self._sender.acks(kind, packet_ids)

    def refuse(self, kind: int, packet_id: int, reason_code: int) -> None:
        """PUBACK or PUBREC with an error: the message was not taken (5.0)."""
        connection = self._connection
        session = connection.session
        if session is None or not connection.is_connected:
            return
        if kind == PUBACK:
            session.inbound.acknowledged(1)
        else:
            session.inbound.reject_qos2(packet_id)
        said = REFUSALS.get(reason_code)
        if said is not None and connection.problem_information:
            # [MQTT-3.4.2-2] [MQTT-3.5.2-2] left out where the client's packets are too small.
            why = Ack(kind, packet_id, reason_code, Properties(reason_string=said))
            if self._sender.packet(why):
                return
        self._sender.ack(kind, packet_id, reason_code)

    def broke(self, error: Exception) -> None:
        """Answering failed as nobody expected: the connection ends."""
        self._connection.broke(error, "answer")

    def count_full(self, count: int = 1) -> None:
        """Messages were turned away because the disk or its budget is full."""
        self._parts.metrics.messages_dropped_quota += count

    def refuse_in_turn(self, kind: int, packet_id: int, reason_code: int) -> None:
        """Answer through the commit queue: it must not overtake earlier acknowledgements."""
        self.end_run()
        self._wait(RefusalAck(self, kind, packet_id, reason_code, self._connection.received_us))

    def acknowledged(self, packet: Ack) -> None:
        """PUBACK, PUBREC, PUBREL or PUBCOMP."""
        session = self._connection.session
        assert session is not None
        outbound = session.outbound
        kind = packet.kind
        packet_id = packet.packet_id
        parts = self._parts
        if kind == PUBACK:
            delivery = outbound.acknowledge(packet_id)
            if delivery is not None and delivery.group_key:
                parts.group_owners.settled(session)
        elif kind == PUBREL:
            self._release(session, packet)
            return
        elif kind == PUBREC:
            held = outbound.inflight.get(packet_id)
            result = outbound.receive(packet_id, failed=packet.reason >= 0x80)
            if result == ACK_RELEASE:
                self._ack_after_commit(PUBREL, packet_id)
                return
            if result == ACK_SETTLED:
                assert held is not None
                if held.group_key:
                    parts.group_owners.settled(session)
            elif packet.reason < 0x80:
                # [MQTT-3.6.2-1] 3.1.1 has no reason codes; its PUBREL just ends the exchange.
                reason = 0 if session.resumed else PACKET_IDENTIFIER_NOT_FOUND
                self._sender.ack(PUBREL, packet_id, reason)
                return
        else:
            held = outbound.inflight.get(packet_id)
            outbound.complete(packet_id)
            if session.durable:
                parts.cursors.moved_soon(session)
            if held is not None and held.group_key:
                parts.group_owners.settled(session)
        self._moved(session)

    def pubacks(self, run: PubackRun) -> None:
        """As ``acknowledged`` for each of them; what they have moved is looked at once."""
        session = self._connection.session
        assert session is not None
        if session.outbound.acknowledge_run(run):
            self._parts.group_owners.settled(session)
        self._moved(session)

    def _moved(self, session: LiveSession) -> None:
        """Acknowledgements may have moved the cursor, and have made room for what waits."""
        outbound = session.outbound
        if (
            not session.cursor_waits
            or outbound.acked_serial - session.cursor_serial >= CURSOR_MESSAGES_MAX
        ):
            session.moved()
        if outbound.pending or session.has_waiters:
            self._window_has_room = True

    def _release(self, session: LiveSession, packet: Ack) -> None:
        """PUBREL: forget the identifier, durably, before PUBCOMP lets the client reuse it."""
        parts = self._parts
        known = session.inbound.release(packet.packet_id)
        if known and session.durable:
            parts.committer.batch.delete_awaiting_release(
                session.client_id, packet.packet_id, epoch=session.record.epoch
            )
        # 3.7.2.1: an unknown identifier is no error during recovery, when the client repeats a
        # PUBREL whose PUBCOMP was lost.
        if known or session.resumed:
            self._ack_after_commit(PUBCOMP, packet.packet_id)
            return
        self.end_run()
        packet_ids = [UINT16_BYTES[packet.packet_id]]
        self._wait(StateAcks(self, PUBCOMP, packet_ids, PACKET_IDENTIFIER_NOT_FOUND))

    def acknowledge_state(self, kind: int, packet_ids: list[bytes], reason: int) -> None:
        """The state is durable: see ``AckSender``."""
        connection = self._connection
        if kind == PUBCOMP and not reason and connection.session is not None:
            connection.session.inbound.acknowledged(len(packet_ids))
        if not connection.is_connected:
            return
        if not reason:
            self._sender.acks(kind, packet_ids)
            return
        for raw in packet_ids:
            self._sender.ack(kind, int.from_bytes(raw, "big"), reason)

    def storage_lost(self, reason_code: int) -> None:
        """A commit that the client waits for has failed."""
        self._connection.storage_lost(reason_code)
