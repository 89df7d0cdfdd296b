"""What a batch holds: one class for each thing that can be done to the state.

An operation is data. It knows the method of a ``Target`` that does it, and nothing of who has that
method: each backend is a target once, and so every backend does the same. Those of a session carry
the *epoch* of the owner that asked for them; ``fencing`` says which of them hold.

``operation_codec`` gives each class its bytes. A new operation is a class here, a method of
``Target``, a method of ``Batch`` and a row of the codec's table.
"""

from __future__ import annotations

from typing import final

from perdure.model import Cursor, GroupRecord, InboxEntry, Message, SessionRecord, Subscription
from perdure.storage.target import Target


class Operation:
    """One change.

    Attributes:
        client_id: the session that it belongs to; empty = none.
        epoch: of the owner that asks for it.
    """

    __slots__ = ("client_id", "epoch")

    def __init__(self, client_id: str = "", epoch: int = 0) -> None:
        self.client_id: str = client_id
        self.epoch: int = epoch

    def apply(self, target: Target) -> None:
        """Do it."""
        raise NotImplementedError


@final
class PutSession(Operation):
    """A session's record: names its owner."""

    __slots__ = ("record",)

    def __init__(self, record: SessionRecord) -> None:
        super().__init__(record.client_id, record.epoch)
        self.record: SessionRecord = record

    def apply(self, target: Target) -> None:
        target.put_session(self.record)


@final
class ClaimSession(Operation):
    """A session's record under another owner, if nobody else has become one since it was read."""

    __slots__ = ("record", "seen")

    def __init__(self, record: SessionRecord, seen: int) -> None:
        super().__init__(record.client_id, record.epoch)
        self.record: SessionRecord = record
        self.seen: int = seen

    def apply(self, target: Target) -> None:
        target.put_session(self.record)


@final
class DiscardSession(Operation):
    """The end of a session."""

    __slots__ = ()

    def apply(self, target: Target) -> None:
        target.discard_session(self.client_id)


@final
class PutCursor(Operation):
    """How far a session's outbound messages are done."""

    __slots__ = ("cursor",)

    def __init__(self, client_id: str, epoch: int, cursor: Cursor) -> None:
        super().__init__(client_id, epoch)
        self.cursor: Cursor = cursor

    def apply(self, target: Target) -> None:
        target.put_cursor(self.client_id, self.cursor)


@final
class PutSubscription(Operation):
    """A subscription."""

    __slots__ = ("sub",)

    def __init__(self, client_id: str, epoch: int, sub: Subscription) -> None:
        super().__init__(client_id, epoch)
        self.sub: Subscription = sub

    def apply(self, target: Target) -> None:
        target.put_subscription(self.client_id, self.sub)


@final
class DeleteSubscription(Operation):
    """The end of a subscription."""

    __slots__ = ("sub",)

    def __init__(self, client_id: str, epoch: int, sub: Subscription) -> None:
        super().__init__(client_id, epoch)
        self.sub: Subscription = sub

    def apply(self, target: Target) -> None:
        target.delete_subscription(self.client_id, self.sub)


@final
class PutAwaitingRelease(Operation):
    """An inbound QoS 2 packet identifier."""

    __slots__ = ("packet_id",)

    def __init__(self, client_id: str, epoch: int, packet_id: int) -> None:
        super().__init__(client_id, epoch)
        self.packet_id: int = packet_id

    def apply(self, target: Target) -> None:
        target.put_awaiting_release(self.client_id, self.packet_id)


@final
class DeleteAwaitingRelease(Operation):
    """The end of one."""

    __slots__ = ("packet_id",)

    def __init__(self, client_id: str, epoch: int, packet_id: int) -> None:
        super().__init__(client_id, epoch)
        self.packet_id: int = packet_id

    def apply(self, target: Target) -> None:
        target.delete_awaiting_release(self.client_id, self.packet_id)


@final
class PutInbox(Operation):
    """An entry of a private stream."""

    __slots__ = ("entry",)

    def __init__(self, client_id: str, epoch: int, entry: InboxEntry) -> None:
        super().__init__(client_id, epoch)
        self.entry: InboxEntry = entry

    def apply(self, target: Target) -> None:
        target.put_inbox(self.client_id, self.entry)


@final
class PutInboxRun(Operation):
    """Entries of a private stream that were placed one behind the other, alike but for their
    messages."""

    __slots__ = ("entries",)

    def __init__(self, client_id: str, epoch: int, entries: list[InboxEntry]) -> None:
        super().__init__(client_id, epoch)
        self.entries: list[InboxEntry] = entries

    def apply(self, target: Target) -> None:
        target.put_inbox_run(self.client_id, self.entries)


@final
class PutTombstone(Operation):
    """A tombstone in the place of an entry: its serial number stays taken."""

    __slots__ = ("entry",)

    def __init__(self, client_id: str, epoch: int, entry: InboxEntry) -> None:
        super().__init__(client_id, epoch)
        self.entry: InboxEntry = entry

    def apply(self, target: Target) -> None:
        target.put_inbox(self.client_id, tombstone(self.entry))


@final
class TrimInbox(Operation):
    """The beginning of a private stream goes."""

    __slots__ = ("through_offset",)

    def __init__(self, client_id: str, epoch: int, through_offset: int) -> None:
        super().__init__(client_id, epoch)
        self.through_offset: int = through_offset

    def apply(self, target: Target) -> None:
        target.trim_inbox(self.client_id, self.through_offset)


@final
class PutGroup(Operation):
    """A shared group, if its record is still the one that was read."""

    __slots__ = ("record", "seen")

    def __init__(self, record: GroupRecord, seen: int = -1) -> None:
        super().__init__()
        self.record: GroupRecord = record
        self.seen: int = seen

    def apply(self, target: Target) -> None:
        target.put_group(self.record)


@final
class DiscardGroup(Operation):
    """The end of a shared group."""

    __slots__ = ("group_key",)

    def __init__(self, group_key: str) -> None:
        super().__init__()
        self.group_key: str = group_key

    def apply(self, target: Target) -> None:
        target.discard_group(self.group_key)


@final
class PutGroupMember(Operation):
    """A member of a group; no owner has to ask for it, so it belongs to no session here."""

    __slots__ = ("group_key", "member")

    def __init__(self, group_key: str, member: str) -> None:
        super().__init__()
        self.group_key: str = group_key
        self.member: str = member

    def apply(self, target: Target) -> None:
        target.put_group_member(self.group_key, self.member)


@final
class DeleteGroupMember(Operation):
    """The end of a membership."""

    __slots__ = ("group_key", "member")

    def __init__(self, group_key: str, member: str) -> None:
        super().__init__()
        self.group_key: str = group_key
        self.member: str = member

    def apply(self, target: Target) -> None:
        target.delete_group_member(self.group_key, self.member)


@final
class PutGroupEntry(Operation):
    """A message that came back to a group; from a session, if its owner says so."""

    __slots__ = ("entry", "group_key")

    def __init__(
        self, group_key: str, entry: InboxEntry, client_id: str = "", epoch: int = 0
    ) -> None:
        super().__init__(client_id, epoch)
        self.group_key: str = group_key
        self.entry: InboxEntry = entry

    def apply(self, target: Target) -> None:
        target.put_group_entry(self.group_key, self.entry)


@final
class DeleteGroupEntry(Operation):
    """It was given to another member."""

    __slots__ = ("entry", "group_key")

    def __init__(self, group_key: str, entry: InboxEntry) -> None:
        super().__init__()
        self.group_key: str = group_key
        self.entry: InboxEntry = entry

    def apply(self, target: Target) -> None:
        target.delete_group_entry(self.group_key, self.entry.offset)


@final
class PutGroupRun(Operation):
    """What a group gives to a member whose session ends with its connection, in one step: entries
    that were placed one behind the other, alike but for their messages."""

    __slots__ = ("entries", "group_key")

    def __init__(self, group_key: str, entries: list[InboxEntry]) -> None:
        super().__init__()
        self.group_key: str = group_key
        self.entries: list[InboxEntry] = entries

    def apply(self, target: Target) -> None:
        target.put_group_run(self.group_key, self.entries)


@final
class DeleteGroupRun(Operation):
    """All of it is settled, or has other entries in its place."""

    __slots__ = ("entries", "group_key")

    def __init__(self, group_key: str, entries: list[InboxEntry]) -> None:
        super().__init__()
        self.group_key: str = group_key
        self.entries: list[InboxEntry] = entries

    def apply(self, target: Target) -> None:
        target.delete_group_run(self.group_key, self.entries)


@final
class PutRetained(Operation):
    """The retained message of a topic."""

    __slots__ = ("message",)

    def __init__(self, message: Message) -> None:
        super().__init__()
        self.message: Message = message

    def apply(self, target: Target) -> None:
        assert self.message.offset, "a retained message needs an offset"
        target.put_retained(self.message)


@final
class DeleteRetained(Operation):
    """No retained message any more."""

    __slots__ = ("publisher", "topic")

    def __init__(self, topic: str, publisher: str = "") -> None:
        super().__init__()
        self.topic: str = topic
        self.publisher: str = publisher

    def apply(self, target: Target) -> None:
        target.delete_retained(self.topic)


def tombstone(entry: InboxEntry) -> InboxEntry:
    """What is left of an entry that went elsewhere."""
    return InboxEntry(
        entry.offset, None, qos=entry.qos, group_key=entry.group_key, serial=entry.serial
    )
