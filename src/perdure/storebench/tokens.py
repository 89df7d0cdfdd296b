"""What millions of tokens take in each layout: memory, and CPU of the server, on a real Redis.

The tokens are the seed's: 160 random bits, a number for whose they are, 30 days until they expire,
here at any hour of these, as after a month of use.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, final

import msgspec

from perdure.bench.errors import BenchError
from perdure.bench.machine import describe
from perdure.bench.result import Machine
from perdure.storage.redis.client import RedisClient
from perdure.storage.redis.commands import Command
from perdure.storage.redis.replies import info_of
from perdure.storage.redis.url import parse_url
from perdure.storebench.servers.redis import RedisServer
from perdure.tokens import LAYOUTS, Token, TokenStore, open_tokens
from perdure.tokens.redis.limits import learn_limits
from perdure.tokens.redis.plan import HOUR_S, estimate

SEED_BYTES: Final = {
    "json": 230,
    "packed": 178,
    "hash": 150,
    "partitioned:256": 270,
    "partitioned:65536": 70,
}
"""Bytes a token at a million of them, as the seed reports (its figures and percentages)."""

DAYS: Final = 30
POINTS: Final = 10
"""Of a curve."""
BATCH: Final = 1_000
FOUND: Final = 10_000
"""Look-ups that are timed."""
SEED: Final = 1


@final
class TokenRow(msgspec.Struct, frozen=True):
    """One layout.

    Attributes:
        layout: its name.
        count: tokens saved.
        bytes_each: memory of the server for one of them (``used_memory``).
        total_bytes: for all.
        of_json: share of what ``json`` takes; 0 = it was not measured.
        seed_bytes: what the seed reports for one; 0 = nothing.
        estimated_bytes: what ``perdure plan sessions`` says.
        save_us, find_us: CPU of the server for one, microseconds.
        saves_per_s, finds_per_s: as one client gets them, in batches and one by one.
        curve: (tokens, bytes) while they became more.
    """

    layout: str
    count: int
    bytes_each: float
    total_bytes: int
    of_json: float
    seed_bytes: int
    estimated_bytes: float
    save_us: float
    find_us: float
    saves_per_s: int
    finds_per_s: int
    curve: list[tuple[int, int]]


@final
class TokenComparison(msgspec.Struct, frozen=True):
    """All that was measured.

    Attributes:
        machine: where.
        started_at: when, ISO 8601.
        server: name and version of the server.
        hash_entries: its limit for listpacks.
        rows: one for each layout.
    """

    machine: Machine
    started_at: str
    server: str
    hash_entries: int
    rows: list[TokenRow]


def compare(
    count: int,
    layouts: Sequence[str],
    *,
    url: str = "",
    progress: Callable[[str, float], None] = lambda what, done: None,
) -> TokenComparison:
    """Fill each layout in turn.

    Args:
        count: tokens, at least 1.
        layouts: of ``LAYOUTS``.
        url: of a server that runs; what is put there is removed again. Empty = one of our own,
            new for each layout.
        progress: told what is done and how far it is.

    Raises:
        BenchError: there is no such layout, or a token was not found again.
        StorageError, ConfigError: of the server.
    """
    unknown = [name for name in layouts if name not in LAYOUTS]
    if unknown:
        raise BenchError(f"there is no layout {unknown[0]!r}", hint=f"of {', '.join(LAYOUTS)}")
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    machine = describe(Path(tempfile.gettempdir()))
    rows: list[TokenRow] = []
    server, entries = "", 0
    for place, layout in enumerate(layouts):

        def told(share: float, place: int = place, layout: str = layout) -> None:
            progress(layout, (place + share) / len(layouts))

        with contextlib.ExitStack() as stack:
            where = url
            if not where:
                own = RedisServer(appendfsync="", settings={"hash-max-listpack-value": "64"})
                where = stack.enter_context(own).url
            row, server, entries = asyncio.run(_measure(layout, count, where, told))
        rows.append(row)
    json = next((row.bytes_each for row in rows if row.layout == "json"), 0.0)
    if json:
        rows = [
            msgspec.structs.replace(row, of_json=round(row.bytes_each / json, 3)) for row in rows
        ]
    return TokenComparison(machine, started_at, server, entries, rows)


async def _measure(
    layout: str, count: int, url: str, told: Callable[[float], None]
) -> tuple[TokenRow, str, int]:
    prefix = f"bench{secrets.token_hex(4)}:"
    now_s = int(time.time())
    client = await RedisClient.connect(parse_url(url))
    try:
        version, entries = await _about(client)
        before = await _used(client)
        store = await open_tokens(url, layout=layout, prefix=prefix, expected=count, now_s=now_s)
        try:
            curve, save_us, saves_per_s = await _fill(client, store, count, now_s, before, told)
            find_us, finds_per_s = await _find(client, store, count, now_s)
        finally:
            await store.close()
            async for page in client.scan(prefix.encode() + b"*"):
                await client.execute([Command(("UNLINK", key), key) for key in page])
    finally:
        await client.close()
    total = curve[-1][1]
    row = TokenRow(
        layout=layout,
        count=count,
        bytes_each=round(total / count, 1),
        total_bytes=total,
        of_json=0.0,
        seed_bytes=SEED_BYTES.get(layout, 0),
        estimated_bytes=estimate(layout, count, hash_entries=entries).bytes_each,
        save_us=round(save_us, 2),
        find_us=round(find_us, 2),
        saves_per_s=saves_per_s,
        finds_per_s=finds_per_s,
        curve=curve,
    )
    return row, version, entries


async def _fill(
    client: RedisClient,
    store: TokenStore,
    count: int,
    now_s: int,
    before: int,
    told: Callable[[float], None],
) -> tuple[list[tuple[int, int]], float, int]:
    """The curve, server CPU for one token (microseconds), and tokens a second."""
    curve: list[tuple[int, int]] = []
    cpu_us, taken_s, saved = await _cpu_us(client), 0.0, 0
    async for page in _tokens(count, now_s):
        begun = time.perf_counter()
        await store.save(page, now_s)
        taken_s += time.perf_counter() - begun
        saved += len(page)
        if saved * POINTS >= count * (len(curve) + 1):
            curve.append((saved, await _used(client) - before))
            told(saved / count)
    return curve, (await _cpu_us(client) - cpu_us) / count, round(count / max(taken_s, 1e-9))


async def _find(
    client: RedisClient, store: TokenStore, count: int, now_s: int
) -> tuple[float, int]:
    """Server CPU for one look-up, microseconds, and look-ups a second, one after the other."""
    sample = [token async for page in _tokens(min(count, FOUND), now_s) for token in page]
    cpu_us = await _cpu_us(client)
    begun = time.perf_counter()
    for token in sample:
        if await store.find(token.id, now_s) != token:
            raise BenchError(f"token {token.identity} was saved and is not found")
    taken_s = time.perf_counter() - begun
    return (await _cpu_us(client) - cpu_us) / len(sample), round(len(sample) / taken_s)


async def _tokens(count: int, now_s: int) -> AsyncIterator[list[Token]]:
    """Tokens by a fixed seed, a batch at a time."""
    chance = random.Random(SEED)  # noqa: S311 - they protect nothing
    for first in range(0, count, BATCH):
        yield [
            Token(
                chance.randbytes(20),
                str(number),
                now_s + HOUR_S + chance.randrange(DAYS * 24 * HOUR_S),
            )
            for number in range(first, min(count, first + BATCH))
        ]


async def _about(client: RedisClient) -> tuple[str, int]:
    """Name and version of the server, and its limit for listpacks."""
    fields = await _info(client, "server")
    name = "Valkey" if "valkey_version" in fields else "Redis"
    version = fields.get("valkey_version", fields.get("redis_version", "?"))
    return f"{name} {version}", (await learn_limits(client)).entries


async def _used(client: RedisClient) -> int:
    return int((await _info(client, "memory"))["used_memory"])


async def _cpu_us(client: RedisClient) -> float:
    """Time that commands have taken in the server, those of scripts once, microseconds."""
    fields = await _info(client, "commandstats")
    return sum(
        float(value.partition("usec=")[2].partition(",")[0])
        for name, value in fields.items()
        if name not in ("cmdstat_info", "cmdstat_scan", "cmdstat_exec")
    )


async def _info(client: RedisClient, section: str) -> dict[str, str]:
    return info_of((await client.execute([Command(("INFO", section))]))[0])
