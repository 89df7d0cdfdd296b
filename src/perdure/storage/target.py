"""What a backend does with the operations of a batch."""

from __future__ import annotations

from typing import Protocol

from perdure.model import Cursor, GroupRecord, InboxEntry, Message, SessionRecord, Subscription


class Target(Protocol):
    """What applies operations: one backend's half of each.

    The owner of a session has been checked; ``storage.batch.Batch`` says what a call means.
    """

    def put_session(self, record: SessionRecord) -> None:
        """Create a session or replace its record."""
        ...

    def discard_session(self, client_id: str) -> None:
        """Delete everything of a session."""
        ...

    def put_cursor(self, client_id: str, cursor: Cursor) -> None:
        """Replace a cursor."""
        ...

    def put_subscription(self, client_id: str, sub: Subscription) -> None:
        """Create or replace a subscription."""
        ...

    def delete_subscription(self, client_id: str, sub: Subscription) -> None:
        """Forget a subscription."""
        ...

    def put_awaiting_release(self, client_id: str, packet_id: int) -> None:
        """Remember an inbound QoS 2 packet identifier."""
        ...

    def delete_awaiting_release(self, client_id: str, packet_id: int) -> None:
        """Forget one."""
        ...

    def put_inbox(self, client_id: str, entry: InboxEntry) -> None:
        """Add or replace an entry of a private stream."""
        ...

    def put_inbox_run(self, client_id: str, entries: list[InboxEntry]) -> None:
        """``put_inbox`` for each."""
        ...

    def trim_inbox(self, client_id: str, through_offset: int) -> None:
        """Delete the entries of a private stream up to an offset."""
        ...

    def put_group(self, record: GroupRecord) -> None:
        """Create or replace a group."""
        ...

    def discard_group(self, group_key: str) -> None:
        """Delete a group, its members and what was returned to it."""
        ...

    def put_group_member(self, group_key: str, client_id: str) -> None:
        """Record a member."""
        ...

    def delete_group_member(self, group_key: str, client_id: str) -> None:
        """Record that a session is no member any more."""
        ...

    def put_group_entry(self, group_key: str, entry: InboxEntry) -> None:
        """Return a message to a group."""
        ...

    def put_group_run(self, group_key: str, entries: list[InboxEntry]) -> None:
        """``put_group_entry`` for each."""
        ...

    def delete_group_entry(self, group_key: str, offset: int) -> None:
        """Take a returned message out of a group."""
        ...

    def delete_group_run(self, group_key: str, entries: list[InboxEntry]) -> None:
        """``delete_group_entry`` for each of what ``put_group_run`` was given."""
        ...

    def put_retained(self, message: Message) -> None:
        """Retain a message."""
        ...

    def delete_retained(self, topic: str) -> None:
        """Clear a topic."""
        ...
