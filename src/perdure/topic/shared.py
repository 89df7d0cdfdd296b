"""Which member of a shared subscription gets a message (MQTT 5.0 section 4.8.2).

A ``Chooser`` holds what one group has to remember between messages: a position or a client id.
It does not know sessions, only what a ``Member`` shows of one, and it has no chance of its own.

Invariant: a member that is not available is never chosen while another one is.

=================  ======================================================================
strategy           chooses
=================  ======================================================================
round_robin        each available member in turn; of many messages at once, each an equal part
random             any available member, all equally likely
sticky             the same member until it is not available, then a random one
hash_publisher     the same member for all messages of a publisher
hash_topic         the same member for all messages of a topic
least_inflight     a member with the fewest messages in flight, in turn among equals
=================  ======================================================================

Of what comes together a strategy may give stretches (``stretches``): what a member gets in a row is
stored and sent as one, for less than one by one.

The two hashes keep the order within a publisher or a topic. When a member comes or goes, only
the publishers or topics that it takes or leaves change their member, and the choice is the same
in every process.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol, TypeAlias, assert_never, final

Strategy: TypeAlias = Literal[
    "round_robin", "random", "sticky", "hash_publisher", "hash_topic", "least_inflight"
]

Draw: TypeAlias = Callable[[int], int]
"""A random integer from 0 up to, but not including, the argument; ``Random.randrange`` is one."""

NOBODY: Final = -1
"""What ``choose`` returns when no member is available."""

STRETCH_MIN: Final = 4
"""Messages of a stretch below which members take turns with each message."""

_MASK_64: Final = 0xFFFF_FFFF_FFFF_FFFF


class Member(Protocol):
    """What a chooser has to know of a member of a group."""

    @property
    def client_id(self) -> str:
        """The member's client id."""
        ...

    @property
    def inflight_count(self) -> int:
        """Messages sent to it and not acknowledged yet."""
        ...

    @property
    def is_available(self) -> bool:
        """Whether it can take a message now."""
        ...


class Chooser(ABC):
    """Chooses members for the messages of one group."""

    __slots__ = ()

    @abstractmethod
    def choose(self, members: Sequence[Member], *, topic: str, publisher: str) -> int:
        """The index of the member that gets a message, or ``NOBODY``.

        Args:
            members: the group, in an order that does not change between calls except by members
                that come and go.
            topic: topic name of the message.
            publisher: client id of its publisher.
        """

    def stretches(self, members: Sequence[Member], count: int) -> tuple[int, int]:
        """How many messages in a row who is chosen for the first of them is given, if it has room.

        Args:
            members: the group.
            count: messages that came together, which no member has been given.

        Returns:
            Length of a stretch, at least 1, and how many of the messages are given in stretches:
            the others are given one by one.
        """
        return 1, 0


def make_chooser(strategy: Strategy, draw: Draw) -> Chooser:
    """A chooser for a new group."""
    match strategy:
        case "round_robin":
            return _RoundRobin()
        case "random":
            return _Random(draw)
        case "sticky":
            return _Sticky(draw)
        case "hash_publisher":
            return _Hash(by_topic=False)
        case "hash_topic":
            return _Hash(by_topic=True)
        case "least_inflight":
            return _LeastInflight()
        case _:
            assert_never(strategy)


@final
class _RoundRobin(Chooser):
    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def choose(self, members: Sequence[Member], *, topic: str, publisher: str) -> int:
        count = len(members)
        for step in range(count):
            index = (self._next + step) % count
            if members[index].is_available:
                self._next = index + 1
                return index
        return NOBODY

    def stretches(self, members: Sequence[Member], count: int) -> tuple[int, int]:
        if count < STRETCH_MIN * len(members):
            return 1, 0
        # Whole rounds: after them, and the rest one by one, each member has as many as if all had
        # come one by one.
        available = sum([member.is_available for member in members])
        if not available:
            return 1, 0
        length = count // available
        return length, length * available


@final
class _Random(Chooser):
    __slots__ = ("_draw",)

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def choose(self, members: Sequence[Member], *, topic: str, publisher: str) -> int:
        return _draw_available(members, self._draw)


@final
class _Sticky(Chooser):
    __slots__ = ("_client_id", "_draw", "_index")

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._client_id = ""
        self._index = NOBODY

    def choose(self, members: Sequence[Member], *, topic: str, publisher: str) -> int:
        index = self._find(members)
        if index == NOBODY or not members[index].is_available:
            index = _draw_available(members, self._draw)
            if index == NOBODY:
                return NOBODY
            self._client_id = members[index].client_id
        self._index = index
        return index

    def stretches(self, members: Sequence[Member], count: int) -> tuple[int, int]:
        return max(count, 1), count

    def _find(self, members: Sequence[Member]) -> int:
        """Where the member is now: mostly where it was."""
        if self._index == NOBODY:
            return NOBODY
        if self._index < len(members) and members[self._index].client_id == self._client_id:
            return self._index
        for index, member in enumerate(members):
            if member.client_id == self._client_id:
                return index
        return NOBODY


@final
class _Hash(Chooser):
    """Rendezvous hashing: the member with the highest weight for the key."""

    __slots__ = ("_by_topic", "_hashes")

    def __init__(self, *, by_topic: bool) -> None:
        self._by_topic = by_topic
        self._hashes: dict[str, int] = {}

    def choose(self, members: Sequence[Member], *, topic: str, publisher: str) -> int:
        hashes = self._hashes
        if len(hashes) > 2 * len(members) + 16:
            # Hashes of members that have gone.
            hashes.clear()
        key = zlib.crc32((topic if self._by_topic else publisher).encode())
        best = NOBODY
        best_weight = -1
        for index, member in enumerate(members):
            if not member.is_available:
                continue
            client_id = member.client_id
            member_hash = hashes.get(client_id)
            if member_hash is None:
                member_hash = hashes[client_id] = zlib.crc32(client_id.encode()) << 32
            weight = _mix(member_hash | key)
            if weight > best_weight or (
                weight == best_weight and client_id < members[best].client_id
            ):
                best = index
                best_weight = weight
        return best


@final
class _LeastInflight(Chooser):
    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def choose(self, members: Sequence[Member], *, topic: str, publisher: str) -> int:
        count = len(members)
        best = NOBODY
        best_count = 0
        for step in range(count):
            index = (self._next + step) % count
            member = members[index]
            if member.is_available and (best == NOBODY or member.inflight_count < best_count):
                best = index
                best_count = member.inflight_count
        if best != NOBODY:
            self._next = best + 1
        return best


def _draw_available(members: Sequence[Member], draw: Draw) -> int:
    """A random available member, all equally likely."""
    if not members:
        return NOBODY
    # Mostly all are available, and one look is enough.
    index = draw(len(members))
    if members[index].is_available:
        return index
    available = [index for index, member in enumerate(members) if member.is_available]
    return available[draw(len(available))] if available else NOBODY


def _mix(value: int) -> int:
    """Spread 64 bits: without this, weights of different keys would order members alike.

    The multipliers are those of the finalizer that is known as MurmurHash3's.
    """
    value ^= value >> 33
    value = value * 0xFF51_AFD7_ED55_8CCD & _MASK_64
    value ^= value >> 33
    value = value * 0xC4CE_B9FE_1A85_EC53 & _MASK_64
    return value ^ value >> 33
