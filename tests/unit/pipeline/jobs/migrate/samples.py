"""Queues to move, and a source that has them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from perdure.pipeline.jobs.migrate.contract import Range, Settings
from perdure.pipeline.tbmq.pending import PendingEntry, PendingPage

NOW_US = 1_700_000_000_000_000
HOUR_US = 3_600_000_000
SETTINGS = Settings(NOW_US, 0, 65_535, unique=False)


def owed(place: int, packet_id: int, *, released: bool = False, **fields: object) -> PendingEntry:
    """An entry whose payload is its place."""
    values: dict[str, object] = {"published_at_us": NOW_US - HOUR_US}
    values.update(fields)
    payload = b"%d" % place
    return PendingEntry(place, packet_id, released, "t/a", payload, 2 if released else 1, **values)  # type: ignore[arg-type]


def pages(
    client_id: str, entries: Sequence[PendingEntry], *, last: int = 0, size: int = 2
) -> list[PendingPage]:
    """A queue in pages of some entries."""
    last = last or (entries[-1].packet_id if entries else 0)
    parts = [list(entries[at : at + size]) for at in range(0, len(entries), size)] or [[]]
    return [
        PendingPage(client_id, last, part, number == 0, number == len(parts) - 1)
        for number, part in enumerate(parts)
    ]


class ListSource:
    """Queues in memory, one client to a range."""

    def __init__(self, *queues: list[PendingPage]) -> None:
        self.queues = queues
        self.closed = False

    async def plan(self, entries_max: int) -> AsyncIterator[Range]:
        for number, queue in enumerate(self.queues):
            yield Range(number, sum(len(page.entries) for page in queue))

    async def read(self, part: Range, settings: Settings) -> AsyncIterator[PendingPage]:
        for page in self.queues[part.number]:
            yield page

    async def close(self) -> None:
        self.closed = True


def numbers(queue: list[PendingPage]) -> list[tuple[bytes, int]]:
    """Payloads and packet identifiers of a queue, in its order."""
    return [(entry.payload, entry.packet_id) for page in queue for entry in page.entries]
