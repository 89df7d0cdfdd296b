"""Large packets that have begun and are not complete: how much of them all clients may have.

A packet is held until its last byte has come, and one may have megabytes. Whoever begins a large
one takes room for all of it; when there is none, its reading stops until others are done. So many
slow senders cost no more memory than a few fast ones. Nobody may keep others waiting for good:
while somebody waits, who sends its packet more slowly than ``PACE_BYTES`` a second is closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from perdure.broker.runtime.scheduler import Scheduler
    from perdure.clock import Clock

LARGE_FRAME_BYTES: Final = 64 * 1024
"""Packets up to this size need no room: what one read brings is as much."""
PACE_BYTES: Final = 64 * 1024
"""Bytes a second that a large packet comes with at least, while others wait for its room."""
GRACE_US: Final = 5_000_000
"""Time that every large packet has."""
LOOK_US: Final = 1_000_000
"""How often slow ones are looked for while somebody waits."""


class Sender(Protocol):
    """Whose packet it is."""

    @property
    def kept_bytes(self) -> int:
        """How much of the packet has come."""
        ...

    def has_room(self) -> None:
        """The packet may come now."""
        ...

    def too_slow(self) -> None:
        """Others wait for the room of this packet: close."""
        ...


@final
class InboundFrames:
    """The room of all large packets.

    Args:
        room_bytes: of them all; one is always let in.
        scheduler: looks for slow ones.
        clock: measures them.

    Attributes:
        taken_bytes: of those that have room.
    """

    __slots__ = (
        "_clock",
        "_looks",
        "_scheduler",
        "_senders",
        "_waiting",
        "room_bytes",
        "taken_bytes",
    )

    def __init__(self, room_bytes: int, scheduler: Scheduler, clock: Clock) -> None:
        self.room_bytes: int = room_bytes
        self.taken_bytes: int = 0
        self._scheduler: Scheduler = scheduler
        self._clock: Clock = clock
        self._senders: dict[Sender, tuple[int, int]] = {}
        self._waiting: dict[Sender, int] = {}
        self._looks: bool = False

    @property
    def waiting_count(self) -> int:
        """How many wait for room."""
        return len(self._waiting)

    def take(self, sender: Sender, size: int) -> bool:
        """Take room for a packet; False if its sender has to wait for ``has_room``."""
        if not self._waiting and self._fits(size):
            self._let_in(sender, size)
            return True
        self._waiting[sender] = size
        if not self._looks:
            self._looks = True
            self._scheduler.call_later(LOOK_US, self._look)
        return False

    def give_back(self, sender: Sender) -> None:
        """The packet is complete, or its sender is gone."""
        if self._waiting.pop(sender, 0):
            return
        taken = self._senders.pop(sender, None)
        if taken is None:
            return
        self.taken_bytes -= taken[0]
        admitted: list[Sender] = []
        for waiting, size in self._waiting.items():
            if not self._fits(size):
                break
            self._let_in(waiting, size)
            admitted.append(waiting)
        for waiting in admitted:
            del self._waiting[waiting]
        for waiting in admitted:
            waiting.has_room()

    def _fits(self, size: int) -> bool:
        return not self._senders or self.taken_bytes + size <= self.room_bytes

    def _let_in(self, sender: Sender, size: int) -> None:
        self._senders[sender] = size, self._clock.monotonic_us()
        self.taken_bytes += size

    def _look(self) -> None:
        """Close those that keep others waiting."""
        self._looks = False
        if not self._waiting:
            return
        now_us = self._clock.monotonic_us()
        slow: list[Sender] = []
        for sender, (_, since_us) in self._senders.items():
            due_us = now_us - since_us - GRACE_US
            if due_us > 0 and sender.kept_bytes * 1_000_000 < due_us * PACE_BYTES:
                slow.append(sender)
        for sender in slow:
            sender.too_slow()
        if self._waiting and not self._looks:
            self._looks = True
            self._scheduler.call_later(LOOK_US, self._look)
