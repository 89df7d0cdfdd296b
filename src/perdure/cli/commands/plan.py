"""``perdure plan``: what something will need, by arithmetic, before there is any of it."""

from __future__ import annotations

import asyncio
from typing import Final

import click

from perdure.cli.output import Column, Output, output_options
from perdure.config.units import SIZES
from perdure.tokens import LAYOUTS

_ENTRIES: Final = 128
_COLUMNS: Final = tuple(
    Column(name, right=name != "layout")
    for name in ("layout", "partitions", "bytes_each", "total_mib", "of_json")
)


@click.group()
def command() -> None:
    """Tell what something will need before there is any of it."""


@command.command()
@click.option("--count", required=True, metavar="N", help="Tokens: 250000, 100k, 10M, 1G.")
@click.option("--redis", "url", default="", metavar="URL",
              help="Ask this server for its limits of listpacks.")  # fmt: skip
@click.option("--entries", type=click.IntRange(1), default=_ENTRIES, show_default=True,
              help="Without --redis: hash-max-listpack-entries (128 in Redis 7, 512 before and "
                   "since 8).")  # fmt: skip
@output_options
def sessions(count: str, url: str, entries: int, out: Output) -> None:
    """Memory of a token store on Redis, in each layout, for so many login sessions.

    \b
    Examples:
      perdure plan sessions --count 100M
      perdure plan sessions --count 5M --redis redis://localhost
    """
    from perdure.tokens.redis.plan import estimate

    wanted = _count(count)
    if url:
        entries = asyncio.run(_entries_of(url))
    estimates = [estimate(layout, wanted, hash_entries=entries) for layout in LAYOUTS]
    base = estimates[0].total_bytes
    out.rows(
        _COLUMNS,
        (
            {
                "layout": one.layout,
                "count": wanted,
                "hash_entries": entries,
                "partitions": one.partitions,
                "bytes_each": one.bytes_each,
                "total_bytes": one.total_bytes,
                "total_mib": round(one.total_bytes / SIZES["MiB"], 1),
                "of_json": round(one.total_bytes / base, 3),
            }
            for one in estimates
        ),
    )


def _count(text: str) -> int:
    """A number of things; k, M and G are thousands, millions and billions."""
    factor = {"k": 10**3, "M": 10**6, "G": 10**9}.get(text[-1:], 1)
    digits = text[:-1] if factor > 1 else text
    if not digits.isascii() or not digits.isdigit() or not 0 < int(digits) * factor <= 10**12:
        raise click.BadParameter(f"{text!r} is no number from 1 to 1000G", param_hint="--count")
    return int(digits) * factor


async def _entries_of(url: str) -> int:
    from perdure.storage.redis.client import RedisClient
    from perdure.storage.redis.url import parse_url
    from perdure.tokens.redis.limits import learn_limits

    client = await RedisClient.connect(parse_url(url))
    try:
        return (await learn_limits(client)).entries
    finally:
        await client.close()
