"""``perdure plan``: what something will need, by arithmetic on counts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import click
import msgspec

from perdure.cli.counts import Count
from perdure.cli.data import broker_options, open_database
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.config.schema import Config
from perdure.config.units import SIZES, parse_duration
from perdure.tokens import LAYOUTS

_ENTRIES: Final = 512
_COLUMNS: Final = tuple(
    Column(name, right=name != "layout")
    for name in ("layout", "partitions", "bytes_each", "total_mib", "of_json")
)


@click.group()
def command() -> None:
    """Tell what something will need before there is any of it."""


@command.command()
@click.option(
    "--count",
    "wanted",
    type=Count(),
    required=True,
    metavar="N",
    help="Tokens: 250000, 100k, 10M, 1G.",
)
@click.option("--redis", "url", default="", metavar="URL",
              help="Ask this server for its limits of listpacks.")  # fmt: skip
@click.option("--entries", type=click.IntRange(1), default=_ENTRIES, show_default=True,
              help="Without --redis: hash-max-listpack-entries; Redis's own is 512.")  # fmt: skip
@output_options
def sessions(wanted: int, url: str, entries: int, out: Output) -> None:
    """Memory of a token store on Redis, in each layout, for so many login sessions.

    \b
    Examples:
      perdure plan sessions --count 100M
      perdure plan sessions --count 5M --redis redis://localhost
    """
    from perdure.tokens.redis.plan import estimate

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


@command.command()
@broker_options
@click.option("--keep", metavar="DURATION", help="Retention to plan for; else retention.time_s.")
@click.option(
    "--growth",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Times as many devices that do the same.",
)
@output_options
def capacity(config: Config, keep: str | None, growth: float, out: Output) -> None:
    """Disk and memory that a broker will need, from what its data directory holds.

    Reads counts, and what some sessions are owed; beside a running broker too. Memory is that of
    sessions at rest, and what the store takes as its settings say.

    \b
    Examples:
      perdure plan capacity --data perdure-data --keep 30d
      perdure plan capacity --growth 10 --json
    """
    from perdure.pipeline.jobs.capacity import count, plan, store_bytes

    keep_s: float = config.retention.time_s
    if keep is not None:
        try:
            keep_s = parse_duration(keep, "us") / 1e6
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--keep") from error
    if not keep_s:
        raise click.UsageError("retention.time_s keeps all for ever: name a time with --keep")
    path = Path(config.storage.path)
    with open_database(path) as opened:
        counts = opened.run(count(opened.database, opened.database.generations()))
    generation_s = config.retention.generation_time_s
    found = plan(
        counts,
        keep_s=keep_s,
        generation_s=generation_s,
        growth=growth,
        store=store_bytes(config.storage.rocksdb),
    )
    if found is None:
        raise CommandFailed(f"{path}: the log is too short to tell", ExitCode.NOT_FOUND)
    out.record({**msgspec.structs.asdict(found), "growth": growth, "keep_s": round(keep_s)})


async def _entries_of(url: str) -> int:
    from perdure.storage.redis.client import RedisClient
    from perdure.storage.redis.url import parse_url
    from perdure.tokens.redis.limits import learn_limits

    client = await RedisClient.connect(parse_url(url))
    try:
        return (await learn_limits(client)).entries
    finally:
        await client.close()
