"""What was read of the log behind a page, for the reader that goes on from there.

A page is as long as a client's window has room, often a few hundred messages, and to begin one
costs an iterator for each stream that is merged. So a reader that continues where its last page
ended is read ahead for, and its next pages are cut from memory. A page that nobody continues costs
nothing.

Invariant: what is held begins right behind the page that was given, and nothing between its bounds
is left out: the log below ``until`` does not change, but for generations that are dropped.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from perdure.model import Message

PAGES: Final = 8
"""Pages that are read at once for a reader that goes on."""

MESSAGES_MAX: Final = 2_048
"""Messages that are read at once for its sake."""

BYTES_MAX: Final = 256 * 1024
"""Bytes of them; one that is larger is not read ahead."""

READERS_MAX: Final = 16
"""Readers that something is held for; all of it is ``BYTES_MAX`` for each of them."""

UNUSED_READS_MAX: Final = 4_096
"""Reads after which what is held for a reader who has not come is let go for another's sake."""

_PAGES_NOTED_MAX: Final = 256
"""Ends of pages that are remembered, to tell who goes on."""

_FILTERS_MAX: Final = 64
"""More filters are not compared."""

Place: TypeAlias = tuple[tuple[str, ...], int]
"""Filters, and the offset behind which a reader goes on."""


@final
class Held:
    """Messages that follow a page.

    Attributes:
        messages: by offset.
        through_offset: nothing else matches up to here.
        read: which read it was that gave it.
    """

    __slots__ = ("messages", "read", "through_offset")

    def __init__(self, messages: list[Message], through_offset: int, read: int) -> None:
        self.messages: list[Message] = messages
        self.through_offset: int = through_offset
        self.read: int = read


@final
class ReadAhead:
    """Of one log."""

    def __init__(self) -> None:
        self._held: dict[Place, Held] = {}
        self._ends: dict[Place, None] = {}
        self._reads: int = 0

    def take(self, place: Place, until_offset: int) -> Held | None:
        """What is held for a reader, which is then held no longer; None = nothing.

        Args:
            place: where it goes on.
            until_offset: the last offset that it wants.
        """
        held = self._held.get(place)
        if held is None or held.through_offset > until_offset:
            return None
        del self._held[place]
        return held

    def most(self, place: Place, limit: int) -> int:
        """How many messages to read for a reader that wants a page of ``limit``."""
        self._reads += 1
        if place not in self._ends:
            return limit
        del self._ends[place]
        if len(self._held) >= READERS_MAX and not self._let_go():
            return limit
        return max(limit, min(limit * PAGES, MESSAGES_MAX))

    def gave(
        self, place: Place, through_offset: int, rest: list[Message], rest_through: int
    ) -> None:
        """A reader has got a page.

        Args:
            place: where it began.
            through_offset: where it ended.
            rest: what was read behind it.
            rest_through: nothing else matches up to here.
        """
        filters = place[0]
        if len(filters) > _FILTERS_MAX:
            return
        following = (filters, through_offset)
        if rest:
            self._held[following] = Held(rest, rest_through, self._reads)
        else:
            if len(self._ends) >= _PAGES_NOTED_MAX:
                del self._ends[next(iter(self._ends))]
            self._ends[following] = None

    def clear(self) -> None:
        """Hold nothing: messages have left the log."""
        self._held.clear()

    def _let_go(self) -> bool:
        """Whether there was one that nobody came for."""
        for place, held in self._held.items():
            if self._reads - held.read > UNUSED_READS_MAX:
                del self._held[place]
                return True
        return False
