"""Rows that are read and counted in short steps, so that clients are served in between.

A page that refreshes itself must not keep the loop: a store takes 5 ms for 10,000 messages. Of what
is there only a little may match, and not every store bounds what it looks at in vain. Offsets are
times, so a count looks at stretches of the log that grow where they take little time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, final

from perdure.model import InboxEntry
from perdure.server.turns import STEP_NS, Turns
from perdure.session.pending_pages import Counted, CountedRows, Recorded

COUNTED_MAX: Final = 256
"""Messages that are read or counted in one step."""

STRETCH_FIRST_US: Final = 100_000
GROWTH: Final = 4

SHORT_NS: Final = 2 * STEP_NS
"""A stretch that took longer is not followed by a longer one."""
LONG_NS: Final = 8 * STEP_NS
"""One that took longer is followed by a shorter one."""


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
        self._stretch_us = STRETCH_FIRST_US

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
        end = min(until_offset, after_offset + self._stretch_us)
        begun_ns = time.perf_counter_ns()
        found = await self._rows.count(
            filters, after_offset=after_offset, until_offset=end, limit=min(limit, COUNTED_MAX)
        )
        took_ns = time.perf_counter_ns() - begun_ns
        if took_ns > LONG_NS:
            self._stretch_us = max(1, self._stretch_us // GROWTH)
        elif took_ns <= SHORT_NS and found.through_offset == end:
            self._stretch_us *= GROWTH
        return found
