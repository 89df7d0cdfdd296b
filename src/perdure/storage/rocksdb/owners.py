"""Who owns which session: the epochs that fence stale writers.

The truth is the epoch in each session's record; this is a bounded memory of it, and of whether the
record has a deadline, which most have not.

Invariant: what is remembered equals what the record on disk says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from perdure.model import SessionRecord
from perdure.storage.codec import decode_session
from perdure.storage.rocksdb import keys
from perdure.storage.rocksdb.engine import STATE, Engine

_REMEMBERED_MAX: Final = 131_072


@final
class Owners:
    """The epochs of sessions."""

    __slots__ = ("_engine", "_known")

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine
        # The epoch if the record has no deadline, ~epoch if it has one; None = no record.
        self._known: dict[str, int | None] = {}

    def epoch(self, client_id: str) -> int | None:
        """The epoch of a session's record; None = there is no record."""
        known = self._recall(client_id)
        return known if known is None or known >= 0 else ~known

    def deadline_us(self, client_id: str) -> int:
        """The deadline in a session's record, 0 = none; -1 = there is no record."""
        known = self._recall(client_id)
        if known is None:
            return -1
        if known >= 0:
            return 0
        record = self._read(client_id)
        assert record is not None
        return record.deadline_us

    def seen(self, record: SessionRecord) -> None:
        """A record was read from disk."""
        self._remember(record.client_id, _value(record.epoch, record.deadline_us))

    def changed(self, epochs: dict[str, int | None], deadlines: dict[str, int]) -> None:
        """Take note of records that were written.

        Args:
            epochs: of their owners; None = deleted.
            deadlines: of those that were not deleted.
        """
        for client_id, epoch in epochs.items():
            known = None if epoch is None else _value(epoch, deadlines[client_id])
            self._remember(client_id, known)

    def forget(self) -> None:
        """Read everything from disk again."""
        self._known.clear()

    def _recall(self, client_id: str) -> int | None:
        if client_id not in self._known:
            record = self._read(client_id)
            if record is None:
                self._remember(client_id, None)
            else:
                self.seen(record)
        return self._known[client_id]

    def _read(self, client_id: str) -> SessionRecord | None:
        value = self._engine().get(STATE, keys.session(client_id))
        return None if value is None else decode_session(value)

    def _remember(self, client_id: str, known: int | None) -> None:
        if len(self._known) >= _REMEMBERED_MAX and client_id not in self._known:
            self._known.clear()
        self._known[client_id] = known


def _value(epoch: int, deadline_us: int) -> int:
    return ~epoch if deadline_us else epoch
