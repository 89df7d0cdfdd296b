"""A session while a connection holds it.

A *durable* session has its cursor, subscriptions and inbox in the store; when its connection goes
it leaves memory altogether. An ephemeral one (session expiry 0) lives here alone and ends with the
connection.

A session is *live* when it is given messages as they are dispatched, or *lagging* when it reads
them from the log (``catchup``): it starts lagging when it resumes, and falls back to it when its
client is slower than the traffic, instead of filling memory. ``position`` says up to where a
lagging session has been given everything.
"""

from __future__ import annotations

from typing import Final, Protocol, final

from perdure.broker.auth.authorize import Identity
from perdure.broker.core import BrokerCore
from perdure.broker.delivery.drop_note import with_drop_note
from perdure.broker.delivery.held_session import HeldSession, SessionConnection
from perdure.broker.delivery.inbox import Inbox
from perdure.broker.delivery.sender import SENT
from perdure.broker.delivery.window_waiters import WindowWaiters
from perdure.broker.dispatch.router import SubscriberEntry
from perdure.model import InboxEntry, Message, SessionRecord, Subscription
from perdure.mqtt.packets import PUBREL
from perdure.session.inbound import Inbound
from perdure.session.inflight import RELEASED, Delivery
from perdure.session.outbound import Outbound

_GROUP_RUN_MAX: Final = 64
"""Entries of a group that are forgotten together, once the client has acknowledged all of them."""

_NO_ENTRIES: Final[list[InboxEntry]] = []
"""Of every session that no group has given anything; never written to."""


class CatchUpTasks(Protocol):
    """Reads for sessions that lag (``catchup``)."""

    def start(self, session: LiveSession) -> None:
        """Begin to read for a lagging session, unless that goes on already."""
        ...


class BackfillTasks(Protocol):
    """What new subscriptions are given before they join the live flow (``backfill``)."""

    def start(self, session: LiveSession, name: str) -> None:
        """Run the rest of a subscription's backfill."""
        ...

    def resume(self, session: LiveSession, name: str) -> None:
        """As ``start``, for one that an earlier connection has begun."""
        ...

    def join_all(self, session: LiveSession) -> None:
        """All that the backfills gave has been dispatched: what was joining is live."""
        ...

    def reached(
        self, session: LiveSession, sub: Subscription, message: Message
    ) -> Subscription | None:
        """A dispatched message matches a subscription that is still backfilled.

        Returns:
            The subscription if it is live from this message on; None if the message comes to
            the session in another way.
        """
        ...


class GroupOwners:
    """What becomes of the messages that a shared group has given to a member.

    A base class and no protocol: it is asked for each acknowledgement of such a message.
    """

    def settled(self, session: LiveSession) -> None:
        """A member has settled some of what groups gave it."""
        raise NotImplementedError

    def refused(self, session: LiveSession, offset: int) -> bool:
        """A member may not have any more what its group gave it, and was not sent it.

        Returns:
            Whether it went back to the group.
        """
        raise NotImplementedError


class SessionParts(BrokerCore):
    """What a connected session uses, one record for all sessions of a broker."""

    __slots__ = ("backfill", "catchup", "group_owners", "inbox", "window_waiters")

    backfill: BackfillTasks
    catchup: CatchUpTasks
    group_owners: GroupOwners
    inbox: Inbox
    window_waiters: WindowWaiters


@final
class LiveSession(HeldSession):
    """One connected session."""

    __slots__ = (
        "_joined_run",
        "_parts",
        "catching_up",
        "drop_note",
        "given",
        "group_runs",
        "served",
        "to_drop",
    )

    def __init__(
        self,
        parts: SessionParts,
        record: SessionRecord,
        *,
        durable: bool,
        connection: SessionConnection,
        identity: Identity,
        inbound: Inbound,
        outbound: Outbound,
    ) -> None:
        super().__init__(
            parts,
            record,
            durable=durable,
            connection=connection,
            identity=identity,
            inbound=inbound,
            outbound=outbound,
        )
        self._parts: SessionParts = parts
        self.catching_up: bool = False
        """A catch-up task runs."""
        self.served: int = 0
        """Messages sent while it was behind (the admission's own mark)."""
        self.given: dict[int, list[InboxEntry]] = {}
        """Entries that groups gave it and that are not dispatched yet, by identity of what was
        given in one step."""
        self.group_runs: list[list[InboxEntry]] = []
        """Those that are dispatched, as they were given, until the cursor has passed all of a run;
        by offset. Small ones of a durable session are joined."""
        self._joined_run: list[InboxEntry] = _NO_ENTRIES
        """The last one that nobody else has."""
        self.to_drop: int = 0
        """Oldest unsent messages still to be dropped by a limit."""
        self.drop_note: int = 0
        """Messages dropped since the client was last told."""
        self.sender.on_writable = self

    def deliver_one(self, message: Message, entry: SubscriberEntry) -> None:
        """Deliver for one matching subscription (the hot path of ``deliver``)."""
        if entry.is_plain:
            qos = message.qos
            if entry.qos < qos:
                qos = entry.qos
            retain = message.retain and entry.retain_as_published
            offset = message.offset
            if (
                qos
                and offset
                and not self.lagging
                and not self.sender.congested
                and not self.outbound.pending
            ):
                self.offer(message, qos, retain, entry.identifiers, offset)
            else:
                self.deliver(message, qos, retain, entry.identifiers)
            return
        sub = entry.sub
        if sub.no_local and message.publisher == self.client_id:
            return
        if sub.backfill is not None and message.offset:
            # Its backfill reads it from the log, or joins the live flow with it.
            sub_live = self._parts.backfill.reached(self, sub, message)
            if sub_live is None:
                return
            sub = sub_live
        qos = min(message.qos, sub.qos)
        self.deliver(
            message,
            qos,
            sub.retain_as_published and message.retain,
            (sub.identifier,) if sub.identifier else (),
        )

    def room_for_run(self, first: Message, entry: SubscriberEntry) -> int:
        """See ``Subscriber``."""
        if not entry.is_plain or not entry.qos or self.lagging:
            return 0
        return self.room_to_send(first)

    def room_to_send(self, first: Message, *, catches_up: bool = False) -> int:
        """How many messages ``deliver_run`` may be given now, whatever they are owed for.

        Args:
            first: the first of them; none of them expires.
            catches_up: they are read from the log.
        """
        if self.drop_note or not self.sender.is_plain() or not self.may_have(first):
            return 0
        return self.outbound.room_for_run(first.offset, catches_up=catches_up)

    def deliver_run(self, run: list[Message], identifiers: tuple[int, ...]) -> int:
        """As ``offer`` for each; see ``Subscriber``."""
        outbound = self.outbound
        count = self.sender.publish_run(run, outbound.next_packet_id(), identifiers)
        outbound.offer_run(run if count == len(run) else run[:count], identifiers)
        return count

    def deliver(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> None:
        """Deliver a message that was dispatched now."""
        if qos == 0:
            self.give_qos0(message, retain, identifiers)
            return
        if not message.offset:
            # Not recorded, so it cannot be read again: an entry of the private stream holds it.
            self._parts.inbox.give(self, message, qos=qos, retain=retain, identifiers=identifiers)
            return
        if self.lagging:
            return
        outbound = self.outbound
        if self.sender.congested or (outbound.pending and self.is_memory_full()):
            self.fall_behind(message.offset - 1)
            return
        self.offer(message, qos, retain, identifiers, message.offset)

    def offer(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        offset: int,
        group_key: str = "",
    ) -> None:
        """Give the session the next message of its order."""
        parts = self._parts
        outbound = self.outbound
        if (
            not parts.authorizer.allow_all
            and not parts.authorizer.deliver(self.identity, message.topic, message.publisher)
            and not outbound.is_half_done(outbound.next_serial)
        ):
            # Its serial number is taken all the same: rules may change, the order may not.
            # An exchange past its PUBREC is session state and is completed (trap 13).
            if not group_key or not parts.group_owners.refused(self, offset):
                parts.metrics.messages_dropped_not_authorized += 1
            outbound.skip(offset)
            self.moved()
            return
        if qos == 1 and not retain and not self.drop_note:
            # What nearly every message is.
            packet_id = outbound.offer_plain(offset, identifiers, group_key)
            if packet_id:
                result = self.sender.publish(
                    message, 1, False, False, packet_id, identifiers, parts.pipeline.now_us
                )
                if result != SENT:
                    plain = outbound.inflight.get(packet_id)
                    assert plain is not None
                    self.unsent(plain, result)
                return
        delivery = outbound.offer(message, qos, retain, identifiers, offset, group_key)
        if delivery is not None:
            self.transmit(delivery)

    def deliver_entry(self, entry: InboxEntry) -> None:
        """Deliver an entry of the private stream that was dispatched now."""
        self.inbox_queued -= 1
        if entry.offset > self.inbox_until:
            self.inbox_until = entry.offset
        if entry.group_key:
            self.hold_given(self.given.pop(id(entry), [entry]))
        if entry.again and entry.qos == 1:
            # An entry has an offset of its own; one of QoS 2 is sent once it is safe.
            self.outbound.maybe_sent_offset = entry.offset
        if not self.durable or not self.lagging:
            if self.durable and self.sender.congested:
                self.fall_behind(entry.offset - 1)
            else:
                assert entry.message is not None
                self.offer(
                    entry.message,
                    entry.qos,
                    entry.retain,
                    entry.identifiers,
                    entry.offset,
                    entry.group_key,
                )
        if self.joining and not self.inbox_queued:
            self._parts.backfill.join_all(self)
        if self.has_waiters:
            self.pump()

    def hold_given(self, entries: list[InboxEntry]) -> None:
        """Keep what a group gave until it is settled; it stands behind all that is kept."""
        runs = self.group_runs
        if self.durable and len(entries) < _GROUP_RUN_MAX:
            # Each is a row, so nobody has to find them as they were given; where they come one by
            # one a list for each would be as large as the entry.
            run = self._joined_run
            if runs and runs[-1] is run and len(run) + len(entries) <= _GROUP_RUN_MAX:
                run += entries
                return
            entries = self._joined_run = entries.copy()
        runs.append(entries)

    def deliver_entries(self, entries: list[InboxEntry]) -> None:
        """See ``Subscriber``; a group gave them."""
        count = len(entries)
        self.inbox_queued -= count
        self.inbox_until = max(self.inbox_until, entries[count - 1].offset)
        self.given.pop(id(entries), None)
        self.hold_given(entries)
        outbound = self.outbound
        if outbound.maybe_sent_offset:
            for entry in entries:
                if entry.again:
                    outbound.maybe_sent_offset = entry.offset
        durable = self.durable
        if not durable or not self.lagging:
            given = self._send_entries(entries)
            for entry in entries[given:]:
                if durable and self.sender.congested:
                    self.fall_behind(entry.offset - 1)
                    break
                message = entry.message
                assert message is not None
                self.offer(message, 1, False, entry.identifiers, entry.offset, entry.group_key)
        if self.joining and not self.inbox_queued:
            self._parts.backfill.join_all(self)
        if self.has_waiters:
            self.pump()

    def _send_entries(self, entries: list[InboxEntry]) -> int:
        """Send the first of some entries in one step; how many, perhaps none."""
        sender = self.sender
        if self.drop_note or not sender.is_plain() or not self._parts.authorizer.allow_all:
            return 0
        outbound = self.outbound
        if outbound.room_for_run(entries[0].offset) < len(entries):
            return 0
        messages = [entry.message for entry in entries if entry.message is not None]
        identifiers = entries[0].identifiers
        sent = sender.publish_run(messages, outbound.next_packet_id(), identifiers)
        outbound.offer_entries(entries if sent == len(entries) else entries[:sent])
        return sent

    def transmit(self, delivery: Delivery) -> None:
        """Send a delivery that is in flight: PUBLISH, or PUBREL if it was released before."""
        message = delivery.message
        assert message is not None, "a delivery is sent once"
        delivery.message = None
        if delivery.state == RELEASED:
            self.sender.ack(PUBREL, delivery.packet_id)
            return
        parts = self._parts
        if self.drop_note and self.sender.version >= 5:
            message = with_drop_note(message, self.drop_note)
            self.drop_note = 0
        result = self.sender.publish(
            message,
            delivery.qos,
            delivery.retain,
            delivery.dup,
            delivery.packet_id,
            delivery.identifiers,
            parts.pipeline.now_us,
        )
        if delivery.dup:
            parts.metrics.messages_redelivered += 1
        if result != SENT:
            self.unsent(delivery, result)

    def writable(self) -> None:
        """The sender is not congested any more."""
        if self.is_open and (self.outbound.pending or self.has_waiters):
            self.pump()

    def pump(self) -> None:
        """Send pending messages for which there is room now."""
        outbound = self.outbound
        sender = self.sender
        sent = 0
        while outbound.pending and not sender.congested:
            delivery = outbound.next_to_send()
            if delivery is None:
                break
            self.transmit(delivery)
            sent += 1
        if sent:
            self._parts.pipeline.admission.served(self, sent)
        if self.has_waiters and self.has_room():
            self.has_waiters = False
            self._parts.window_waiters.notify(self)

    def withdraw_pending(self) -> None:
        """Rules have changed: take out what waits for the window and may not be sent any more."""
        outbound = self.outbound
        if self._parts.authorizer.allow_all or not outbound.pending:
            return
        denied = [
            delivery
            for delivery in outbound.pending
            if delivery.state != RELEASED
            and delivery.message is not None
            and not self.may_have(delivery.message)
        ]
        if not denied:
            return
        outbound.withdraw(denied)
        for delivery in denied:
            if not delivery.group_key or not self._parts.group_owners.refused(
                self, delivery.offset
            ):
                self._parts.metrics.messages_dropped_not_authorized += 1
        self.moved()
        self.pump()

    def fall_behind(self, position: int) -> None:
        """Stop taking dispatched messages; read from the log after ``position`` instead."""
        if not self.lagging:
            self.lagging = True
            self.position = position
            self.fell_serial = self.outbound.acked_serial
            self._parts.metrics.inflight_full += 1
            self._parts.catchup.start(self)
