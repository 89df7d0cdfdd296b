"""What a node needs of its own store besides ``storage.contract.Database``: to apply what others
submitted, with what it must remember of the log in the same write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perdure.model import InboxEntry
from perdure.storage.batch import Batch
from perdure.storage.contract import Database
from perdure.storage.notes import Note
from perdure.storage.offsets import Offsets


class Local(Database, Protocol):
    """A store in this process that can be a view of a shared log."""

    @property
    def offsets(self) -> Offsets:
        """Of its log."""
        ...

    def apply(self, batch: Batch, notes: Sequence[Note] = ()) -> None:
        """Write a batch that has its offsets, whoever submitted it; ``batch.refused`` tells what
        did not hold.

        Args:
            notes: written with it, all or nothing; later ones replace earlier ones of their keys.

        Raises:
            StorageError: nothing of it was written; see ``Database.submit``.
        """
        ...

    def notes(self) -> list[tuple[bytes, bytes]]:
        """Everything that was noted, by key."""
        ...

    @property
    def has_sessions(self) -> bool:
        """Whether there is any session."""
        ...

    def rewind_offsets(self) -> None:
        """Forget offsets that were given and whose batch was not applied."""
        ...

    def owner_epoch(self, client_id: str) -> int | None:
        """The epoch of a session's owner; None = there is no such session."""
        ...

    def group_turn(self, group_key: str) -> int:
        """The turn of a group's record; 0 = there is no such group."""
        ...

    def members_of(self, group_key: str) -> list[str]:
        """Client identifiers of a group's members."""
        ...

    def given_after(self, client_id: str, after_offset: int) -> list[InboxEntry]:
        """What stands in a session's private stream behind an offset, tombstones too."""
        ...

    def retained_offset_of(self, topic: str) -> int:
        """The offset of the retained message of a topic; 0 = there is none."""
        ...

    def expired_retained(self, now_us: int, *, limit: int) -> Batch:
        """A batch that deletes retained messages that have expired; changes nothing."""
        ...
