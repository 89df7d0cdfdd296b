"""A batch: what one turn wants to change, as data.

Messages for the log stand in one list, for a hot turn has thousands of them; everything else stands
in another, in the order of the calls. What takes an offset without being in the log (an entry of a
private stream, a retained message that is not recorded) is *placed* in a third.

Nothing is decided here, and nothing has an offset yet. A batch is *sequenced* when it enters the
log (``Database.submit``): then its messages have offsets, those that were placed have the ones that
follow, all consecutive, and the operations that hold (``fencing``) have taken effect in their
order. An operation may name an entry that was placed in the same batch or in an earlier one.

Invariant: a batch that is never submitted leaves no trace.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from perdure.errors import UsageError
from perdure.model import Cursor, GroupRecord, InboxEntry, Message, SessionRecord, Subscription
from perdure.storage.offsets import Offsets
from perdure.storage.operations import (
    ClaimSession,
    DeleteAwaitingRelease,
    DeleteGroupEntry,
    DeleteGroupMember,
    DeleteGroupRun,
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
    PutGroupRun,
    PutInbox,
    PutInboxRun,
    PutRetained,
    PutSession,
    PutSubscription,
    PutTombstone,
    TrimInbox,
)
from perdure.storage.peer_operations import (
    Dismiss,
    Echo,
    PassMessage,
    PassShare,
    ReturnUnseen,
    Speak,
)
from perdure.storage.rows import Rows
from perdure.storage.target import Target
from perdure.storage.unsaid import Unsaid

Placed: TypeAlias = Message | InboxEntry

ANYBODY: Final = 2**63 - 1
"""The epoch of who may discard a session whoever owns it."""

_NOBODY: Final[frozenset[str]] = frozenset()
_NOTHING: Final[dict[str, Unsaid]] = {}


@final
class Batch:
    """Writes that become durable together; nothing is visible before they are sequenced.

    Calls on a session carry the ``epoch`` of its owner. A record puts a session under the owner
    that it names; after ``discard_session`` the next record may have any epoch.

    Attributes:
        messages: for the log, in order.
        placed: what takes an offset besides, in order.
        operations: everything else, in order.
        is_sequenced: it has entered the log, and all that it holds has its offset.
        first_offset: that of the first message or placed thing, if there is any.
        refused: the operations that did not hold.
        silenced: publishers that have said something that does not count (``fencing.silence``),
            and what that is.
        lost_groups: groups that another node has given out for.
        returned: entries that came back to their groups, for their sessions have other owners or
            were let go of.
        returns: entries are put back, by who had them.
        rows: the messages as other nodes have submitted them, in place of ``messages``; None =
            they are not.
    """

    __slots__ = (
        "_sessions",
        "_speakers",
        "_unawaited",
        "first_offset",
        "is_sequenced",
        "lost_groups",
        "messages",
        "operations",
        "placed",
        "refused",
        "returned",
        "returns",
        "rows",
        "silenced",
    )

    def __init__(self) -> None:
        self._sessions: set[str] = set()
        self._speakers: dict[str, int] = {}
        self.messages: list[Message] = []
        self.placed: list[Placed] = []
        self.operations: list[Operation] = []
        self.is_sequenced: bool = False
        self.first_offset: int = 0
        self.refused: list[Operation] = []
        self.silenced: dict[str, Unsaid] = _NOTHING
        self.lost_groups: frozenset[str] = _NOBODY
        self.returned: list[InboxEntry] = []
        self.returns: bool = False
        self.rows: Rows | None = None
        self._unawaited = 0

    # -- the log ---------------------------------------------------------------------------

    def append(self, message: Message) -> None:
        """Add a message to the log."""
        self.messages.append(message)

    def extend(self, messages: list[Message]) -> None:
        """``append`` for each, in order."""
        self.messages += messages

    def place(self, thing: Placed) -> None:
        """Give an offset to what is not in the log."""
        self.placed.append(thing)

    def place_run(self, entries: list[InboxEntry]) -> None:
        """``place`` for each, in order."""
        self.placed += entries

    # -- sessions --------------------------------------------------------------------------

    def put_session(self, record: SessionRecord) -> None:
        """Create or replace a session's record (and its entry in the deadline index)."""
        self._of_session(PutSession(record))

    def claim_session(self, record: SessionRecord, *, seen: int) -> None:
        """``put_session``, refused if the owner is not the one that was read.

        Where several nodes write, two that read the same owner may both name the next one: the
        first in the log is it.

        Args:
            record: names the new owner, whose epoch is not below ``seen``.
            seen: epoch of the owner that was read; 0 = there was no session.
        """
        self._of_session(ClaimSession(record, seen))

    def discard_session(self, client_id: str, *, epoch: int = ANYBODY) -> None:
        """Delete record, cursor, subscriptions, awaiting-release ids and inbox of a session."""
        self._of_session(DiscardSession(client_id, epoch))

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

    def put_inbox_run(self, client_id: str, entries: list[InboxEntry], *, epoch: int) -> None:
        """``put_inbox`` for entries that are alike but for their messages, of which each has one.

        Args:
            entries: placed in this batch, one behind the other.
        """
        self._of_session(PutInboxRun(client_id, epoch, entries))

    def put_tombstone(self, client_id: str, entry: InboxEntry, *, epoch: int) -> None:
        """Put a tombstone in the place of an entry of a session's private stream."""
        self._of_session(PutTombstone(client_id, epoch, entry))

    def trim_inbox(self, client_id: str, through_offset: int, *, epoch: int) -> None:
        """Delete the entries of a session's private stream up to an offset, inclusive.

        A store may keep some of them until later ones go, too: who reads begins behind the cursor.
        """
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

    def put_group(self, record: GroupRecord, *, seen: int = -1) -> None:
        """Create or replace a shared group.

        Args:
            record: of the group.
            seen: turn of the record that was read, 0 = there was none: if another one is there, all
                that this batch gives out for the group is refused (``fencing.silence``). -1 =
                nobody else writes.
        """
        self.operations.append(PutGroup(record, seen))

    def discard_group(self, group_key: str) -> None:
        """Delete a group, its members and what was returned to it."""
        self.operations.append(DiscardGroup(group_key))

    def put_group_member(self, group_key: str, client_id: str) -> None:
        """Record a durable session as a member of a group."""
        self.operations.append(PutGroupMember(group_key, client_id))

    def delete_group_member(self, group_key: str, client_id: str) -> None:
        """Record that a session is no member any more."""
        self.operations.append(DeleteGroupMember(group_key, client_id))

    def put_group_entry(
        self, group_key: str, entry: InboxEntry, *, client_id: str = "", epoch: int = 0
    ) -> None:
        """Return a message to a group, to be given to another member.

        Args:
            group_key: of the group.
            entry: the message.
            client_id, epoch: the session that had it, and its owner; empty = none had.
        """
        self.returns = True
        self.operations.append(PutGroupEntry(group_key, entry, client_id, epoch))

    def delete_group_entry(self, group_key: str, entry: InboxEntry) -> None:
        """Take a returned message out of a group, by its offset."""
        self.operations.append(DeleteGroupEntry(group_key, entry))

    def put_group_run(self, group_key: str, entries: list[InboxEntry]) -> None:
        """``put_group_entry`` for entries that are alike but for their messages.

        Args:
            group_key: of the group.
            entries: placed in this batch, one behind the other.
        """
        self.operations.append(PutGroupRun(group_key, entries))

    def delete_group_run(self, group_key: str, entries: list[InboxEntry]) -> None:
        """``delete_group_entry`` for all that one ``put_group_run`` has added."""
        self.operations.append(DeleteGroupRun(group_key, entries))

    # -- retained --------------------------------------------------------------------------

    def put_retained(self, message: Message) -> None:
        """Retain a message for its topic; it has an offset, or gets one in this batch."""
        _check_topic(message.topic)
        self.operations.append(PutRetained(message))

    def delete_retained(self, topic: str, *, publisher: str = "") -> None:
        """Clear the retained message of a topic; ``publisher`` has asked for it."""
        _check_topic(topic)
        self.operations.append(DeleteRetained(topic, publisher))

    # -- other nodes -----------------------------------------------------------------------

    def speak(self, client_id: str, *, epoch: int) -> None:
        """Let what a publisher says from here on count only if its session has no later owner; once
        is enough until it speaks for another one."""
        if self._speakers.get(client_id) != epoch:
            self._speakers[client_id] = epoch
            self._of_session(Speak(client_id, epoch, len(self.messages)))

    def speaks(self, client_id: str) -> bool:
        """Whether a publisher says anything in it."""
        return client_id in self._speakers

    def unspeak(self, client_id: str) -> None:
        """``speak`` was taken out again."""
        self._speakers.pop(client_id, None)

    def pass_on(self, message: Message, *, awaited: bool = True) -> None:
        """Have a message that is not recorded handed out elsewhere, too.

        Args:
            message: the message.
            awaited: somebody may wait for it (``is_awaited``).
        """
        self.operations.append(PassMessage(message, len(self.messages)))
        if not awaited:
            self._unawaited += 1

    def pass_share(self, client_id: str, entry: InboxEntry, *, epoch: int) -> None:
        """Have a session that another node has given an entry at QoS 0, which is kept nowhere."""
        self._of_session(PassShare(client_id, epoch, entry))

    def return_unseen(self, client_id: str, after_offset: int, *, epoch: int) -> None:
        """Return to their groups what a session, which this batch lets go, was given and has not
        seen.

        Args:
            client_id: of the session.
            after_offset: what its node has read last.
            epoch: of its owner.
        """
        self._of_session(ReturnUnseen(client_id, epoch, after_offset))

    def echo(self, node: str, asker: str, number: int) -> None:
        """Ask a node, or answer it (``peer_operations.Echo``)."""
        self.operations.append(Echo(node, asker, number))

    def dismiss(self, client_id: str, *, epoch: int, ends: bool) -> None:
        """Have the node that a client is connected to take leave of it, with its session if it
        ``ends``."""
        self._of_session(Dismiss(client_id, epoch, ends))

    # -- what is in it ---------------------------------------------------------------------

    def names_session(self, client_id: str) -> bool:
        """Whether a call on this session was added: what is read of it is not up to date."""
        return client_id in self._sessions

    def is_empty(self) -> bool:
        """Whether nothing was added that would be stored."""
        return not self.operations and not self.messages and self.rows is None

    @property
    def recorded_count(self) -> int:
        """Messages for the log, also those that came as rows."""
        return len(self.messages) if self.rows is None else self.rows.count

    def is_awaited(self) -> bool:
        """Whether somebody may wait for something in it to be sequenced: a log that is slow when
        nobody is in a hurry need not hurry otherwise."""
        return bool(len(self.operations) > self._unawaited or self.messages or self.placed)

    def recorded(self) -> list[Message]:
        """The messages for the log, also those that came as rows."""
        return self.messages if self.rows is None else self.rows.messages()

    @property
    def last_offset(self) -> int:
        """The last offset that it holds; 0 = it holds none."""
        if not self.first_offset:
            return 0
        return self.first_offset + len(self.messages) + len(self.placed) - 1

    def overtaken(self) -> list[tuple[str, int]]:
        """Sessions that had a later owner, and the epoch of the one that has lost them. Who has
        claimed one in vain has none to lose."""
        refused = self.refused
        claimed = {
            (each.client_id, each.epoch) for each in refused if isinstance(each, ClaimSession)
        }
        return sorted({(each.client_id, each.epoch) for each in refused} - claimed)

    @property
    def has_regrouped(self) -> bool:
        """Whether something that groups gave does not count, or has come back."""
        return bool(self.lost_groups or self.returned or self.returns)

    def gives(self, entry: InboxEntry) -> bool:
        """Whether an entry of a private stream counts."""
        return entry.group_key not in self.lost_groups and not any(
            each is entry for each in self.returned
        )

    def silent(self) -> set[int]:
        """The messages that do not count, by identity."""
        return {id(each) for unsaid in self.silenced.values() for each in unsaid.said()}

    def held(self) -> list[Operation]:
        """The operations that hold, in order; all of them before it is sequenced."""
        refused = self.refused
        if not refused:
            return self.operations
        return [operation for operation in self.operations if operation not in refused]


def give_offsets(batch: Batch, offsets: Offsets, now_us: int) -> None:
    """The batch enters the log: all that it holds has its offset.

    Args:
        offsets: of the log.
        now_us: time at which that is.
    """
    count = len(batch.messages) + len(batch.placed)
    if not count:
        return
    offset = offsets.take(count, now_us)
    batch.first_offset = offset
    for message in batch.messages:
        message.offset = offset
        offset += 1
    for thing in batch.placed:
        if isinstance(thing, Message):
            thing.offset = offset
        else:
            thing.offset = offset
        offset += 1


def apply(operations: list[Operation], target: Target) -> None:
    """Let a target do what operations say, in their order."""
    for operation in operations:
        operation.apply(target)


def _check_topic(topic: str) -> None:
    # [MQTT-1.5.4-2] not in any topic, which leaves it free to stand between levels in keys.
    if "\0" in topic:
        raise UsageError("a topic has no U+0000")
