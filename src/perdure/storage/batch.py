"""A batch: what one turn wants to change, as data.

Messages for the log stand in one list and everything else, in the order of the calls, in another:
they are what a hot turn has thousands of. When a batch is applied its messages enter the log first,
in their order; then the operations take effect in theirs.

Nothing is decided here. Who may write is said by ``fencing`` when the batch is written, and each
backend applies the same two lists (``operations.Target``). Invariant: a batch that is never written
leaves no trace but the offsets that it took, and one that was written is as it was before.
"""

from __future__ import annotations

from typing import final

from perdure.errors import UsageError
from perdure.model import Cursor, GroupRecord, InboxEntry, Message, SessionRecord, Subscription
from perdure.storage.offsets import Offsets
from perdure.storage.operations import (
    DeleteAwaitingRelease,
    DeleteGroupEntry,
    DeleteGroupMember,
    DeleteRetained,
    DeleteSubscription,
    DiscardGroup,
    DiscardSession,
    Operation,
    PutAwaitingRelease,
    PutCursor,
    PutGroup,
    PutGroupEntry,
    PutGroupMember,
    PutInbox,
    PutRetained,
    PutSession,
    PutSubscription,
    Target,
    TrimInbox,
)


@final
class Batch:
    """Writes that become durable together; nothing is visible before they are written.

    Calls on a session carry the ``epoch`` of its owner. A record puts a session under the owner
    that it names; after ``discard_session`` the next record may have any epoch.

    Args:
        offsets: gives messages their offsets.

    Attributes:
        messages: for the log, in order.
        operations: everything else, in order.
    """

    __slots__ = ("_offsets", "_sessions", "messages", "operations")

    def __init__(self, offsets: Offsets) -> None:
        self._offsets: Offsets = offsets
        self._sessions: set[str] = set()
        self.messages: list[Message] = []
        self.operations: list[Operation] = []

    # -- the log ---------------------------------------------------------------------------

    def append(self, message: Message, now_us: int) -> int:
        """Add a message to the log; sets and returns ``message.offset``."""
        offset = self._offsets.allocate(now_us)
        message.offset = offset
        self.messages.append(message)
        return offset

    def extend(self, messages: list[Message], now_us: int) -> None:
        """``append`` for each, in order; their offsets are consecutive."""
        if not messages:
            return
        offset = self._offsets.allocate(now_us)
        for message in messages:
            message.offset = offset
            offset += 1
        self._offsets.last = offset - 1
        self.messages += messages

    # -- sessions --------------------------------------------------------------------------

    def put_session(self, record: SessionRecord) -> None:
        """Create or replace a session's record (and its entry in the deadline index)."""
        self._of_session(PutSession(record))

    def discard_session(self, client_id: str) -> None:
        """Delete record, cursor, subscriptions, awaiting-release ids and inbox of a session."""
        self._of_session(DiscardSession(client_id))

    def put_cursor(self, client_id: str, cursor: Cursor, *, epoch: int) -> None:
        """Replace a session's outbound cursor."""
        self._of_session(PutCursor(client_id, epoch, cursor))

    def put_subscription(self, client_id: str, sub: Subscription, *, epoch: int) -> None:
        """Create or replace a subscription; its key is (``name``, ``since_offset``)."""
        self._of_session(PutSubscription(client_id, epoch, sub))

    def delete_subscription(self, client_id: str, sub: Subscription, *, epoch: int) -> None:
        """Forget a subscription, by (``name``, ``since_offset``)."""
        self._of_session(DeleteSubscription(client_id, epoch, sub))

    def put_awaiting_release(self, client_id: str, packet_id: int, *, epoch: int) -> None:
        """Remember an inbound QoS 2 packet identifier."""
        self._of_session(PutAwaitingRelease(client_id, epoch, packet_id))

    def delete_awaiting_release(self, client_id: str, packet_id: int, *, epoch: int) -> None:
        """Forget an inbound QoS 2 packet identifier."""
        self._of_session(DeleteAwaitingRelease(client_id, epoch, packet_id))

    def put_inbox(self, client_id: str, entry: InboxEntry, *, epoch: int) -> None:
        """Add or replace an entry of a session's private stream."""
        self._of_session(PutInbox(client_id, epoch, entry))

    def trim_inbox(self, client_id: str, through_offset: int, *, epoch: int) -> None:
        """Delete the entries of a session's private stream up to an offset, inclusive."""
        self._of_session(TrimInbox(client_id, epoch, through_offset))

    def _of_session(self, operation: Operation) -> None:
        self._sessions.add(operation.client_id)
        self.operations.append(operation)

    def add(self, operation: Operation) -> None:
        """Add an operation of any kind."""
        if operation.client_id:
            self._sessions.add(operation.client_id)
        self.operations.append(operation)

    # -- groups ----------------------------------------------------------------------------

    def put_group(self, record: GroupRecord) -> None:
        """Create or replace a shared group."""
        self.operations.append(PutGroup(record))

    def discard_group(self, group_key: str) -> None:
        """Delete a group, its members and what was returned to it."""
        self.operations.append(DiscardGroup(group_key))

    def put_group_member(self, group_key: str, client_id: str) -> None:
        """Record a durable session as a member of a group."""
        self.operations.append(PutGroupMember(group_key, client_id))

    def delete_group_member(self, group_key: str, client_id: str) -> None:
        """Record that a session is no member any more."""
        self.operations.append(DeleteGroupMember(group_key, client_id))

    def put_group_entry(self, group_key: str, entry: InboxEntry) -> None:
        """Return a message to a group, to be given to another member."""
        self.operations.append(PutGroupEntry(group_key, entry))

    def delete_group_entry(self, group_key: str, offset: int) -> None:
        """Take a returned message out of a group."""
        self.operations.append(DeleteGroupEntry(group_key, offset))

    # -- retained --------------------------------------------------------------------------

    def put_retained(self, message: Message) -> None:
        """Retain a message for its topic (``message.offset`` must be set)."""
        if not message.offset:
            raise UsageError("a retained message needs an offset")
        _check_topic(message.topic)
        self.operations.append(PutRetained(message))

    def delete_retained(self, topic: str) -> None:
        """Clear the retained message of a topic."""
        _check_topic(topic)
        self.operations.append(DeleteRetained(topic))

    # -- what is in it ---------------------------------------------------------------------

    def names_session(self, client_id: str) -> bool:
        """Whether a call on this session was added: what is read of it is not up to date."""
        return client_id in self._sessions

    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return not self.operations and not self.messages


def apply(operations: list[Operation], target: Target) -> None:
    """Let a target do what operations say, in their order."""
    for operation in operations:
        operation.apply(target)


def _check_topic(topic: str) -> None:
    # [MQTT-1.5.4-2] not in any topic, which leaves it free to stand between levels in keys.
    if "\0" in topic:
        raise UsageError("a topic has no U+0000")
