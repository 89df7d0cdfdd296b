"""A store in memory for the workload, and a comparison that was never measured."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from perdure.bench.result import Machine
from perdure.storebench.run import Comparison, Row, Settings, ratios
from perdure.storebench.workload import Stretch


class FakeStore:
    """Keeps what it is given, or loses it."""

    pids: Sequence[int] = ()

    def __init__(self, *, loses: bool = False) -> None:
        self.loses = loses
        self.queued: dict[int, list[bytes]] = {}
        self.together = 0
        self.together_max = 0

    async def persist(self, clients: Sequence[int], payload: bytes) -> Sequence[int]:
        self.together += 1
        self.together_max = max(self.together_max, self.together)
        await asyncio.sleep(0)
        self.together -= 1
        for n in clients:
            self.queued.setdefault(n, []).append(payload)
        return [1] * len(clients)

    async def fetch(self, clients: Sequence[int]) -> int:
        return 0 if self.loses else sum(len(self.queued[n]) for n in clients)

    async def acknowledge(self, clients: Sequence[int], packet_ids: Sequence[int]) -> None:
        for n in clients:
            self.queued[n].clear()

    async def stored_bytes(self) -> int:
        return sum(len(payload) for queue in self.queued.values() for payload in queue)

    async def clear(self, clients: int) -> None:
        self.queued.clear()

    async def close(self) -> None:
        pass


def stretch(rate: float, *, server: float | None = 10.0, client: float = 5.0) -> Stretch:
    """A second of so many cycles."""
    return Stretch(round(rate), 1.0, (1.0, 2.0), (0.5, 1.0), server, client)


def row(contestant: str, *rates: float, shape: str = "single", durability: str = "durable") -> Row:
    return Row(durability, shape, contestant, "", [stretch(rate) for rate in rates])


def comparison() -> Comparison:
    """One with all that a report shows."""
    rows = [
        row("postgres-unbatched", 90, 100, 110),
        row("redis-sync", 100, 100, 100),
        row("redis-async", 500, 300, 600),
        row("compact", 1500, 1500, 1500),
        Row("durable", "single", "embedded", "", [stretch(2000, server=None)] * 3),
        row("compact", 4000, 4000, 4000, shape="batched"),
        row("redis-async", 2000, 2000, 2000, shape="batched"),
    ]
    memory = {"compact": 110.0, "redis-async": 440.0, "postgres-batched": 200.0}
    machine = Machine(
        cpu="c", cores=2, memory_bytes=1, kernel="k", python="p", perdure="0", disk="ext4"
    )
    return Comparison(
        machine, "2026-01-01T00:00:00+00:00", Settings(), rows, memory, ratios(rows, memory)
    )
