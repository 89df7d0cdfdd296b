"""What a broker is told by a database that others write to as well (``Capabilities.peers``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from perdure.errors import StorageError
from perdure.storage.batch import Batch

_OWN_BITS: Final = 8
"""Of an epoch: what its owner adds to it, when it claims again, begins anew, lets go."""
_INCARNATION_MASK: Final = 0xFFFF
_STEP_BITS: Final = _OWN_BITS + 16


class Gone(NamedTuple):
    """A node is none of the others' any more, and holds no session.

    Attributes:
        node: its name.
        at_us: log time from which what it held is let go.
        is_own: it is this node.
    """

    node: str
    at_us: int
    is_own: bool


class PeerNode(NamedTuple):
    """What is known of a node.

    Attributes:
        name: its name.
        state: ``running``, or why it is no member (``left``, ``expelled`` and the like).
        since_us: log time since which it is so.
    """

    name: str
    state: str
    since_us: int


class Peers(Protocol):
    """The nodes of one log, as far as this one has read.

    Attributes:
        on_foreign: called with each batch of another node when it was applied.
        on_gone: called when an incarnation has ended.
        on_failed: called when this one can take nothing more, until ``Database.recover``.
    """

    on_foreign: Callable[[Batch], None] | None
    on_gone: Callable[[Gone], None] | None
    on_failed: Callable[[StorageError], None] | None

    def hurry(self) -> None:
        """Somebody here waits for what other nodes say: let it come at once, for a while."""
        ...

    def rest(self) -> None:
        """Nobody is here for whom anything could come, or whom another node could ask for: let
        what other nodes say gather, until a batch is submitted or ``hurry`` is called."""
        ...

    @property
    def node(self) -> str:
        """This node's name."""
        ...

    @property
    def incarnation(self) -> int:
        """This process's number among all of that name."""
        ...

    @property
    def position(self) -> int:
        """How far it has read: higher after each record, of whomever."""
        ...

    def is_member(self, node: str, incarnation: int) -> bool:
        """Whether an incarnation is a member."""
        ...

    def gone_at_us(self, node: str) -> int:
        """Log time at which a node was a member last; 0 = it is one, or was never heard of."""
        ...

    def nodes(self) -> list[PeerNode]:
        """All that were ever heard of and not forgotten, by name."""
        ...

    def owns(self, duty: str) -> bool:
        """Whether it is for this node to do what one of them has to do."""
        ...


def epoch_after(peers: Peers, seen: int) -> int:
    """The epoch of a session's owner after one that was read; 0 = there was no session."""
    step = max((seen >> _STEP_BITS) + 1, peers.position)
    return (step << _STEP_BITS) | (peers.incarnation & _INCARNATION_MASK) << _OWN_BITS
