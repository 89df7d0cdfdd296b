"""What clients have sent that nobody knows yet, while it waits for its turn.

A CONNECT may have 128 KiB. Where many come that are that large, they come faster than they can be
handled, and each waits as a whole. So all that wait have a room; who finds none is closed, and may
come again. Of usual size a hundred thousand of them have room.
"""

from __future__ import annotations

from typing import final


@final
class Newcomers:
    """The room of what waits.

    Args:
        room_bytes: of all; one is always let in; 0 = no limit.

    Attributes:
        taken_bytes: of those that wait.
    """

    __slots__ = ("room_bytes", "taken_bytes")

    def __init__(self, room_bytes: int) -> None:
        self.room_bytes: int = room_bytes
        self.taken_bytes: int = 0

    def take(self, size: int) -> bool:
        """Take room for some bytes; False if there is none."""
        if self.room_bytes and self.taken_bytes and self.taken_bytes + size > self.room_bytes:
            return False
        self.taken_bytes += size
        return True

    def give_back(self, size: int) -> None:
        """They wait no more."""
        self.taken_bytes -= size
