"""A group's record, and which node has the group.

Of several nodes one gives out what a group has, to the members of all: the one that its record
names. A record is written over the one that was read (``turn``), so of two nodes that take a group
at once one is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from perdure.broker.dispatch.router import GroupSubscriber
from perdure.broker.shared.returned import ReturnedEntries
from perdure.model import GroupRecord
from perdure.storage.batch import Batch

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore
    from perdure.broker.shared.elsewhere import MemberElsewhere, MembersElsewhere

_OWN_BITS: Final = 24
"""Of a turn, which are the incarnation's that wrote it; above them turns are counted."""
_OWN_MASK: Final = (1 << _OWN_BITS) - 1


class OwnedGroup(GroupSubscriber):
    """A group, as far as its record says it.

    Attributes:
        record: as it was written or read last.
        position: offset up to which messages were given out; in the record when that is written.
        elsewhere: members that are connected to other nodes, by their client identifiers, as far
            as this node gives to them.
        returned: what came back from members.
    """

    def __init__(
        self, core: BrokerCore, record: GroupRecord, members_elsewhere: MembersElsewhere | None
    ) -> None:
        super().__init__(record.key, record.filter, record.where)
        self._core = core
        self._members_elsewhere: MembersElsewhere | None = members_elsewhere
        self.record: GroupRecord = record
        self.position: int = record.position
        self.elsewhere: dict[str, MemberElsewhere] = {}
        self.returned = ReturnedEntries(core, record.key)
        self._is_released: bool = False
        """The record that says that this node does not have the group is to be written."""

    def use_elsewhere(self, members: dict[str, MemberElsewhere]) -> None:
        """Other members are connected elsewhere from now on, by their client identifiers."""
        raise NotImplementedError

    @property
    def is_served(self) -> bool:
        """Whether this node gives its messages out: of several one does, to the members of all."""
        peers = self._core.peers
        if peers is None:
            return True
        return self.record.node == peers.node and self.record.incarnation == peers.incarnation

    def serve(self) -> bool:
        """Take the group if no node that lives has it; returns whether this one has it now.

        Of two nodes that take it at once the record of one is refused, with all that it gave.
        """
        peers = self._core.peers
        if peers is None or self.is_served:
            return True
        record = self.record
        if record.node and peers.is_member(record.node, record.incarnation):
            return False
        self._own(peers.node, peers.incarnation)
        return True

    def let_go(self) -> None:
        """No member is here any more: members on another node may have the group."""
        if self._core.peers is not None and self.is_served:
            self._own("", 0)

    @property
    def has_elsewhere(self) -> bool:
        """Whether members are connected to other nodes."""
        peers = self._core.peers
        if peers is None:
            return False
        if self.is_served:
            return bool(self.elsewhere)
        # Who serves it has members.
        return bool(self.record.node) and peers.is_member(self.record.node, self.record.incarnation)

    def _own(self, node: str, incarnation: int) -> None:
        self.record = msgspec.structs.replace(self.record, node=node, incarnation=incarnation)
        self.returned.forget()
        self._is_released = not node
        assert self._members_elsewhere is not None
        if node:
            self._members_elsewhere.serve(self)
        else:
            self._members_elsewhere.drop(self)
        self._core.cursors.group_moved(self, gives=True)

    def put(self, batch: Batch) -> None:
        """Add the record to a batch."""
        peers = self._core.peers
        if peers is None:
            self.record = msgspec.structs.replace(self.record, position=self.position)
            batch.put_group(self.record)
            return
        if not self.is_served and not self._is_released:
            return
        self._is_released = False
        seen = self.record.turn
        # No other node has the same number: what goes on from a record that was refused must not
        # seem to go on from the one that was there before it.
        turn = (seen >> _OWN_BITS) + 1 << _OWN_BITS | peers.incarnation & _OWN_MASK
        self.record = msgspec.structs.replace(self.record, position=self.position, turn=turn)
        batch.put_group(self.record, seen=seen)
