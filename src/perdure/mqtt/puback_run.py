"""PUBACKs that came one behind the other: most of what a subscriber sends, and all alike.

One object for all of them, since an object for each costs more than to settle what it is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, final

if TYPE_CHECKING:
    # A machine word in the compiled build; an int is asked at each step whether it is one.
    from mypy_extensions import i64

PUBACK_SIZE: Final = 4
"""Bytes of a PUBACK without a reason code."""


@final
class PubackRun:
    """Several PUBACKs without a reason code, as they came.

    Attributes:
        raw: ``PUBACK_SIZE`` bytes each, the last two its packet identifier, which is not 0.
    """

    __slots__ = ("raw",)
    kind: ClassVar[int] = 4

    def __init__(self, raw: bytes) -> None:
        self.raw: bytes = raw

    def __len__(self) -> int:
        return len(self.raw) // PUBACK_SIZE


def end_of_pubacks(data: bytes, at: i64, end: i64, most: i64) -> i64:
    """Where the PUBACKs end that stand in ``data`` from ``at`` on.

    Args:
        end: of the bytes that came.
        most: PUBACKs that are looked at.
    """
    if at + PUBACK_SIZE * most < end:
        end = at + PUBACK_SIZE * most
    while (
        at + PUBACK_SIZE <= end
        and data[at] == 0x40
        and data[at + 1] == 2
        and (data[at + 2] or data[at + 3])
    ):
        at += PUBACK_SIZE
    return at
