"""The registry with a million subscriptions: ``python -m benchmarks registry``.

Ours beside a straight port of what nexxus-redis does (``registry_port``), each on a Redis of its
own: memory by ``INFO memory``, and what a page of subscriptions, a look-up and the mirror of a
broker's clients cost. ``PERDURE_REGISTRY_COUNT`` makes it smaller.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from benchmarks import record
from benchmarks.registry_port import SeedRegistry, Subscription
from perdure.registry import Channel, DeviceTransport, Registry, filter_id_of
from perdure.registry.mirror import Held, Mirror
from perdure.storage.redis import Command
from perdure.storage.redis.replies import info_of
from perdure.storebench.servers.redis import RedisServer

COUNT: Final = int(os.environ.get("PERDURE_REGISTRY_COUNT", "1000000"))
PAGE: Final = 1_000
LOOKUPS: Final = 2_000
ROUNDS: Final = 5
MIRRORED: Final = 10_000
CHANNELS: Final = 1_000
FILTERS: Final = [f'{{"priority":{{"$gte":{number}}}}}' for number in range(10)]
UNTIL_S: Final = 2_000_000_000
WITH_END: Final = "perdure, each with an end"
SHAPES: Final = ("one object each", "1,000 channels, half with one of 10 filters")

One = tuple[DeviceTransport, Channel, str]


def _subscriptions(shape: str, count: int) -> Iterator[One]:
    for number in range(count):
        device = DeviceTransport(f"device-{number:07}", "websockets-transport")
        if shape == SHAPES[0]:
            yield device, Channel("plant", "task", "", str(number)), ""
        else:
            channel = Channel("plant", "task", f"user-{number % CHANNELS}")
            is_filtered = number // CHANNELS % 2
            yield device, channel, FILTERS[number // CHANNELS % 10] if is_filtered else ""


def _of_port(one: One) -> Subscription:
    device, channel, where = one
    return str(device), channel.key, filter_id_of(where) if where else "", where


def _change(shape: str, number: int) -> Channel:
    user = "" if shape == SHAPES[0] else f"user-{number % CHANNELS}"
    return Channel("plant", "task", user, str(number))


async def _used(registry: Registry) -> int:
    reply = (await registry.client.execute([Command(("INFO", "memory"))]))[0]
    return int(info_of(reply)["used_memory"])


async def _cpu_us(registry: Registry) -> float:
    reply = (await registry.client.execute([Command(("INFO", "commandstats"))]))[0]
    return sum(
        float(value.partition("usec=")[2].partition(",")[0])
        for name, value in info_of(reply).items()
        if name != "cmdstat_info"
    )


async def _measure(url: str, shape: str, who: str) -> dict[str, Any]:
    ours, until_s = who != "port", UNTIL_S if who == WITH_END else 0
    registry = await Registry.open(url)
    port = SeedRegistry(registry.client)
    before, cpu_us, begun = await _used(registry), await _cpu_us(registry), time.perf_counter()
    page: list[One] = []
    for one in _subscriptions(shape, COUNT):
        page.append(one)
        if len(page) == PAGE:
            if ours:
                await registry.subscribe_all(page, until_s=until_s)
            else:
                await port.subscribe([_of_port(each) for each in page])
            page.clear()
    taken_s = time.perf_counter() - begun
    found = {
        "bytes": (await _used(registry) - before) / COUNT,
        "subscribed": COUNT / taken_s,
        "server_us": (await _cpu_us(registry) - cpu_us) / COUNT,
    }

    if who == "perdure":
        begun = time.perf_counter()
        assert len(await registry.subscriptions("device-0000007")) == 1
        found["of_device_s"] = time.perf_counter() - begun
        found["beside"] = await _beside(registry, port, shape)
    await registry.close()
    return found


async def _beside(registry: Registry, port: SeedRegistry, shape: str) -> dict[str, list[float]]:
    """Ours and the port in turn on the same keys: look-ups, and pages that are written again."""

    async def ours(number: int) -> list[str]:
        found = await registry.wanting(_change(shape, number), {"priority": number % 10})
        return found.members

    async def typed(number: int) -> list[str]:
        found = await registry.wanting(_change(shape, number), {"priority": number % 10})
        return [str(each) for each in found.devices]

    async def ports(number: int) -> list[str]:
        change = _change(shape, number)
        parts = (change.app_id, change.user_id, change.model, change.model_id)
        return await port.wanting(*parts, {"priority": number % 10})

    chance = random.Random(1)
    numbers = [chance.randrange(COUNT) for _ in range(LOOKUPS if shape == SHAPES[0] else 200)]
    for number in numbers[:20]:
        assert await ours(number) == await ports(number), "they do not find the same"
    values: dict[str, list[float]] = {}
    many = list(islice(_subscriptions(shape, COUNT), 100 * PAGE))
    pages = [many[first : first + PAGE] for first in range(0, len(many), PAGE)]
    for _ in range(ROUNDS):
        for who, look_up in (("port", ports), ("perdure", ours), ("perdure, typed", typed)):
            server_us, begun = await _cpu_us(registry), time.perf_counter()
            for number in numbers:
                await look_up(number)
            taken_s = time.perf_counter() - begun
            values.setdefault(f"{who}: look-ups, /s", []).append(len(numbers) / taken_s)
            server_us = (await _cpu_us(registry) - server_us) / len(numbers)
            values.setdefault(f"{who}: server CPU of a look-up, us", []).append(server_us)
        for who in ("port", "perdure"):
            begun, cpu_s = time.perf_counter(), time.thread_time()
            for page in pages:
                if who == "port":
                    await port.subscribe([_of_port(each) for each in page])
                else:
                    await registry.subscribe_all(page)
            cpu_us = 1e6 * (time.thread_time() - cpu_s) / len(many)
            values.setdefault(f"{who}: client CPU of a write, us", []).append(cpu_us)
            rate = len(many) / (time.perf_counter() - begun)
            values.setdefault(f"{who}: writes in pages of 1,000, /s", []).append(rate)
    return values


async def _mirror(url: str) -> dict[str, float]:
    """CPU of the loop for one client, microseconds, and the longest step, milliseconds."""
    registry = await Registry.open(url)
    mirror = Mirror(registry, worker="node-1", transport="mqtt")
    live = {
        f"client-{number}": Held(
            f"user-{number % 100}", frozenset({(Channel("plant", "task", "", str(number)), "")})
        )
        for number in range(MIRRORED)
    }
    found: dict[str, float] = {}
    for what, now in (("connect", live), ("no change", live), ("disconnect", {})):
        found[what], found[f"{what}, longest step"] = await _cost(_apply(mirror, now))
    await registry.close()
    return found


def _apply(mirror: Mirror, live: dict[str, Held]) -> Callable[[], Awaitable[object]]:
    async def is_kept(name: str) -> bool:
        return True

    return lambda: mirror.apply(live, is_kept, now_us=time.time_ns() // 1000)


async def _cost(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """CPU of one client, microseconds, and of the longest step of the loop, milliseconds."""
    longest, is_done = 0.0, False

    async def watch() -> None:
        nonlocal longest
        while not is_done:
            begun = time.thread_time()
            await asyncio.sleep(0.0005)
            longest = max(longest, time.thread_time() - begun)

    watcher = asyncio.create_task(watch())
    begun = time.thread_time()
    await work()
    taken = time.thread_time() - begun
    is_done = True
    await watcher
    return 1e6 * taken / MIRRORED, 1e3 * longest


def run() -> bool:
    """Measure, and write the record."""
    started_at = record.now()
    checks, values = [], {}
    for shape in SHAPES:
        found = {}
        for who in ("port", "perdure", WITH_END):
            with RedisServer(appendfsync="", settings={"hash-max-listpack-value": "64"}) as server:
                found[who] = asyncio.run(_measure(server.url, shape, who))
        for who, of_who in found.items():
            for name, what, unit in (
                ("bytes", "memory of a subscription", "bytes"),
                ("server_us", "server CPU of a subscription", "us"),
                ("of_device_s", "a look for what a device subscribes to", "s"),
            ):
                if name in of_who:
                    checks.append(record.check(f"{shape}; {who}: {what}", [of_who[name]], unit))
        for what, numbers in found["perdure"]["beside"].items():
            name, _, unit = what.rpartition(", ")
            checks.append(record.check(f"{shape}; in turn; {name}", numbers, unit))
        values[shape] = found
    with RedisServer(appendfsync="everysec") as server:
        for name, value in asyncio.run(_mirror(server.url)).items():
            unit = "ms" if name.endswith("step") else "us"
            checks.append(record.check(f"mirror of 10,000 clients: {name}", [value], unit))
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as directory:
        return record.write(
            "registry",
            started_at,
            data=Path(directory),
            settings={
                "subscriptions": COUNT,
                "lookups": LOOKUPS,
                "in turn": "rounds on the same keys; other rates are not beside each other",
            },
            checks=checks,
            values=values,
        )
