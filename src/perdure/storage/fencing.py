"""Who may write: what a batch knows of the owners of the sessions that it names.

Knows epochs and nothing of what is written with them. A session has one owner at a time, whose
epoch is in its record; a takeover writes a later one.

Invariant: whoever was overtaken before a call, or between a call and the write, writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from perdure.errors import Fenced


@final
class Fences:
    """The fencing of one batch; see ``storage.contract.Batch``.

    Args:
        owner_epoch: epoch of a stored session; None = there is no such session.
    """

    __slots__ = ("_expects", "_owner_epoch", "_replaces", "_staged")

    def __init__(self, owner_epoch: Callable[[str], int | None]) -> None:
        self._owner_epoch = owner_epoch
        # Owners as this batch leaves them; None = discarded.
        self._staged: dict[str, int | None] = {}
        # What must still hold at the write: the session is there and its owner is not later
        # than this; or, for a record, only the latter.
        self._expects: dict[str, int] = {}
        self._replaces: dict[str, int] = {}

    def put_record(self, client_id: str, epoch: int) -> None:
        """The batch writes a session's record, and so names its owner.

        Raises:
            Fenced: the session has a later owner.
        """
        owner = self._owner(client_id)
        if owner is not None and epoch < owner:
            raise Fenced(f"session {client_id!r}: epoch {epoch} after {owner}")
        if client_id not in self._staged:
            self._replaces[client_id] = epoch
        self._staged[client_id] = epoch

    def discard(self, client_id: str) -> None:
        """The batch discards a session: the next record may have any epoch."""
        self._staged[client_id] = None

    def check(self, client_id: str, epoch: int) -> None:
        """The batch writes for a session's owner.

        Raises:
            Fenced: the session has a later owner, or there is none.
        """
        owner = self._owner(client_id)
        if owner is None:
            raise Fenced(f"session {client_id!r} does not exist")
        if epoch < owner:
            raise Fenced(f"session {client_id!r}: epoch {epoch} after {owner}")
        if client_id not in self._staged:
            self._expects[client_id] = min(epoch, self._expects.get(client_id, epoch))

    def names(self, client_id: str) -> bool:
        """Whether the batch writes anything of a session."""
        return client_id in self._staged or client_id in self._expects

    def refuse_if_stale(self) -> None:
        """Look again, at the write.

        Raises:
            Fenced: a session of the batch got a later owner, or went, since it was staged.
        """
        for client_id, epoch in self._expects.items():
            owner = self._owner_epoch(client_id)
            if owner is None or epoch < owner:
                raise _stale(client_id)
        for client_id, epoch in self._replaces.items():
            owner = self._owner_epoch(client_id)
            if owner is not None and epoch < owner:
                raise _stale(client_id)

    def _owner(self, client_id: str) -> int | None:
        if client_id in self._staged:
            return self._staged[client_id]
        return self._owner_epoch(client_id)


def _stale(client_id: str) -> Fenced:
    return Fenced(f"session {client_id!r} has a later owner or is gone")
