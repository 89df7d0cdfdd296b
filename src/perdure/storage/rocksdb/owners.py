"""Who owns which session: the epochs that fence stale writers.

The truth is the epoch in each session's record; this is a bounded memory of it.

Invariant: what is remembered equals what the record on disk says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from perdure.storage.codec import decode_session
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.engine import STATE, Engine

_REMEMBERED_MAX: Final = 131_072


@final
class Owners:
    """The epochs of sessions.

    Attributes:
        changes: grows whenever an epoch changed; while it stands still, a check still holds.
    """

    __slots__ = ("_engine", "_epochs", "changes")

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine
        self._epochs: dict[str, int | None] = {}
        self.changes = 0

    def epoch(self, client_id: str) -> int | None:
        """The epoch of a session's record; None = there is no record."""
        try:
            return self._epochs[client_id]
        except KeyError:
            value = self._engine().get(STATE, keys.session(client_id))
            epoch = None if value is None else decode_session(value).epoch
            self._remember(client_id, epoch)
            return epoch

    def changed(self, epochs: dict[str, int | None]) -> None:
        """Take note of records that were written (None = deleted)."""
        if epochs:
            self.changes += 1
            for client_id, epoch in epochs.items():
                self._remember(client_id, epoch)

    def forget(self) -> None:
        """Read everything from disk again."""
        self._epochs.clear()
        self.changes += 1

    def _remember(self, client_id: str, epoch: int | None) -> None:
        if len(self._epochs) >= _REMEMBERED_MAX and client_id not in self._epochs:
            self._epochs.clear()
        self._epochs[client_id] = epoch
