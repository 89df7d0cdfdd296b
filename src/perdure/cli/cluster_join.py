"""``perdure cluster init`` and ``join``: a node's data directory before its first start."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from perdure import __version__
from perdure.cli.backup_options import progress_bar, refuse_server
from perdure.cli.data import broker_options, database_directory
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Output, output_options
from perdure.cli.token_file import first_token
from perdure.clock import SystemClock
from perdure.config.schema import Config
from perdure.config.units import format_time

TOKEN_VARIABLE = "PERDURE_TOKEN"  # noqa: S105 - the name of a variable


@click.command()
@click.option("--to", "to", metavar="PLACE", help="Also keep its state there as a backup.")
@click.option(
    "--anew",
    is_flag=True,
    help="Of a node whose shared log is lost: forget it, and begin another one with its state.",
)
@click.option("--no-progress", is_flag=True, help="Show no progress on the terminal.")
@broker_options
@output_options
def init(to: str | None, anew: bool, no_progress: bool, config: Config, out: Output) -> None:
    """Verify that a single broker's directory can be a cluster's first node.

    The broker must be stopped. Its state is the cluster's first checkpoint: start this node first,
    and let the others join it. Or restore the backup on all of them, this one too: clients begin
    anew then.

    \b
    Examples:
      perdure cluster init --data /var/lib/perdure --to /backups
      perdure cluster init --data /var/lib/perdure --anew
    """
    refuse_server(config.storage)
    data = database_directory(config.storage)
    from perdure.backup.nodes import is_node as reads_log
    from perdure.backup.places import open_place
    from perdure.backup.taking import take_backup
    from perdure.server.bans import read_bans
    from perdure.storage.rocksdb.inspection import has_owner, inspect
    from perdure.storage.rocksdb.store import RocksDatabase

    if has_owner(data):
        raise CommandFailed(
            f"a broker runs on {data}", ExitCode.TEMPORARY, hint="stop it; then run this again"
        )
    problems = sum(1 for _ in inspect(data, config.storage.rocksdb))
    if problems:
        raise CommandFailed(
            f"{data} has {problems} {'problem' if problems == 1 else 'problems'}",
            ExitCode.DATA,
            hint="perdure storage check lists them",
        )
    database = RocksDatabase.open(data, config=config.storage.rocksdb, read_only=True)
    try:
        is_node = reads_log(database)
        position = database.last_offset
        sessions = database.marks.session_count
    finally:
        database.close()
    if is_node and not anew:
        raise CommandFailed(
            f"{data} has been a node of a cluster already, and has come to {position}",
            ExitCode.USAGE,
            hint="start it as it is; if the cluster's log in Kafka is lost, --anew begins another",
        )
    if is_node:
        _forget_log(data, config)
    kept = None
    if to:
        with progress_bar(wanted=not no_progress) as progress:
            kept = take_backup(
                data,
                open_place(to, data=data),
                config=config.storage.rocksdb,
                version=__version__,
                now_us=SystemClock().now_us(),
                rate=config.backup.rate,
                progress=progress,
            ).id
    out.record(
        {
            "data": str(data),
            "position": position,
            "position_at": format_time(position),
            "sessions": sessions,
            "backup": kept,
        }
    )
    click.echo("start it as the first node, and let the others join it", err=True)
    own = len(read_bans(config))
    if own and config.auth.ban_file:
        click.echo(
            f"{config.auth.ban_file} ({own} bans) stays this node's own: give it to the other "
            "nodes too",
            err=True,
        )
    elif own:
        click.echo(f"its bans ({own}) hold on all nodes as soon as it has started", err=True)


def _forget_log(data: Path, config: Config) -> None:
    """Have a directory that was a node's begin a log."""
    from perdure.backup.nodes import leave
    from perdure.storage.rocksdb.store import RocksDatabase

    database = RocksDatabase.open(data, config=config.storage.rocksdb)
    try:
        asyncio.run(leave(database))
        database.sync()
    finally:
        database.close()


@click.command()
@click.option("--from", "url", required=True, metavar="URL", help="HTTP interface of a node.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help=f"File with a token of that node; else {TOKEN_VARIABLE}.",
)
@click.option("--ca-file", default="", metavar="FILE", help="Authority of its certificate, PEM.")
@click.option(
    "--check-rows", is_flag=True, help="Also verify each row, as `perdure storage check` does."
)
@click.option("--no-progress", is_flag=True, help="Show no progress on the terminal.")
@broker_options
@output_options
def join(
    url: str,
    token_file: Path | None,
    ca_file: str,
    check_rows: bool,
    no_progress: bool,
    config: Config,
    out: Output,
) -> None:
    """Fetch the state of a running node into an empty data directory.

    The node that is started there goes on from that position in the shared log. Each file is
    verified by its checksum; --check-rows takes some minutes more for ten million messages.

    \b
    Examples:
      perdure cluster join --from https://n1:18083 --token-file token --data /var/lib/perdure
    """
    refuse_server(config.storage)
    token = _token(token_file)
    from perdure.backup.fetching import fetch_checkpoint
    from perdure.backup.place import RateLimiter

    with progress_bar(wanted=not no_progress) as progress:
        manifest = fetch_checkpoint(
            url,
            token,
            Path(config.storage.path),
            config=config.storage.rocksdb,
            ca_file=ca_file,
            copied=RateLimiter(0, lambda done: progress("fetch", done, 0)),
            checking=lambda: progress("check", 0, 0),
            rows=check_rows,
        )
    out.record(
        {
            "data": config.storage.path,
            "from": url,
            "position": manifest.position,
            "position_at": format_time(manifest.position),
            "messages": manifest.messages,
            "sessions": manifest.sessions,
            "retained": manifest.retained,
            "size": manifest.size,
        }
    )


def _token(file: Path | None) -> str:
    token = os.environ.get(TOKEN_VARIABLE, "") if file is None else first_token(file)
    if not token or not token.isascii():
        raise click.UsageError(f"no token is given: --token-file, or {TOKEN_VARIABLE}")
    return token
