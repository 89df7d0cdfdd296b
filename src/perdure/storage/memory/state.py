"""What the reference backend holds: plain containers, sorted when they are read.

This is the model that every other backend is compared with, so it is written to be obviously
right, not fast. It is an ``storage.target.Target``, and knows neither fencing nor time.

Invariant: two states to which the same operations were applied in the same order are equal.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import final

from perdure.errors import UsageError
from perdure.model import Cursor, GroupRecord, InboxEntry, Message, SessionRecord, Subscription
from perdure.storage.codec import retained_size
from perdure.storage.entry_by_entry import EntryByEntry


@final
class SessionState:
    """Everything of one session but its inbox."""

    __slots__ = ("awaiting_release", "cursor", "record", "subscriptions")

    def __init__(self, record: SessionRecord) -> None:
        self.record = record
        self.cursor = Cursor()
        self.subscriptions: dict[tuple[int, str], Subscription] = {}
        self.awaiting_release: set[int] = set()


@final
class GroupState:
    """A shared group, its members and what was returned to it."""

    __slots__ = ("entries", "members", "record")

    def __init__(self) -> None:
        self.record: GroupRecord | None = None
        self.members: set[str] = set()
        self.entries: dict[int, InboxEntry] = {}


@final
class GenerationState:
    """The bounds of one generation; its messages are those of the log between them."""

    __slots__ = ("created_at_us", "generation", "since_offset", "until_offset")

    def __init__(self, generation: int, since_offset: int, created_at_us: int) -> None:
        self.generation = generation
        self.since_offset = since_offset
        self.until_offset = 0
        self.created_at_us = created_at_us

    def holds(self, offset: int) -> bool:
        """Whether an offset belongs to this generation."""
        return self.since_offset <= offset and (not self.until_offset or offset < self.until_offset)


@final
class State(EntryByEntry):
    """One consistent content of the store."""

    def __init__(self) -> None:
        self.last_offset = 0
        self.log: list[Message] = []
        self.generations: dict[int, GenerationState] = {1: GenerationState(1, 1, 0)}
        self.sessions: dict[str, SessionState] = {}
        self.inboxes: dict[str, dict[int, InboxEntry]] = {}
        self.groups: dict[str, GroupState] = {}
        self.retained: dict[str, Message] = {}
        self.retained_bytes = 0
        self.notes: dict[bytes, bytes] = {}

    def append(self, message: Message) -> None:
        """Record a message; its offset is above all before it."""
        self.log.append(message)

    def log_after(self, offset: int) -> list[Message]:
        """The recorded messages after an offset, in order."""
        return self.log[bisect_right(self.log, offset, key=_offset_of) :]

    def put_session(self, record: SessionRecord) -> None:
        """Create a session or replace its record."""
        session = self.sessions.get(record.client_id)
        if session is None:
            self.sessions[record.client_id] = SessionState(record)
        else:
            session.record = record

    def discard_session(self, client_id: str) -> None:
        """Forget a session and its inbox."""
        self.sessions.pop(client_id, None)
        self.inboxes.pop(client_id, None)

    def put_cursor(self, client_id: str, cursor: Cursor) -> None:
        """Replace a cursor."""
        self.sessions[client_id].cursor = cursor

    def put_subscription(self, client_id: str, sub: Subscription) -> None:
        """Create or replace a subscription."""
        self.sessions[client_id].subscriptions[sub.since_offset, sub.name] = sub

    def delete_subscription(self, client_id: str, sub: Subscription) -> None:
        """Forget a subscription."""
        self.sessions[client_id].subscriptions.pop((sub.since_offset, sub.name), None)

    def put_awaiting_release(self, client_id: str, packet_id: int) -> None:
        """Remember an inbound QoS 2 packet identifier."""
        self.sessions[client_id].awaiting_release.add(packet_id)

    def delete_awaiting_release(self, client_id: str, packet_id: int) -> None:
        """Forget one."""
        self.sessions[client_id].awaiting_release.discard(packet_id)

    def put_inbox(self, client_id: str, entry: InboxEntry) -> None:
        """Add or replace an entry of a private stream."""
        self.inboxes.setdefault(client_id, {})[entry.offset] = entry

    def trim_inbox(self, client_id: str, through_offset: int) -> None:
        """Delete inbox entries up to an offset."""
        inbox = self.inboxes.get(client_id, {})
        for offset in [offset for offset in inbox if offset <= through_offset]:
            del inbox[offset]

    def group(self, group_key: str) -> GroupState:
        """The state of a group, made when it is first named."""
        return self.groups.setdefault(group_key, GroupState())

    def put_group(self, record: GroupRecord) -> None:
        """Create or replace a group."""
        self.group(record.key).record = record

    def discard_group(self, group_key: str) -> None:
        """Forget a group."""
        self.groups.pop(group_key, None)

    def put_group_member(self, group_key: str, client_id: str) -> None:
        """Record a member."""
        self.group(group_key).members.add(client_id)

    def delete_group_member(self, group_key: str, client_id: str) -> None:
        """Record that a session is no member any more."""
        self.group(group_key).members.discard(client_id)

    def put_group_entry(self, group_key: str, entry: InboxEntry) -> None:
        """Return a message to a group."""
        self.group(group_key).entries[entry.offset] = entry

    def delete_group_entry(self, group_key: str, offset: int) -> None:
        """Take a returned message out of a group."""
        self.group(group_key).entries.pop(offset, None)

    def put_retained(self, message: Message) -> None:
        """Retain a message for its topic."""
        self.delete_retained(message.topic)
        self.retained[message.topic] = message
        self.retained_bytes += retained_size(message)

    def delete_retained(self, topic: str) -> None:
        """Clear a topic."""
        old = self.retained.pop(topic, None)
        if old is not None:
            self.retained_bytes -= retained_size(old)

    def note(self, key: bytes, value: bytes | None) -> None:
        """Keep something beside the state; None = forget it."""
        if value is None:
            self.notes.pop(key, None)
        else:
            self.notes[key] = value

    def rotate(self, now_us: int) -> None:
        """Close the current generation and begin the next."""
        current = self.generations[max(self.generations)]
        since = self.last_offset + 1
        current.until_offset = since
        number = current.generation + 1
        self.generations[number] = GenerationState(number, since, now_us)

    def drop_generation(self, generation: int) -> None:
        """Forget a generation and its messages."""
        if generation not in self.generations or generation == max(self.generations):
            raise UsageError(f"generation {generation} is unknown or current")
        dropped = self.generations.pop(generation)
        self.log = [message for message in self.log if not dropped.holds(message.offset)]


def retained_key(topic: str) -> bytes:
    """Sort key of a retained topic: byte order is level order."""
    return topic.replace("/", "\0").encode()


def _offset_of(message: Message) -> int:
    return message.offset
