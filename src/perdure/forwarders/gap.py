"""What retention has dropped before a forwarder had read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.config.units import format_time

if TYPE_CHECKING:
    from perdure.forwarders.output import Context


@final
class GapWatch:
    """Says once of each gap what is missing at the target.

    Args:
        context: of the forwarder.

    Attributes:
        found_at_us: monotonic time of the last one; 0 = there was none.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._told_offset = 0
        self.found_at_us: int = 0

    def look(self) -> None:
        """Compare the cursor with where the log begins now."""
        context = self._context
        core, offset = context.core, context.session.cursor.offset
        first = core.database.generations()[0]
        if first.generation <= 1 or not 0 < offset < first.since_offset - 1:
            return
        if first.since_offset == self._told_offset:
            return
        after = max(offset, self._told_offset)
        self._told_offset = first.since_offset
        self.found_at_us = core.clock.monotonic_us()
        context.counts.gap()
        context.log.error(
            "forwarder.gap",
            after=format_time(after),
            until=format_time(first.since_offset),
            hint="retention has dropped messages that were not forwarded",
        )
