"""What sources and targets of a migration promise each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Literal, Protocol

import msgspec

from perdure.pipeline.tbmq.pending import Losses, PendingPage, QueueSum

PAGE_ENTRIES: Final = 256
PAGE_BYTES: Final = 4 * 1024 * 1024
"""Bounds of a page, so that a backlog of any size passes through bounded memory."""


class Range(msgspec.Struct, frozen=True):
    """Clients that are moved together.

    Attributes:
        number: from 0.
        entries: how many there were when it was planned, about.
        after, until: client ids in the source's own order, exclusive and inclusive; None = open.
        clients: or their names.
    """

    number: int
    entries: int
    after: str | None = None
    until: str | None = None
    clients: tuple[str, ...] = ()


class Settings(msgspec.Struct, frozen=True):
    """How queues are read.

    Attributes:
        now_us: what has expired by then stays behind.
        ttl_s: lifetime of rows without an expiry interval; 0 = for ever.
        limit: most entries of a queue, the newest; at most 65,535.
        unique: the target has one place for each packet identifier.
    """

    now_us: int
    ttl_s: int
    limit: int
    unique: bool


class Source(Protocol):
    """Where queues come from. Nothing in it is changed."""

    def plan(self, entries_max: int) -> AsyncIterator[Range]:
        """All clients, in ranges of about so many entries."""
        ...

    def read(self, part: Range, settings: Settings) -> AsyncIterator[PendingPage]:
        """The queues of a range, each in one run of pages, empty ones too."""
        ...

    async def close(self) -> None:
        """Give the connections back."""
        ...


class Target(Protocol):
    """Where they go."""

    def takes(self, page: PendingPage) -> PendingPage:
        """The page as it will be stored: what the target has no place for is counted as lost."""
        ...

    async def put(self, page: PendingPage) -> None:
        """Add the next page; an entry that an earlier run has put is not added again."""
        ...

    async def flush(self) -> None:
        """Everything that was put is durable when this returns."""
        ...

    async def sum_of(self, client_id: str) -> QueueSum | None:
        """Read a queue back; None if there is none."""
        ...

    def refusal(self, client_id: str) -> str:
        """Why a client's queue was not put, in words; empty = it was."""
        ...

    async def close(self) -> None:
        """Give connections and locks back."""
        ...


class Mismatch(msgspec.Struct, frozen=True):
    """A client whose queue in the target is not the one that was read.

    Attributes:
        client_id: whose.
        expected, found: entries.
        reason: in words.
    """

    client_id: str
    expected: int
    found: int
    reason: str


class RangeResult(msgspec.Struct, frozen=True):
    """What became of a range.

    Attributes:
        number: of the range.
        clients, entries, pubrels, payload_bytes: carried over.
        digest: of all client ids with their sums, in the order of reading.
        losses: what stayed behind, and why.
        mismatches: empty = verified.
        state: ``staged`` if only read so far.
    """

    number: int
    clients: int = 0
    entries: int = 0
    pubrels: int = 0
    payload_bytes: int = 0
    digest: str = ""
    losses: Losses = msgspec.field(default_factory=Losses)
    mismatches: list[Mismatch] = []
    state: Literal["staged", "done"] = "done"
