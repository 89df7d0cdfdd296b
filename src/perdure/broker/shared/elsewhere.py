"""Members of shared groups that are connected to other nodes, for the groups that are served here.

What is known of one is what the log says: the record of its session (who has it, under which
epoch, how much its client takes), its subscriptions, and its cursor, which tells what it has
settled of what it was given. It is given what the log takes under that epoch; if its session has
another owner by then, it comes back (``storage.fencing``). Whether the rules let its client have a
message only its own node knows: that one returns what it may not have, and it is not given that
again.

Whose session changes is left alone until all that it was given here has passed the log, so that
what comes back is given before what follows it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, final

from perdure.broker.dispatch.router import Subscriber
from perdure.broker.shared.member import GroupMember
from perdure.errors import StorageError
from perdure.model import InboxEntry, Message, SessionRecord, StoredSession, Subscription

if TYPE_CHECKING:
    from perdure.broker.auth.authorize import Authorizer
    from perdure.broker.core import BrokerCore
    from perdure.broker.delivery.window_waiters import WindowWaiters

LOOKS_PER_TURN: Final = 64
"""Sessions of other nodes that are read in one turn."""

DECLINED_MAX: Final = 1_000
"""Messages of which is remembered that a member may not have them; the oldest are forgotten."""


@final
class SessionElsewhere(Subscriber):
    """A connected session of another node.

    Attributes:
        pending: what it was given here and has not settled, oldest first.
        window_max: how much of that there may be.
    """

    __slots__ = ("pending", "window_max")

    def __init__(self, record: SessionRecord) -> None:
        super().__init__(record, durable=True)
        self.pending: deque[InboxEntry] = deque()
        self.window_max: int = max(1, record.window)

    def has_room(self) -> bool:
        """Whether it may be given more."""
        return len(self.pending) < self.window_max

    def settled(self, through_offset: int) -> None:
        """Its cursor has come to an offset."""
        pending = self.pending
        while pending and 0 < pending[0].offset <= through_offset:
            pending.popleft()

    def returned(self, offset: int) -> bool:
        """An entry has gone back to its group; whether it was given here."""
        for entry in self.pending:
            if entry.offset == offset:
                self.pending.remove(entry)
                return True
        return False


@final
class MemberElsewhere(GroupMember):
    """A session of another node as a member of one group."""

    __slots__ = ("_declined", "session")

    def __init__(self, session: SessionElsewhere, sub: Subscription) -> None:
        record = session.record
        super().__init__(
            session,
            sub,
            packet_size_max=record.packet_bytes_max,
            version=record.protocol,
            window_max=session.window_max,
        )
        self.session: SessionElsewhere = session
        self._declined: dict[int, None] = {}

    @property
    def inflight_count(self) -> int:
        return len(self.session.pending)

    @property
    def is_available(self) -> bool:
        session = self.session
        return self.is_able and session.is_open and len(session.pending) < session.window_max

    def may_read(self, message: Message, authorizer: Authorizer) -> bool:
        return message.offset not in self._declined

    def declined(self, offset: int) -> None:
        """Its node has returned a message that it may not have."""
        if len(self._declined) >= DECLINED_MAX:
            del self._declined[next(iter(self._declined))]
        self._declined[offset] = None


class ServedGroup(Protocol):
    """What is done to a group that is served here."""

    key: str
    elsewhere: dict[str, MemberElsewhere]

    def use_elsewhere(self, members: dict[str, MemberElsewhere]) -> None:
        """Other members are connected elsewhere from now on, by their client identifiers."""
        ...


class Reclaim(Protocol):
    """Takes back what a session that nobody has holds of its groups."""

    def __call__(self, client_id: str) -> None: ...


@final
class MembersElsewhere:
    """The members of the groups that are served here whose connections are not.

    Args:
        core: what every part stands on.
        window_waiters: told when one of them has room.
        reclaim: takes back what those hold that are not connected any more.
    """

    def __init__(
        self, core: BrokerCore, *, window_waiters: WindowWaiters, reclaim: Reclaim
    ) -> None:
        self._core = core
        self._window_waiters: WindowWaiters = window_waiters
        self._reclaim = reclaim
        self._groups: dict[str, ServedGroup] = {}
        self._sessions: dict[str, SessionElsewhere] = {}
        self._left_behind: set[str] = set()
        """Sessions whose node is gone, and of which nobody has said yet that they are not
        connected."""
        self._wanted: dict[str, None] = {}
        self._looking: bool = False

    # -- the groups that are served here ---------------------------------------------------

    def serve(self, group: ServedGroup) -> None:
        """This node gives the messages of a group out from now on."""
        self._groups[group.key] = group
        self._core.spawn(lambda: self._find_members(group), name="group")

    def drop(self, group: ServedGroup) -> None:
        """It does not any more."""
        if self._groups.pop(group.key, None) is None:
            return
        members = group.elsewhere
        group.use_elsewhere({})
        for client_id, member in members.items():
            session = member.session
            session.pending = deque(e for e in session.pending if e.group_key != group.key)
            if not any(client_id in each.elsewhere for each in self._groups.values()):
                self._forget(client_id)

    async def _find_members(self, group: ServedGroup) -> None:
        core = self._core
        await core.pipeline.committed()
        for client_id in await core.database.group_members(group.key):
            self._wanted[client_id] = None
            # What it holds is taken back if nobody has it, however long that has been so.
            self._left_behind.add(client_id)
        self._look()

    # -- what the log says -----------------------------------------------------------------

    def joined(self, group_key: str, client_id: str) -> None:
        """A session of another node is a member of a group."""
        if group_key in self._groups:
            self._wanted[client_id] = None
            self._look()

    def parted(self, group_key: str, client_id: str) -> None:
        """A session is no member of a group any more."""
        group = self._groups.get(group_key)
        if group is not None and client_id in group.elsewhere:
            members = dict(group.elsewhere)
            del members[client_id]
            group.use_elsewhere(members)

    def changed(self, client_id: str) -> None:
        """The record of a session was written elsewhere: it may have another owner, or none."""
        if client_id in self._sessions or client_id in self._left_behind:
            self._part(client_id)
            self._wanted[client_id] = None
            self._look()

    def settled(self, client_id: str, offset: int) -> None:
        """The cursor of a session was written elsewhere."""
        session = self._sessions.get(client_id)
        if session is not None:
            session.settled(offset)
            if session.has_waiters and session.has_room():
                session.has_waiters = False
                self._window_waiters.notify(session)

    def returned(self, group_key: str, client_id: str, entry: InboxEntry) -> None:
        """A session has put back what it was given. If it stays, it may not have it."""
        session = self._sessions.get(client_id)
        if session is None or not session.returned(entry.offset):
            return
        group = self._groups.get(group_key)
        member = None if group is None else group.elsewhere.get(client_id)
        if member is not None and entry.message is not None:
            member.declined(entry.message.offset)

    def refused(self, entries: list[InboxEntry]) -> None:
        """What was given here has not arrived: its session has another owner."""
        for client_id, session in list(self._sessions.items()):
            for entry in entries:
                if any(each is entry for each in session.pending):
                    self.changed(client_id)
                    break

    def gone(self) -> None:
        """A node is gone: its sessions are to be left alone."""
        peers = self._core.peers
        assert peers is not None
        for client_id, session in list(self._sessions.items()):
            record = session.record
            if not peers.is_member(record.node, record.incarnation):
                self._part(client_id)
                self._left_behind.add(client_id)

    # -- looking ---------------------------------------------------------------------------

    def _part(self, client_id: str) -> None:
        """A session gets nothing more until it was looked at."""
        for group in self._groups.values():
            self.parted(group.key, client_id)
        session = self._sessions.get(client_id)
        if session is not None:
            session.is_open = False
            self._window_waiters.notify(session)

    def _forget(self, client_id: str) -> None:
        session = self._sessions.pop(client_id, None)
        if session is not None:
            session.is_open = False
            self._window_waiters.notify(session)

    def _look(self) -> None:
        if not self._looking and self._wanted:
            self._looking = True
            self._core.spawn(self._run, name="members")

    async def _run(self) -> None:
        core = self._core
        wanted: deque[str] = deque()
        count = 0
        goes_on = False
        try:
            while self._wanted:
                await core.until_writable()
                wanted = deque(self._wanted)
                self._wanted.clear()
                # All that they were given under what was known of them has passed the log then.
                await core.pipeline.committed()
                while wanted:
                    stored = await core.database.open_session(wanted[0])
                    client_id = wanted.popleft()
                    if client_id not in self._wanted:
                        self._found(client_id, stored)
                    count += 1
                    if not count % LOOKS_PER_TURN:
                        await core.yield_to_loop()
        except StorageError:
            # Nobody else would ask for them again.
            self._wanted.update(dict.fromkeys(wanted))
            goes_on = True
            raise
        finally:
            self._looking = goes_on

    def _found(self, client_id: str, stored: StoredSession | None) -> None:
        """What the store has of a session that may be a member."""
        peers = self._core.peers
        assert peers is not None
        record = None if stored is None else stored.record
        if stored is None or record is None or not self._groups:
            self._left_behind.discard(client_id)
            self._forget(client_id)
            return
        if not record.connected:
            before = self._sessions.get(client_id)
            held = client_id in self._left_behind or (before is not None and bool(before.pending))
            self._left_behind.discard(client_id)
            self._forget(client_id)
            if held and record.taken_over:
                # Its next connection has it soon, or its end is heard of: nothing passes on.
                self._left_behind.add(client_id)
            elif held:
                self._reclaim(client_id)
            return
        groups = [
            (self._groups[sub.group_key], sub)
            for sub in stored.subscriptions
            if sub.group and not sub.until_offset and sub.group_key in self._groups
        ]
        if not groups or record.node == peers.node:
            self._left_behind.discard(client_id)
            self._forget(client_id)
            return
        if not peers.is_member(record.node, record.incarnation):
            self._left_behind.add(client_id)
            self._forget(client_id)
            return
        self._left_behind.discard(client_id)
        session = self._sessions.get(client_id)
        if session is None or session.record.epoch != record.epoch or not session.is_open:
            session = self._sessions[client_id] = SessionElsewhere(record)
        for group, sub in groups:
            group.use_elsewhere({**group.elsewhere, client_id: MemberElsewhere(session, sub)})
