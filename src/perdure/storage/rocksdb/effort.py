"""How many rows a read may look at before it says how far it has come.

Filters may want little of what they have to be looked for in: with hundreds of them on one
structure each of its rows is tried, and two tokens of one filter may both be frequent and seldom
meet. A read of what they want from millions of rows would hold up everything else.
"""

from __future__ import annotations

from typing import Final, final

ROWS_MAX: Final = 4_096
"""Rows that one read looks at without use, all its streams together: some milliseconds."""

PART_ROWS_MIN: Final = 32
"""Rows of each part of it in any case, so that every read comes further."""


@final
class Effort:
    """What one read has looked at.

    Args:
        rows_max, part_rows_min: see the constants.

    Attributes:
        through_offset: where it ended because it had looked at enough; -1 = it has not.
    """

    __slots__ = ("_part_rows_min", "_rows_left", "through_offset")

    def __init__(self, rows_max: int = ROWS_MAX, *, part_rows_min: int = PART_ROWS_MIN) -> None:
        self._rows_left: int = rows_max
        self._part_rows_min: int = part_rows_min
        self.through_offset: int = -1

    def is_spent(self, rows: int) -> bool:
        """Count one more row; whether a part of the read that has looked at ``rows`` before ends
        here instead."""
        if self._rows_left <= 0 and rows >= self._part_rows_min:
            return True
        self._rows_left -= 1
        return False
