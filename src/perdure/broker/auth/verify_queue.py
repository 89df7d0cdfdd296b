"""Which password check is next: a fair queue, by address and by user name. Pure.

::

    trusted clients   address A: [ada: c9 c2] [bob: c7]      address B: [eve: c8]
    all others        address C: [x1: c1] [x2: c3] ...       address A: [ann: c4]

Trusted clients (``guard``) come first. Then the addresses take turns, and within one the user
names, so that nobody's checks wait behind all of another's. Within an address what came last is
next: when more comes than can be checked, the oldest has been given up by its client already, and
who comes after a burst of wrong passwords is served at once instead of behind all of them. User
names that have failed from there come last.

Bounds: checks of one user name from one address, of one address, and of all. Beyond one of them
the oldest check of the longest line that is to blame is given up, and never one of an address
that has asked for less than the others.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection
from typing import Generic, TypeVar, final

_Check = TypeVar("_Check")


@final
class _Place(Generic[_Check]):
    """What waits of one address: lines of checks by user name; the first line is next."""

    __slots__ = ("count", "lines")

    def __init__(self) -> None:
        self.count = 0
        self.lines: OrderedDict[str, deque[_Check]] = OrderedDict()

    def add(self, user: str, check: _Check, *, has_failed: bool) -> None:
        line = self.lines.get(user)
        if line is None:
            line = self.lines[user] = deque()
            self.lines.move_to_end(user, last=has_failed)
        line.append(check)
        self.count += 1

    def take(self) -> _Check:
        user = next(iter(self.lines))
        check = self.lines[user].pop()
        self._shorten(user)
        if user in self.lines:
            self.lines.move_to_end(user)
        return check

    def give_up(self, user: str | None) -> _Check:
        """The oldest check of a user's line, or of the longest one."""
        if user is None:
            user = self._longest()
        check = self.lines[user].popleft()
        self._shorten(user)
        return check

    def length(self, user: str) -> int:
        return len(self.lines.get(user, ()))

    def _longest(self) -> str:
        longest, most = "", 0
        for user in reversed(self.lines):  # of equals, the one that has waited longest
            if len(self.lines[user]) > most:
                longest, most = user, len(self.lines[user])
        return longest

    def _shorten(self, user: str) -> None:
        self.count -= 1
        if not self.lines[user]:
            del self.lines[user]


@final
class VerifyQueue(Generic[_Check]):
    """Checks that wait for a thread.

    Args:
        total_max: checks that wait at once.
        address_max: of them, for one address; 0 = no such bound.
        user_max: of them, for one user name from one address; 0 = no such bound.
    """

    __slots__ = ("_lanes", "address_max", "count", "total_max", "user_max")

    def __init__(self, *, total_max: int, address_max: int = 0, user_max: int = 0) -> None:
        self.total_max = total_max
        self.address_max = address_max
        self.user_max = user_max
        self.count = 0
        """Checks that wait."""
        self._lanes: tuple[OrderedDict[str, _Place[_Check]], ...] = (OrderedDict(), OrderedDict())

    def add(
        self, address: str, user: str, check: _Check, *, trusted: bool, has_failed: bool = False
    ) -> tuple[_Check, str] | None:
        """Let a check wait.

        Args:
            address: what counts as the address of the client.
            user: its user name.
            check: what waits.
            trusted: the client has logged in from there before.
            has_failed: the user name has lately failed from there.

        Returns:
            The check that is given up for it, possibly itself, and the bound that is the
            reason (a setting of the section ``auth``); None = there was room.
        """
        lane = self._lanes[0 if trusted else 1]
        place = lane.get(address)
        if place is None:
            place = lane[address] = _Place()
        place.add(user, check, has_failed=has_failed)
        self.count += 1
        if self.user_max and place.length(user) > self.user_max:
            return self._give_up(lane, address, user), "auth.verify_pending_per_user_max"
        if self.address_max and place.count > self.address_max:
            return self._give_up(lane, address), "auth.verify_pending_per_address_max"
        if self.count > self.total_max:
            lane = self._lanes[1] or self._lanes[0]
            most = max(lane, key=lambda name: lane[name].count)
            return self._give_up(lane, most), "auth.verify_queue_max"
        return None

    def take(self, without: Collection[str] = ()) -> _Check | None:
        """The next check, or None.

        Args:
            without: addresses that have had their share; who is trusted there is served.
        """
        for trusted, lane in zip((True, False), self._lanes, strict=True):
            address = next((name for name in lane if trusted or name not in without), None)
            if address is not None:
                place = lane[address]
                check = place.take()
                self.count -= 1
                if place.count:
                    lane.move_to_end(address)
                else:
                    del lane[address]
                return check
        return None

    def _give_up(
        self, lane: OrderedDict[str, _Place[_Check]], address: str, user: str | None = None
    ) -> _Check:
        place = lane[address]
        check = place.give_up(user)
        self.count -= 1
        if not place.count:
            del lane[address]
        return check
