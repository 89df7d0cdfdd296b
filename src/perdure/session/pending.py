"""What a session is owed beyond its cursor: the one enumeration of its pending messages.

Two sources of rows in one ascending order of offsets: the messages that its subscriptions match in
the log (or, where the store has one, in its queue), and the entries of its private stream. Each
pending message takes the next serial number. Who reads the rows gives them page by page and in
order; what became of a message (settled, half done, sent) is for ``DeliveryProgress`` or, of a
connected session, for ``Outbound`` to say.

Invariant: from the same cursor on, the same rows give the same messages with the same serial
numbers, however they are cut into pages. Catch-up, the queue that an operator sees, the limits,
what retention carries over or gives up, and the audit all count with this one.
"""

from __future__ import annotations

from typing import final

from perdure.model import Cursor, DeliveryOptions, InboxEntry, Message
from perdure.session.seqno import packet_id_of
from perdure.session.subscriptions import SessionSubscriptions


@final
class PendingMessage:
    """One message that a session is owed.

    Attributes:
        offset: its place in the session's order.
        message: the message; None = a tombstone, which only takes its serial number.
        qos: QoS to deliver with, 1 or 2.
        retain: RETAIN flag to deliver with.
        identifiers: subscription identifiers to deliver with.
        entry: what it is in the private stream; None = it comes from the log.
        serial: its serial number.
    """

    __slots__ = ("entry", "identifiers", "message", "offset", "qos", "retain", "serial")

    def __init__(
        self,
        offset: int,
        message: Message | None,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        entry: InboxEntry | None,
        serial: int,
    ) -> None:
        self.offset: int = offset
        self.message: Message | None = message
        self.qos: int = qos
        self.retain: bool = retain
        self.identifiers: tuple[int, ...] = identifiers
        self.entry: InboxEntry | None = entry
        self.serial: int = serial

    @property
    def packet_id(self) -> int:
        """Its packet identifier."""
        return packet_id_of(self.serial)


@final
class PendingMessages:
    """The pending messages of the page that it was given last.

    Iterating gives each as a ``PendingMessage``. Where every call and every object counts,
    ``advance`` goes to the next one, and it is told by the attributes.

    Args:
        subscriptions: of the session, current and ended.
        serial: the last serial number before the first page: that of the cursor.

    Attributes:
        serial: the last serial number that was given out.
        message: of the log, where ``advance`` has come to; None = it is an entry.
        options: how that is delivered.
        entry: of the private stream, where ``advance`` has come to; None = it is of the log.
    """

    __slots__ = (
        "_at",
        "_entries",
        "_entry_at",
        "_messages",
        "_subscriptions",
        "entry",
        "message",
        "options",
        "serial",
    )

    def __init__(self, subscriptions: SessionSubscriptions, serial: int) -> None:
        self._subscriptions: SessionSubscriptions = subscriptions
        self.serial: int = serial
        self.message: Message | None = None
        self.options: DeliveryOptions | None = None
        self.entry: InboxEntry | None = None
        self._messages: list[Message] = []
        self._entries: list[InboxEntry] = []
        self._at: int = 0
        self._entry_at: int = 0

    def page(self, messages: list[Message], entries: list[InboxEntry]) -> PendingMessages:
        """Go on with the next rows of both sources, each in order of offsets.

        Args:
            messages: of the log; those that the session does not get are left out here.
            entries: of the private stream, up to the same offset.
        """
        self._messages = messages
        self._entries = entries
        self._at = self._entry_at = 0
        return self

    def __iter__(self) -> PendingMessages:
        """The rest of the page."""
        return self

    def __next__(self) -> PendingMessage:
        """The next pending message."""
        if not self.advance():
            raise StopIteration
        entry = self.entry
        if entry is not None:
            return PendingMessage(
                entry.offset,
                entry.message,
                entry.qos,
                entry.retain,
                entry.identifiers,
                entry,
                self.serial,
            )
        message, options = self.message, self.options
        assert message is not None
        assert options is not None
        return PendingMessage(
            message.offset,
            message,
            options.qos,
            options.retain,
            options.identifiers,
            None,
            self.serial,
        )

    def advance(self) -> bool:
        """Go to the next pending message; False = the page has no more."""
        messages, entries = self._messages, self._entries
        while self._at < len(messages):
            message = messages[self._at]
            if self._entry_at < len(entries):
                offset = entries[self._entry_at].offset
                if offset == message.offset:
                    # Retention has carried it over, and its generation is still there: it comes
                    # once, as the entry.
                    self._at += 1
                if offset <= message.offset:
                    return self._advance_to_entry()
            self._at += 1
            options = self._subscriptions.options(message)
            if options is not None and options.qos:
                self.serial += 1
                self.message = message
                self.options = options
                self.entry = None
                return True
        return self._entry_at < len(entries) and self._advance_to_entry()

    def run(self, most: int) -> list[Message]:
        """Take what follows, is delivered as this one is and can be sent with it as one step.

        ``advance`` has come to a message of the log with QoS 1, without RETAIN, that never
        expires.

        Args:
            most: messages of the run at most, >= 1.

        Returns:
            All of them, the one that ``advance`` has come to first.
        """
        assert self.message is not None
        assert self.options is not None
        run = [self.message]
        identifiers = self.options.identifiers
        messages, at = self._messages, self._at
        end = 0
        if self._entry_at < len(self._entries):
            end = self._entries[self._entry_at].offset
        while len(run) < most and at < len(messages):
            message = messages[at]
            if message.expires_at_us or (end and message.offset >= end):
                break
            options = self._subscriptions.options(message)
            if (
                options is None
                or options.qos != 1
                or options.retain
                or options.identifiers != identifiers
            ):
                break
            run.append(message)
            at += 1
        self.serial += at - self._at
        self._at = at
        return run

    def give_back(self, count: int) -> None:
        """The last messages of a run were not taken: they come again, one by one."""
        self._at -= count
        self.serial -= count

    def _advance_to_entry(self) -> bool:
        entry = self._entries[self._entry_at]
        self._entry_at += 1
        # The numbers that it leaves out belong to no message (``Outbound.pass_to``).
        self.serial = max(self.serial + 1, entry.serial)
        self.message = None
        self.options = None
        self.entry = entry
        return True


@final
class DeliveryProgress:
    """What became of pending messages, as the stored state of a session tells it.

    Args:
        cursor: of the session.
        cut_offset: a connection that was cut may have sent what there is up to here.
    """

    __slots__ = ("_cut_offset", "_released", "_sent", "_settled")

    def __init__(self, cursor: Cursor, cut_offset: int) -> None:
        self._settled: frozenset[int] = frozenset(cursor.settled)
        self._released: frozenset[int] = frozenset(cursor.released)
        self._sent: int = cursor.sent
        self._cut_offset: int = cut_offset

    def is_settled(self, pending: PendingMessage) -> bool:
        """Whether the client is done with it, or was given up (a tombstone)."""
        return pending.message is None or pending.serial in self._settled

    def is_released(self, pending: PendingMessage) -> bool:
        """Whether its PUBREC came: only PUBREL is owed, even when it has expired (trap 13)."""
        return pending.serial in self._released

    def was_sent(self, pending: PendingMessage) -> bool:
        """Whether its sending is on record."""
        return pending.serial <= self._sent

    def is_past(self, pending: PendingMessage, now_us: int) -> bool:
        """Whether it is not sent any more, because it was not before its time was over.

        Args:
            pending: one that is neither settled nor released.
            now_us: steady time.
        """
        if self.was_sent(pending):
            return False
        entry = pending.entry
        if entry is not None and 0 < entry.forget_at_us <= now_us:
            return True
        # What a connection that was cut may have sent goes out again, past its expiry or not.
        message = pending.message
        return (
            message is not None
            and pending.offset > self._cut_offset
            and 0 < message.expires_at_us <= now_us
        )


def without_payload(message: Message) -> Message:
    """What is left of a message once only its PUBREL is owed."""
    return Message(
        message.topic,
        b"",
        message.qos,
        message.retain,
        message.publisher,
        message.properties,
        0,
        message.published_at_us,
        message.offset,
    )
