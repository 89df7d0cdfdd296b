"""What memory holds of every stored session: its owner's epoch and its next deadline.

Loaded once at the start and kept by every write, because only one broker writes: so a batch is
checked, and the reaper asked, without a look at the server. About 200 bytes a session.
"""

from __future__ import annotations

import heapq
from typing import final

from perdure.model import SessionRecord


@final
class Owners:
    """Epochs and deadlines of the stored sessions."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}
        # Earliest first; an entry that its session has left behind is dropped when it surfaces.
        self._deadlines: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._known)

    def put(self, record: SessionRecord) -> None:
        """A record was written."""
        deadline_us = record.deadline_us
        self._known[record.client_id] = (record.epoch, deadline_us)
        if deadline_us:
            heapq.heappush(self._deadlines, (deadline_us, record.client_id.encode()))
            if len(self._deadlines) > 2 * len(self._known) + 64:
                self._deadlines = sorted(
                    (due_us, client_id.encode())
                    for client_id, (_, due_us) in self._known.items()
                    if due_us
                )

    def discard(self, client_id: str) -> None:
        """A session is gone."""
        self._known.pop(client_id, None)

    def epoch(self, client_id: str) -> int | None:
        """The epoch of a session; None = there is none."""
        known = self._known.get(client_id)
        return None if known is None else known[0]

    def due(self, now_us: int, limit: int) -> list[str]:
        """Sessions whose deadline has come, earliest first."""
        found: list[tuple[int, bytes]] = []
        while len(found) < limit and self.next_deadline_us() and self._deadlines[0][0] <= now_us:
            entry = heapq.heappop(self._deadlines)
            if not found or found[-1] != entry:
                found.append(entry)
        for entry in found:
            heapq.heappush(self._deadlines, entry)
        return [client_id.decode() for _, client_id in found]

    def next_deadline_us(self) -> int:
        """The earliest deadline; 0 = none."""
        while self._deadlines:
            deadline_us, client_id = self._deadlines[0]
            known = self._known.get(client_id.decode())
            if known is not None and known[1] == deadline_us:
                return deadline_us
            heapq.heappop(self._deadlines)
        return 0
