"""The comparison: contestants take turns, there and back again, and ratios are taken by round."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from perdure.bench.machine import describe
from perdure.bench.result import Machine
from perdure.storebench.contestants import MEANING, Contestant, Durability, Servers, Stage, choose
from perdure.storebench.workload import SHAPES, Stretch, bytes_each, run_stretch

SEED: Final = {"postgres-unbatched": 30_000, "redis-sync": 40_000, "redis-async": 60_000}
"""Messages per second that TBMQ reports for its PostgreSQL, Jedis and Lettuce."""
QUEUED: Final = 10


class Settings(msgspec.Struct, frozen=True):
    """What was asked.

    Attributes:
        clients: clients with a queue each.
        payload_bytes: of a message.
        seconds: of a stretch.
        rounds: stretches of each contestant.
        queued: messages for each client when memory is measured.
        shapes, durabilities, contestants: names.
    """

    clients: int = 1_000
    payload_bytes: int = 64
    seconds: float = 3.0
    rounds: int = 3
    queued: int = QUEUED
    shapes: tuple[str, ...] = ("single", "batched")
    durabilities: tuple[Durability, ...] = ("durable", "relaxed")
    contestants: tuple[str, ...] = ()


class Row(msgspec.Struct, frozen=True):
    """One contestant in one shape at one durability.

    Attributes:
        durability, shape, contestant: which.
        means: what the durability means there.
        stretches: one for each round.
    """

    durability: str
    shape: str
    contestant: str
    means: str
    stretches: list[Stretch]

    def spread(self) -> tuple[float, float, float]:
        """(median, least, most) cycles per second."""
        values = [stretch.cycles_per_s for stretch in self.stretches]
        return statistics.median(values), min(values), max(values)


class Ratio(msgspec.Struct, frozen=True):
    """A ratio of rates, by round.

    Attributes:
        what: in words.
        found, low, high: median and extremes.
        wanted: at least, or for memory at most; 0 = nothing was promised.
        is_most: the bound is an upper one.
    """

    what: str
    found: float
    low: float
    high: float
    wanted: float = 0.0
    is_most: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the bound is kept."""
        if not self.wanted:
            return True
        return self.found <= self.wanted if self.is_most else self.found >= self.wanted


class Comparison(msgspec.Struct, frozen=True):
    """A record of it all.

    Attributes:
        machine, started_at, settings: where, when, what.
        rows: rates, latencies, CPU.
        memory: bytes of a queued message by contestant.
        ratios: see ``Ratio``.
    """

    machine: Machine
    started_at: str
    settings: Settings
    rows: list[Row]
    memory: dict[str, float]
    ratios: list[Ratio]


def compare(
    settings: Settings, servers: Servers, *, progress: Callable[[str, float], None]
) -> Comparison:
    """Run the comparison.

    Raises:
        BenchError: a server cannot be started, or a contestant lost a message.
        StorageError: a server refused.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    chosen = choose(settings.contestants)
    rows: list[Row] = []
    memory: dict[str, float] = {}
    total = len(settings.durabilities) * (len(settings.shapes) * settings.rounds + 1)
    steps = 0

    def step(what: str) -> None:
        nonlocal steps
        progress(what, steps / total)
        steps += 1

    for durability in settings.durabilities:
        with Stage(durability, servers) as stage:
            for shape in settings.shapes:
                taking = [one for one in chosen if shape in one.shapes]
                found: dict[str, list[Stretch]] = {one.name: [] for one in taking}
                for number in range(settings.rounds):
                    step(f"{durability}, {shape}, round {number + 1}")
                    for one in taking if number % 2 == 0 else reversed(taking):
                        found[one.name].append(asyncio.run(_stretch(stage, one, shape, settings)))
                rows += [
                    Row(
                        durability,
                        shape,
                        one.name,
                        MEANING[durability][one.server],
                        found[one.name],
                    )
                    for one in taking
                ]
            step(f"{durability}, memory")
            if not memory:
                for one in chosen:
                    memory[one.name] = asyncio.run(_memory(stage, one, settings))
    return Comparison(describe(Path()), started_at, settings, rows, memory, ratios(rows, memory))


async def _stretch(stage: Stage, one: Contestant, shape: str, settings: Settings) -> Stretch:
    store = await stage.open(one, clients=settings.clients)
    try:
        payload = bytes(settings.payload_bytes)
        warm = min(0.3, settings.seconds / 4)
        for seconds in (warm, settings.seconds):
            found = await run_stretch(
                store, SHAPES[shape], clients=settings.clients, payload=payload, seconds=seconds
            )
        await store.clear(settings.clients)
        return found
    finally:
        await store.close()


async def _memory(stage: Stage, one: Contestant, settings: Settings) -> float:
    store = await stage.open(one, clients=settings.clients)
    try:
        found = await bytes_each(
            store,
            clients=settings.clients,
            queued=settings.queued,
            payload=bytes(settings.payload_bytes),
        )
        await store.clear(settings.clients)
        return found
    finally:
        await store.close()


_RATIOS: Final = (
    ("compact", "redis-async", "single", 2.5),
    ("compact", "redis-async", "batched", 2.5),
    ("redis-async", "redis-sync", "single", 4.0),
    ("redis-async", "redis-sync", "batched", 0.0),
    ("postgres-unbatched", "redis-sync", "single", 0.0),
    ("postgres-batched", "postgres-unbatched", "single", 0.0),
    ("postgres-batched", "redis-async", "batched", 0.0),
    ("embedded", "compact", "batched", 0.0),
)


def ratios(rows: Sequence[Row], memory: dict[str, float]) -> list[Ratio]:
    """What is promised, and what else tells something, from rows and memory."""
    by_key = {(row.durability, row.shape, row.contestant): row for row in rows}
    found = []
    for durability in dict.fromkeys(row.durability for row in rows):
        for upper, lower, shape, wanted in _RATIOS:
            above = by_key.get((durability, shape, upper))
            below = by_key.get((durability, shape, lower))
            if above is None or below is None:
                continue
            values = [
                one.cycles_per_s / other.cycles_per_s
                for one, other in zip(above.stretches, below.stretches, strict=True)
            ]
            what = f"{upper} against {lower}, {shape}, {durability}"
            found.append(_ratio(what, values, wanted))
            if wanted:
                costs = [
                    other.cpu_us / one.cpu_us
                    for one, other in zip(above.stretches, below.stretches, strict=True)
                ]
                found.append(_ratio(f"{what}: cycles for a second of CPU", costs, 0.0))
    if "compact" in memory and "redis-async" in memory:
        value = memory["compact"] / memory["redis-async"]
        found.append(
            Ratio("memory of compact against tbmq, queued", value, value, value, 1 / 3, True)
        )
    return found


def _ratio(what: str, values: Sequence[float], wanted: float) -> Ratio:
    return Ratio(what, statistics.median(values), min(values), max(values), wanted)
