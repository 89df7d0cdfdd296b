"""``perdure pipeline migrate``: queues of persistent clients from one store to another."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click
import msgspec

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.pipeline_options import pipeline_installed, spark_session
from perdure.clock import SystemClock
from perdure.config.units import parse_duration
from perdure.limits import SESSION_EXPIRY_NEVER_S

if TYPE_CHECKING:
    from perdure.model import Subscription
    from perdure.pipeline.jobs.migrate.job import Execute, Options, Summary

RangeProgress: TypeAlias = Callable[[int, int, int], None]

_LAYOUTS: Final = ("tbmq", "compact")
_DAMAGED_SHOWN: Final = 20
_COLUMNS: Final = (
    Column("client_id"),
    Column("expected", right=True),
    Column("found", right=True),
    Column("reason"),
)


@click.command()
@click.option("--from", "source", required=True, metavar="URL", help="What is read.")
@click.option("--to", "target", required=True, metavar="URL", help="What is written.")
@click.option("--prefix", default="", metavar="TEXT", help="Of the Redis keys that are read.")
@click.option("--to-prefix", default="", metavar="TEXT", help="Of the Redis keys that are written.")
@click.option(
    "--from-layout",
    type=click.Choice(_LAYOUTS),
    default="tbmq",
    show_default=True,
    help="Of the Redis keys that are read.",
)
@click.option(
    "--to-layout",
    type=click.Choice([*_LAYOUTS, "broker"]),
    default="compact",
    show_default=True,
    help="Of the Redis keys that are written; broker = sessions of a broker whose storage is "
    "that Redis or PostgreSQL.",
)
@click.option(
    "--ttl",
    default="7d",
    show_default=True,
    metavar="DURATION",
    help="Lifetime of PostgreSQL rows without an expiry interval; 0 = for ever.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 65_535),
    default=65_535,
    show_default=True,
    help="Most entries of a queue that are kept, the newest.",
)
@click.option(
    "--session-expiry",
    default="never",
    show_default=True,
    metavar="DURATION",
    help="Until a client comes back, in a data directory.",
)
@click.option(
    "--subscriptions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.jsonl",
    help="Subscriptions of clients, for a data directory.",
)
@click.option("--no-shared", is_flag=True, help="No client id ss_<share>_<filter> is a group's.")
@click.option(
    "--ledger",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="What is done is kept here, to go on after a crash; else named after the URLs.",
)
@click.option("--skip-damaged", is_flag=True, help="End with 0 although entries cannot be read.")
@click.option("--dry-run", is_flag=True, help="Read and count, write nothing.")
@click.option("--local", is_flag=True, help="In this process, without Spark.")
@click.option("--parallel", type=click.IntRange(min=1), help="Ranges at a time; else one a core.")
@click.option("--master", metavar="URL", help="Where Spark runs; else on this machine.")
@click.option("--memory", default="1g", show_default=True, help="Of the Spark driver.")
@output_options
def migrate(
    source: str,
    target: str,
    prefix: str,
    to_prefix: str,
    from_layout: Any,
    to_layout: Any,
    ttl: str,
    limit: int,
    session_expiry: str,
    subscriptions: Path | None,
    no_shared: bool,
    ledger: Path | None,
    skip_damaged: bool,
    dry_run: bool,
    local: bool,
    parallel: int | None,
    master: str | None,
    memory: str,
    out: Output,
) -> int:
    """Move the queues of persistent clients, and check that all arrived.

    \b
    From and to: postgresql:// (the tables of TBMQ 1.x), redis:// or redis+cluster:// (the keys of
    TBMQ 2.x, or compact), a data directory. What is read is not changed; the brokers on both
    sides are stopped meanwhile. Run it again to go on after a crash.

    \b
    Examples:
      perdure pipeline migrate --from postgresql://tbmq@db/thingsboard_mqtt_broker --to data
      perdure pipeline migrate --from redis+cluster://10.0.0.1:6379 --to data --dry-run
      perdure pipeline migrate --from postgresql://tbmq@db/tbmq --to redis://cache --to-layout tbmq
    """
    options = _options(
        (source, from_layout, prefix),
        (target, to_layout, to_prefix),
        ttl=ttl,
        limit=limit,
        session_expiry=session_expiry,
        shared=not no_shared,
    )
    subs = _subscriptions(subscriptions, options)
    kept = None if dry_run else _ledger_path(ledger, options)
    with _executor(local=local, master=master, memory=memory, parallel=parallel) as execute:
        summary = _run(options, kept, subs, execute)
    _show(out, summary, dry_run=dry_run)
    if summary.mismatch_count or (summary.losses.damaged and not skip_damaged):
        return ExitCode.EXPECTATION
    return ExitCode.OK


def _options(
    source: tuple[str, Any, str],
    target: tuple[str, Any, str],
    *,
    ttl: str,
    limit: int,
    session_expiry: str,
    shared: bool,
) -> Options:
    """What is to be done; ends are (URL, layout, prefix)."""
    with pipeline_installed():
        from perdure.cli.migrate_source import open_directory_source
        from perdure.pipeline.jobs.migrate.endpoints import parse_endpoint
        from perdure.pipeline.jobs.migrate.job import Options
    ends = [
        parse_endpoint(url, layout=layout, prefix=prefix)
        for url, layout, prefix in (source, target)
    ]
    options = Options(
        ends[0],
        ends[1],
        ttl_s=_seconds(ttl, "--ttl"),
        limit=limit,
        session_expiry_s=SESSION_EXPIRY_NEVER_S
        if session_expiry == "never"
        else _seconds(session_expiry, "--session-expiry"),
        shared=shared,
        directory=open_directory_source,
    )
    if options.source.kind == "directory" and not Path(options.source.url, "CURRENT").exists():
        raise CommandFailed(f"{options.source.url} holds no database", ExitCode.NOT_FOUND)
    if options.source.shown == options.target.shown:
        raise click.UsageError("--from and --to are the same")
    return options


def _subscriptions(path: Path | None, options: Options) -> dict[str, list[Subscription]]:
    """What clients have subscribed to, by client id."""
    from perdure.pipeline.jobs.migrate.job import parse_subscriptions

    if path is None:
        return {}
    if not options.target.is_database:
        raise click.UsageError("--subscriptions is for a data directory or --to-layout broker")
    with path.open("rb") as lines:
        return parse_subscriptions(lines)


def _run(
    options: Options,
    ledger: Path | None,
    subscriptions: dict[str, list[Subscription]],
    execute: Execute,
) -> Summary:
    """Do it; without a ledger only read and count."""
    from perdure.pipeline.jobs.migrate.job import Migration
    from perdure.pipeline.jobs.migrate.ledger import Ledger

    with _progress() as on_range:
        migration = Migration(
            options,
            None if ledger is None else Ledger(ledger),
            execute=execute,
            now_us=SystemClock().now_us(),
            subscriptions=subscriptions,
            progress=on_range,
        )
        with contextlib.closing(migration):
            return migration.dry_run() if ledger is None else migration.run()


def _seconds(text: str, option: str) -> int:
    try:
        return parse_duration(text, "s") if text != "0" else 0
    except ValueError as error:
        raise click.BadParameter(f"{option}: {error}") from error


def _ledger_path(given: Path | None, options: Options) -> Path:
    if given is not None:
        return given
    both = f"{options.source.shown}\n{options.target.shown}".encode()
    return Path(f"perdure-migrate-{hashlib.blake2b(both, digest_size=4).hexdigest()}")


@contextlib.contextmanager
def _executor(
    *, local: bool, master: str | None, memory: str, parallel: int | None
) -> Iterator[Execute]:
    """What runs the tasks."""
    if local:
        from perdure.pipeline.jobs.migrate.job import execute_here

        yield execute_here
        return
    with pipeline_installed():
        from perdure.pipeline.spark_tasks import SparkTasks
    with spark_session("migrate", master=master, memory=memory) as spark:
        yield SparkTasks(spark, parallel=parallel or 0)


@contextlib.contextmanager
def _progress() -> Iterator[RangeProgress]:
    """A bar on standard error if it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("migrating"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} ranges, {task.fields[entries]:,} entries"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task("migrating", total=None, entries=0)

        def update(done: int, total: int, entries: int) -> None:
            bar.update(shown, completed=done, total=total, entries=entries)

        yield update


def _show(out: Output, summary: Summary, *, dry_run: bool) -> None:
    losses = summary.losses
    numbers: dict[str, Any] = {
        "clients": summary.clients,
        "entries": summary.entries,
        "pubrels": summary.pubrels,
        "payload_bytes": summary.payload_bytes,
        "sessions_without_queue": summary.sessions_added,
        "ranges": summary.ranges,
        "ranges_of_earlier_runs": summary.resumed_ranges,
        "renumbered": losses.renumbered,
        "expired": losses.expired,
        "dangling": losses.dangling,
        "over_limit": losses.over_limit,
        "repeated_pubrels": losses.repeated,
        "pubrels_of_shared_queues": losses.orphaned,
        "damaged": len(losses.damaged),
        "verified": None if dry_run else not summary.mismatch_count,
        "mismatches": summary.mismatch_count,
    }
    if out.is_json:
        numbers["damaged_entries"] = losses.damaged
        numbers["mismatched_clients"] = [msgspec.to_builtins(each) for each in summary.mismatches]
        out.record(numbers)
        return
    out.record(numbers)
    for line in losses.damaged[:_DAMAGED_SHOWN]:
        click.echo(f"cannot be read: {line}", err=True)
    if len(losses.damaged) > _DAMAGED_SHOWN:
        click.echo(f"and {len(losses.damaged) - _DAMAGED_SHOWN} more; --json has all", err=True)
    if summary.mismatches:
        out.text("\n")
        out.rows(_COLUMNS, [msgspec.to_builtins(each) for each in summary.mismatches])
