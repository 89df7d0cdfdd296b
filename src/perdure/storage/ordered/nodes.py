"""What a replica tells the broker on it of the other nodes (``storage.peers.Peers``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from perdure.errors import StorageError
from perdure.storage.batch import Batch
from perdure.storage.ordered.duties import owner_of
from perdure.storage.ordered.members import Ended, Members
from perdure.storage.ordered.view import View
from perdure.storage.peers import Gone, PeerNode


@final
class Nodes:
    """The nodes of a replica's log.

    Args:
        node: this one's name.
        view: what was applied.
        hurry: somebody waits for what comes next.
        rest: nobody does.

    Attributes:
        hurry, rest: see ``Peers``.
        incarnation: of this process.
        on_foreign, on_gone, on_failed: see ``Peers``.
        on_time: called with the log time of what was read last.
        on_applied: called with how many messages were in what was read last, and the CPU time that
            it has taken, microseconds.
    """

    def __init__(
        self, node: str, view: View, hurry: Callable[[], None], rest: Callable[[], None]
    ) -> None:
        self._node = node
        self.hurry = hurry
        self.rest = rest
        self._view = view
        self.incarnation = 0
        self.on_foreign: Callable[[Batch], None] | None = None
        self.on_gone: Callable[[Gone], None] | None = None
        self.on_failed: Callable[[StorageError], None] | None = None
        self.on_time: Callable[[int], None] | None = None
        self.on_applied: Callable[[int, int], None] | None = None

    @property
    def node(self) -> str:
        return self._node

    @property
    def position(self) -> int:
        return self._view.position

    @property
    def members(self) -> Members:
        """Who is in the cluster."""
        return self._view.members

    def is_member(self, node: str, incarnation: int) -> bool:
        return self.members.holds(node, incarnation)

    def gone_at_us(self, node: str) -> int:
        member = self.members.get(node)
        return 0 if member is None else member.left_us

    def nodes(self) -> list[PeerNode]:
        return [
            PeerNode(member.name, "running", member.joined_us)
            if member.incarnation
            else PeerNode(member.name, member.reason, member.left_us)
            for member in self.members.all()
        ]

    def owns(self, duty: str) -> bool:
        return owner_of(duty, [member.name for member in self.members.current()]) == self._node

    def others(self) -> list[str]:
        """Addresses at which clients reach other members that have told theirs, by name."""
        return [
            member.advertise
            for member in self.members.current()
            if member.advertise and member.name != self._node
        ]

    def tell_gone(self, ended: Ended, *, is_own: bool) -> None:
        """An incarnation has ended."""
        if self.on_gone is not None:
            self.on_gone(Gone(ended.node, ended.at_us, is_own))
