"""A session that a connection holds, as far as it is no matter of sending: what of it is in the
store, how far its client is behind, and how it ends when a step of it fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from perdure.broker.auth.authorize import Identity
from perdure.broker.core import BrokerCore
from perdure.broker.delivery.sender import EXPIRED, SENT, Sender
from perdure.broker.dispatch.router import Subscriber
from perdure.model import Message, SessionRecord, Subscription, Will
from perdure.mqtt.reason_codes import IMPLEMENTATION_SPECIFIC_ERROR
from perdure.session.inbound import Inbound
from perdure.session.inflight import Delivery
from perdure.session.outbound import Outbound
from perdure.storage.batch import Batch

if TYPE_CHECKING:
    from perdure.broker.runtime.stream import PeerInfo

CURSOR_MESSAGES_MAX: Final = 256
"""Acknowledgements after which a cursor is written whatever its age."""


class SessionConnection(Protocol):
    """The connection that holds a session."""

    sender: Sender

    @property
    def is_connected(self) -> bool:
        """Whether CONNACK was sent and the connection has not been closed."""
        ...

    @property
    def peer(self) -> PeerInfo:
        """Who is at the other end."""
        ...

    def has_hung_up(self) -> bool:
        """Whether the client is gone, and has said nothing that is still to be processed."""
        ...

    def close(self, reason_code: int) -> None:
        """Take leave with a reason code and close."""
        ...

    def disconnect(
        self, reason_code: int, reason: str, *, send_will: bool, server_reference: str = ""
    ) -> None:
        """Take leave with a reason for the client, too, and say whether its will is due."""
        ...

    def storage_lost(self, reason_code: int) -> None:
        """Close because the store has failed what the client waits for."""
        ...

    def abort(self) -> None:
        """Cut the connection without a word."""
        ...


PENDING_FIRST: Final = 64
"""Messages that wait in memory for the window of a client that has acknowledged none yet."""


class HeldSession(Subscriber):
    """One session with a connection.

    Args:
        core: what every part stands on.
        record: what the store has of it, or is to have.
        durable: the store has its cursor, subscriptions and private stream.
        connection: that holds it.
        identity: whose it is.
        inbound, outbound: its two halves.
    """

    __slots__ = (
        "_core",
        "connack_sent",
        "connection",
        "cursor_serial",
        "ended",
        "fell_serial",
        "fenced",
        "generation",
        "identity",
        "inbound",
        "is_asked",
        "joining",
        "outbound",
        "position",
        "replaced",
        "resumed",
        "sender",
        "stands_still",
        "stored",
        "subs",
        "subs_version",
        "subscription_bytes",
        "taken_over",
        "trimmed",
        "will_due",
        "will_said",
    )

    def __init__(
        self,
        core: BrokerCore,
        record: SessionRecord,
        *,
        durable: bool,
        connection: SessionConnection,
        identity: Identity,
        inbound: Inbound,
        outbound: Outbound,
    ) -> None:
        super().__init__(record, durable=durable)
        self._core: BrokerCore = core
        self.stored: bool = durable
        """Whether the store has a record of it (an ephemeral one has if it left a will)."""
        self.connection: SessionConnection = connection
        self.sender: Sender = connection.sender
        self.identity: Identity = identity
        self.inbound: Inbound = inbound
        self.outbound: Outbound = outbound
        self.cursor_serial: int = outbound.acked_serial
        """Last serial number that the cursor of a batch had acknowledged."""
        self.fell_serial: int = outbound.acked_serial
        """Last serial number that was acknowledged when it fell behind."""
        self.subs: dict[str, Subscription] = {}
        self.ended: list[Subscription] = []
        """Subscriptions that were given up while the cursor had not passed them."""
        self.subs_version: int = 0
        self.subscription_bytes: int = 0
        """What those of ``subs`` and ``ended`` are called (``Subscription.size``)."""
        self.position: int = 0
        self.stands_still: bool = False
        """While it is behind it is given nothing more: what it is owed is being replaced."""
        self.joining: dict[str, None] = {}
        """Subscriptions whose backfill has read all, and that wait to join the live flow."""
        self.trimmed: int = 0
        """Its private stream is trimmed up to here."""
        self.resumed: bool = False
        """It existed before its connection."""
        self.replaced: bool = False
        """A stored session of the client was discarded for it."""
        self.taken_over: bool = False
        self.fenced: bool = False
        """It has a later owner, so nothing that is done to it here counts."""
        self.will_due: Will | None = None
        """What the end of its connection has made due, at once or after its delay."""
        self.will_said: Message | None = None
        """As it was published then."""
        self.is_asked: bool = False
        """A node that has claimed it is told how far it has come, or has not asked."""
        self.connack_sent: bool = False
        """CONNACK is out; nothing may go before it."""
        self.generation: int = core.authorizer.generation

    def may_have(self, message: Message) -> bool:
        """Whether the rules let the client have a message."""
        authorizer = self._core.authorizer
        return authorizer.allow_all or authorizer.deliver(
            self.identity, message.topic, message.publisher
        )

    def lag_us(self, fence: int) -> int:
        """How old the next message is that its client is to be sent (``Admission``)."""
        pending = self.outbound.pending
        if pending:
            return max(0, fence - pending[0].offset)
        return max(0, fence - self.position) if self.lagging else 0

    def took_all(self, served: int) -> bool:
        """Whether so many messages are most of what can be sent at once (``Admission``)."""
        return served * 4 >= self.outbound.window_max * 3 or self.sender.congested

    def pending_most(self) -> int:
        """How many messages may wait in memory for its window: a few, and as many more as its
        client has acknowledged since it fell behind. For one that does not acknowledge the log
        keeps them."""
        acknowledged = self.outbound.acked_serial - self.fell_serial
        return min(self._core.session_config.memory_pending_max, PENDING_FIRST + acknowledged)

    def has_room(self) -> bool:
        """Whether reading more for it makes sense."""
        outbound = self.outbound
        if self.lagging and not outbound.pending and outbound.catch_up_left() <= 0:
            # Read when it can be sent: what is queued before that takes three times as long.
            return False
        return (
            not self.stands_still
            and not self.sender.congested
            and (len(outbound.pending) + self.inbox_queued) * 2 < self.pending_most()
            and outbound.pending_bytes * 2 < self._core.session_config.outbound_buffer_bytes
        )

    def put_subscription_count(self) -> None:
        """Have the record say how many subscriptions there are, in the batch that changes them."""
        count = len(self.subs)
        if self.durable and self.record.subscription_count != count:
            self.record = msgspec.structs.replace(self.record, subscription_count=count)
            self._core.committer.batch.put_session(self.record)

    def cut_off(self, position: int) -> None:
        """Take nothing more that is dispatched, and read nothing either: the connection ends.

        Its cursor stays where the client's acknowledgements have brought it.
        """
        if not self.lagging:
            self.lagging = True
            self.position = position

    def failed(self, error: Exception, where: str) -> None:
        """A step of it failed as nobody expected: its connection ends, others go on.

        It takes nothing more that is dispatched, and its client is told in the next turn, since
        whoever found this may be going through the subscribers of a message.
        """
        connection = self.connection
        self._core.unexpected_errors.report(
            error,
            where,
            client_id=self.client_id,
            username=self.identity.username,
            address=connection.peer.address,
            listener=connection.peer.listener,
        )
        self._core.scheduler.call_soon(self._close_failed)

    def _close_failed(self) -> None:
        try:
            if self.is_open:
                self.connection.close(IMPLEMENTATION_SPECIFIC_ERROR)
        except Exception as error:  # noqa: BLE001 - what could not be closed in order is cut
            self._core.unexpected_errors.report(error, "close", client_id=self.client_id)
            self.connection.abort()

    def moved(self) -> None:
        """The cursor may have moved: have it written, let what waits for room go on."""
        outbound = self.outbound
        if not self.durable or not outbound.dirty:
            return
        cursors = self._core.cursors
        if outbound.acked_serial - self.cursor_serial < CURSOR_MESSAGES_MAX:
            if not self.cursor_waits:
                cursors.moved(self)
        else:
            cursors.put_now(self)
            self._core.pipeline.schedule()

    def put_cursor(self, batch: Batch) -> None:
        """Add the cursor to a batch, if it has moved."""
        outbound = self.outbound
        if not self.durable or not outbound.dirty:
            return
        if not self.lagging and not self.backfilling and outbound.is_idle():
            outbound.lift(self._core.dispatcher.offset)
        outbound.dirty = False
        self.cursor_serial = outbound.acked_serial
        epoch = self.record.epoch
        batch.put_cursor(self.client_id, outbound.cursor(), epoch=epoch)
        if (
            self.inbox_until > self.trimmed
            and outbound.acked_offset > self.trimmed
            and (not self.is_open or self._core.cursors.may_trim(self))
        ):
            self.trim(batch)
        if self.ended:
            self._forget_ended(batch)

    def trim(self, batch: Batch) -> None:
        """Delete what the cursor has passed in the private stream, with the cursor or after it."""
        self.put_cursor(batch)
        acked_offset = self.outbound.acked_offset
        if self.inbox_until > self.trimmed and acked_offset > self.trimmed:
            self.trimmed = acked_offset
            batch.trim_inbox(self.client_id, acked_offset, epoch=self.record.epoch)

    def is_memory_full(self) -> bool:
        outbound = self.outbound
        return (
            len(outbound.pending) >= self.pending_most()
            or outbound.pending_bytes >= self._core.session_config.outbound_buffer_bytes
        )

    def _forget_ended(self, batch: Batch) -> None:
        acked_offset = self.outbound.acked_offset
        passed = [s for s in self.ended if s.until_offset <= acked_offset]
        if passed:
            self.ended = [s for s in self.ended if s.until_offset > acked_offset]
        for sub in passed:
            self.subscription_bytes -= sub.size
            batch.delete_subscription(self.client_id, sub, epoch=self.record.epoch)

    def unsent(self, delivery: Delivery, result: int) -> None:
        """A delivery cannot be sent: settle it, and count why."""
        metrics = self._core.metrics
        if result == EXPIRED:
            metrics.messages_dropped_expired += 1
        else:
            metrics.messages_dropped_too_large += 1
        self.outbound.settle_unsent(delivery)
        self.moved()

    def give_qos0(self, message: Message, retain: bool, identifiers: tuple[int, ...]) -> None:
        """Send a message with QoS 0, if its client is not too slow for it."""
        if not self.connack_sent:
            # [MQTT-3.2.0-1] CONNACK is first, and it waits for the commit of the session. To a
            # client that is not connected yet QoS 0 owes nothing.
            return
        core = self._core
        if self.sender.congested:
            # [MQTT-4.3.1-1] promises nothing: a slow client loses QoS 0, not the broker memory.
            core.metrics.messages_dropped_queue_full += 1
            return
        authorizer = core.authorizer
        if not authorizer.allow_all and not authorizer.deliver(
            self.identity, message.topic, message.publisher
        ):
            core.metrics.messages_dropped_not_authorized += 1
            return
        result = self.sender.publish(
            message, 0, retain, False, 0, identifiers, core.pipeline.now_us
        )
        if result == EXPIRED:
            core.metrics.messages_dropped_expired += 1
        elif result != SENT:
            core.metrics.messages_dropped_too_large += 1
