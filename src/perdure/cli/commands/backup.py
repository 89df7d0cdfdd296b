"""``perdure backup``: keeps a data directory elsewhere, beside its running broker or not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click

from perdure import __version__
from perdure.cli.backup_options import backups_option, progress_bar, refuse_server, size_option
from perdure.cli.data import broker_options, database_directory
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.clock import SystemClock
from perdure.config.schema import Config
from perdure.config.units import format_time

if TYPE_CHECKING:
    from perdure.backup.manifest import BackupManifest

NICENESS: Final = 10

_PLACE: Final = "A directory, or s3://bucket/prefix."


@click.group(invoke_without_command=True)
@click.option("--to", "to", metavar="PLACE", help=f"{_PLACE} Else backup.to.")
@size_option("--rate", "Bytes per second that are copied, such as 50MiB; else backup.rate.")
@click.option("--no-progress", is_flag=True, help="Show no progress on the terminal.")
@broker_options
@output_options
@click.pass_context
def command(
    context: click.Context,
    to: str | None,
    rate: int | None,
    no_progress: bool,
    config: Config,
    out: Output,
) -> None:
    """Back a data directory up, beside its running broker or a stopped one's.

    What an earlier backup in the same place has is not copied again.

    \b
    Examples:
      perdure backup --data /var/lib/perdure --to /backups
      perdure backup --data /var/lib/perdure --to s3://company/perdure --rate 50MiB
      perdure backup list --from /backups
      perdure backup verify --from /backups
      perdure backup prune --from /backups --keep 7
      perdure restore --from /backups --data /var/lib/perdure
    """
    if context.invoked_subcommand is not None:
        return
    to = to or config.backup.to
    if not to:
        raise click.UsageError("no place is named: --to, or the setting backup.to")
    refuse_server(config.storage)
    data = database_directory(config.storage)
    from perdure.backup.places import open_place
    from perdure.backup.taking import take_backup

    if hasattr(os, "nice"):
        # Where there are too few cores for all, the broker's acknowledgements come first.
        os.nice(NICENESS)
    with progress_bar(wanted=not no_progress) as progress:
        manifest = take_backup(
            data,
            open_place(to, data=data),
            config=config.storage.rocksdb,
            version=__version__,
            now_us=SystemClock().now_us(),
            rate=config.backup.rate if rate is None else rate,
            progress=progress,
        )
    out.record(_row(manifest))


@command.command(name="list")
@backups_option
@output_options
def list_backups(place: str, out: Output) -> None:
    """List the backups of a place, oldest first; an interrupted one is none."""
    from perdure.backup.keeping import check_place, read_backups
    from perdure.backup.manifest import BackupManifest
    from perdure.backup.places import open_place

    opened = open_place(place, setting="--from")
    check_place(opened)
    rows = [
        _row(each)
        if isinstance(each, BackupManifest)
        else {"id": each.id, "state": each.error.message}
        for each in read_backups(opened)
    ]
    columns = (
        Column("id"),
        Column("state"),
        Column("position_at", time=True),
        Column("messages", right=True),
        Column("sessions", right=True),
        Column("size", right=True),
        Column("copied", right=True),
    )
    out.rows(columns, rows)


@command.command()
@backups_option
@click.option("--backup", "wanted", default="", metavar="ID", help="Only this one; else all.")
@click.option("--no-progress", is_flag=True, help="Show no progress on the terminal.")
@output_options
def verify(place: str, wanted: str, no_progress: bool, out: Output) -> int:
    """Read every file of the backups again and compare checksums; exit 65 if one is wrong."""
    from perdure.backup.keeping import check_place, read_backups, verify_backups
    from perdure.backup.manifest import BackupManifest
    from perdure.backup.place import RateLimiter
    from perdure.backup.places import open_place

    opened = open_place(place, setting="--from")
    check_place(opened)
    found = [each for each in read_backups(opened) if each.id.startswith(wanted)]
    if not found:
        raise CommandFailed(f"{place} holds no backup {wanted}".rstrip(), ExitCode.NOT_FOUND)
    sizes = {
        file.sha256: file.size
        for each in found
        if isinstance(each, BackupManifest)
        for file in each.files
    }
    total = sum(sizes.values())
    with progress_bar(wanted=not no_progress) as progress:
        limiter = RateLimiter(0, lambda done: progress("verify", done, total))
        problems = verify_backups(
            opened, wanted, limiter, say=lambda text: click.echo(text, err=True)
        )
        rows = ({"backup": x.backup, "file": x.file, "problem": x.problem} for x in problems)
        count = out.rows((Column("backup"), Column("file"), Column("problem")), rows)
    verdict = "ok" if not count else f"{count} {'problem' if count == 1 else 'problems'}"
    click.echo(f"{place}: {len(found)} backups, {verdict}", err=True)
    return ExitCode.DATA if count else ExitCode.OK


@command.command()
@backups_option
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    required=True,
    help="Backups of each database that stay, the newest.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@output_options
def prune(place: str, keep: int, dry_run: bool, out: Output) -> None:
    """Delete all but the newest backups, and what only they needed."""
    from perdure.backup import keeping
    from perdure.backup.places import open_place

    opened = open_place(place, setting="--from")
    keeping.check_place(opened)
    found = keeping.prune(opened, keep, dry_run=dry_run)
    out.record(
        {
            "deleted": list(found.backups),
            "kept": found.kept,
            "objects": found.objects,
            "bytes": found.bytes,
            "dry_run": dry_run,
        }
    )


def _row(manifest: BackupManifest) -> dict[str, Any]:
    return {
        "id": manifest.id,
        "state": "complete",
        "made_at": format_time(manifest.made_at_us),
        "position": manifest.position,
        "position_at": format_time(manifest.position),
        "messages": manifest.messages,
        "sessions": manifest.sessions,
        "retained": manifest.retained,
        "files": len(manifest.files),
        "size": manifest.size,
        "copied": manifest.copied,
        "seconds": manifest.seconds,
        "perdure": manifest.perdure,
        "source": manifest.source,
        "database_id": manifest.database_id,
    }
