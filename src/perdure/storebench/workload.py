"""The load: cycles over clients that belong to one worker each, timed, until the time is up.

A call carries ``batch`` messages of as many clients; ``workers`` calls are under way at a time.
Every contestant does the same: persist a call's messages, fetch each client's queue, acknowledge
what came. So each queue is empty between two cycles, as that of a client that is online.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final, Protocol, final

import msgspec

from perdure.bench.errors import BenchError
from perdure.bench.histogram import Histogram
from perdure.bench.process import ProcessProbe


class Store(Protocol):
    """One contestant, connected."""

    @property
    def pids(self) -> Sequence[int]:
        """Its server's processes; empty = it has none, or none that is ours to look at."""
        ...

    async def persist(self, clients: Sequence[int], payload: bytes) -> Sequence[int]:
        """One message for each client; returns what acknowledges them."""
        ...

    async def fetch(self, clients: Sequence[int]) -> int:
        """Read each client's queue; returns how many messages came."""
        ...

    async def acknowledge(self, clients: Sequence[int], packet_ids: Sequence[int]) -> None:
        """Delete each client's message."""
        ...

    async def stored_bytes(self) -> int:
        """What the store holds now, bytes of memory or disk."""
        ...

    async def clear(self, clients: int) -> None:
        """Forget all clients."""
        ...

    async def close(self) -> None:
        """Give connections back."""
        ...


class Shape(msgspec.Struct, frozen=True):
    """How many messages a call carries, and how many calls are under way.

    Attributes:
        name: in reports.
        batch, workers: of them.
    """

    name: str
    batch: int
    workers: int


SINGLE: Final = Shape("single", 1, 128)
BATCHED: Final = Shape("batched", 128, 4)
SHAPES: Final = {shape.name: shape for shape in (SINGLE, BATCHED)}


@final
class Stretch(msgspec.Struct, frozen=True):
    """What one contestant did in one stretch of time.

    Attributes:
        cycles: messages persisted, fetched and acknowledged.
        seconds: how long it took.
        cycle_ms, persist_ms: (p50, p99) of whole cycles, and of their first part.
        server_cpu_us, client_cpu_us: for a cycle; None if not known.
    """

    cycles: int
    seconds: float
    cycle_ms: tuple[float, float]
    persist_ms: tuple[float, float]
    server_cpu_us: float | None
    client_cpu_us: float

    @property
    def cycles_per_s(self) -> float:
        """The rate."""
        return self.cycles / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU for a cycle, of client and server together."""
        return self.client_cpu_us + (self.server_cpu_us or 0.0)


async def run_stretch(
    store: Store, shape: Shape, *, clients: int, payload: bytes, seconds: float
) -> Stretch:
    """Let a contestant work for a while.

    Raises:
        BenchError: a message that was persisted did not come.
    """
    workers = min(shape.workers, max(1, clients // shape.batch))
    shares = [list(range(number, clients, workers)) for number in range(workers)]
    cycle, persist = Histogram(), Histogram()
    probes = [ProcessProbe(pid) for pid in store.pids]
    server_s = sum(probe.cpu_s() for probe in probes)
    client_s = time.process_time()
    begun = time.perf_counter()
    end = begun + seconds

    async def work(share: list[int]) -> None:
        at = 0
        # Once at least: a machine that was busy for the whole stretch has a slow row, not none.
        is_over = False
        while not is_over:
            some = share[at : at + shape.batch]
            at = at + shape.batch if at + shape.batch < len(share) else 0
            first = time.perf_counter_ns()
            packet_ids = await store.persist(some, payload)
            second = time.perf_counter_ns()
            found = await store.fetch(some)
            if found != len(some):
                raise BenchError(f"{len(some)} messages were persisted, {found} came")
            await store.acknowledge(some, packet_ids)
            last = time.perf_counter_ns()
            persist.record(second - first, len(some))
            cycle.record(last - first, len(some))
            is_over = time.perf_counter() >= end

    async with asyncio.TaskGroup() as group:
        for share in shares:
            group.create_task(work(share))
    elapsed = time.perf_counter() - begun
    client_s = time.process_time() - client_s
    server_s = sum(probe.cpu_s() for probe in probes) - server_s
    count = cycle.count
    return Stretch(
        count,
        elapsed,
        _two(cycle),
        _two(persist),
        server_s / count * 1e6 if probes else None,
        client_s / count * 1e6,
    )


async def bytes_each(store: Store, *, clients: int, queued: int, payload: bytes) -> float:
    """What a queued message takes, with so many queued for each client."""
    before = await store.stored_bytes()
    everyone = list(range(clients))
    for _ in range(queued):
        for at in range(0, clients, BATCHED.batch):
            await store.persist(everyone[at : at + BATCHED.batch], payload)
    grown = await store.stored_bytes() - before
    return grown / (clients * queued)


def _two(histogram: Histogram) -> tuple[float, float]:
    return (round(histogram.percentile(50) / 1e6, 3), round(histogram.percentile(99) / 1e6, 3))
