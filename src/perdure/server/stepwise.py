"""Rows that are read and counted in short steps, so that clients are served in between.

A page that refreshes itself must not keep the loop: a store takes 5 ms for 10,000 messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from perdure.model import InboxEntry
from perdure.server.turns import Turns
from perdure.session.pending_pages import Counted, CountedRows, Recorded

COUNTED_MAX: Final = 256
"""Messages that are read or counted in one step."""


@final
class StepwiseRows(CountedRows):
    """Rows that are looked at in steps.

    Args:
        rows: where they are.
        pauses: a broker serves clients in this process.
    """

    def __init__(self, rows: CountedRows, *, pauses: bool = True) -> None:
        self._rows = rows
        self._turns = Turns(pauses=pauses)

    async def read(
        self,
        filters: Sequence[str],
        *,
        after_offset: int,
        until_offset: int,
        limit: int,
        bytes_max: int = 0,
    ) -> Recorded:
        """A page of the log."""
        await self._turns.step()
        return await self._rows.read(
            filters,
            after_offset=after_offset,
            until_offset=until_offset,
            limit=min(limit, COUNTED_MAX),
            bytes_max=bytes_max,
        )

    async def read_inbox(
        self, client_id: str, *, after_offset: int, until_offset: int, limit: int
    ) -> list[InboxEntry]:
        """Entries of the private stream, read in pages."""
        found: list[InboxEntry] = []
        while len(found) < limit and after_offset < until_offset:
            await self._turns.step()
            size = min(limit - len(found), COUNTED_MAX)
            page = await self._rows.read_inbox(
                client_id, after_offset=after_offset, until_offset=until_offset, limit=size
            )
            found += page
            if len(page) < size:
                break
            after_offset = page[-1].offset
        return found

    async def count(
        self, filters: Sequence[str], *, after_offset: int, until_offset: int, limit: int
    ) -> Counted:
        """A page of a count."""
        await self._turns.step()
        return await self._rows.count(
            filters,
            after_offset=after_offset,
            until_offset=until_offset,
            limit=min(limit, COUNTED_MAX),
        )
