"""``perdure restore``: makes a data directory from a backup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from perdure.cli.backup_options import backups_option, progress_bar, refuse_server, size_option
from perdure.cli.data import broker_options
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Output, output_options
from perdure.clock import SystemClock
from perdure.config.schema import Config
from perdure.config.units import format_time, parse_time

if TYPE_CHECKING:
    from perdure.backup.manifest import BackupManifest
    from perdure.backup.place import Place
    from perdure.backup.restoring import Restored


@click.command()
@backups_option
@click.option("--backup", "wanted", default="", metavar="ID", help="Which; else the newest.")
@click.option(
    "--at",
    metavar="OFFSET|TIME",
    help="Cut off what is later: an offset, RFC 3339, or how long ago (2h).",
)
@size_option("--rate", "Bytes per second that are copied, such as 50MiB.")
@click.option("--no-progress", is_flag=True, help="Show no progress on the terminal.")
@broker_options
@output_options
def command(
    place: str,
    wanted: str,
    at: str | None,
    rate: int | None,
    no_progress: bool,
    config: Config,
    out: Output,
) -> None:
    """Make a data directory from a backup, and verify it.

    The directory must be empty, or not be there. Says what the broker that starts there promises,
    up to which position, and what cannot be known.

    \b
    Examples:
      perdure restore --from /backups --data /var/lib/perdure
      perdure restore --from /backups --data before --at 2026-11-23T08:00:00Z
      perdure restore --from s3://company/perdure --backup 20261123T0300 --data /var/lib/perdure
    """
    refuse_server(config.storage)
    from perdure.backup.keeping import check_place
    from perdure.backup.places import open_place
    from perdure.backup.restoring import restore

    opened = open_place(place, setting="--from")
    check_place(opened)
    offset = _offset(at)
    manifest = _chosen(opened, wanted, offset)
    with progress_bar(wanted=not no_progress) as progress:
        restored = restore(
            opened,
            manifest,
            Path(config.storage.path),
            config=config.storage.rocksdb,
            at=offset,
            rate=rate or 0,
            progress=progress,
        )
    if out.is_json:
        out.record({**msgspec.to_builtins(restored), "position_at": format_time(restored.position)})
        return
    for line in _promises(restored, Path(config.storage.path), is_cut=bool(offset)):
        out.text(f"{line}\n")


def _offset(at: str | None) -> int:
    if at is None:
        return 0
    try:
        return parse_time(at, SystemClock().now_us())
    except ValueError as error:
        raise click.BadParameter(f"--at: {error}") from error


def _chosen(place: Place, wanted: str, offset: int) -> BackupManifest:
    """The backup that was named; else the first that reaches so far, else the newest.

    State was overwritten as little as possible in the first one.
    """
    from perdure.backup.keeping import find_backup, read_backups
    from perdure.backup.manifest import BackupManifest

    if wanted or not offset:
        return find_backup(place, wanted)
    whole = [each for each in read_backups(place) if isinstance(each, BackupManifest)]
    reaching = [each for each in whole if each.position >= offset]
    if reaching:
        return reaching[0]
    last = max((each.position for each in whole), default=0)
    raise CommandFailed(
        f"no backup in {place.url} reaches up to {format_time(offset)}",
        ExitCode.NOT_FOUND,
        hint=f"the last one ends at {format_time(last)} (offset {last})",
    )


def _promises(restored: Restored, data: Path, *, is_cut: bool) -> Iterator[str]:
    """What the restored broker keeps, in words."""
    until = f"offset {restored.position} ({format_time(restored.position)})"
    yield f"{data}: restored from backup {restored.backup}, verified"
    yield (
        f"{restored.messages} messages, {restored.sessions} sessions, "
        f"{restored.retained} retained messages, up to {until}"
    )
    if restored.is_node:
        yield "It is a node's: started as one it goes on in the log of its cluster, which has what"
        yield "came later. Its sessions begin anew if it is started without that, or if"
        yield "`perdure cluster init --anew` has it begin another log."
        return
    yield f"What was acknowledged up to {until} is there; what came later is not."
    yield "Every session has its subscriptions and gets what it was owed then, in order; what its"
    yield "client acknowledged after that comes again, with DUP. Clients are told: the next CONNACK"
    yield "says Session Present 0, since packet identifiers that they know are of another time."
    yield "Do not run it beside the broker that the backup was taken from."
    if is_cut:
        yield from _unknown(restored)


def _unknown(restored: Restored) -> Iterator[str]:
    cut = restored.rewound
    yield (
        f"Cut off behind that: {cut.messages} messages, {cut.sessions} sessions, "
        f"{cut.subscriptions} subscriptions, {cut.entries} entries of private streams, "
        f"{cut.retained} retained messages; {cut.revived} subscriptions hold again, "
        f"{cut.retained_found} retained messages were found in the log"
    )
    yield "Not known, because it was overwritten between then and the backup:"
    yield "  what clients acknowledged since: it does not come again"
    yield "  sessions that ended since: they are not there"
    yield "  wills, expiry intervals and owners of sessions: as they were in the backup"
    yield "  retained messages of QoS 0 that were replaced or cleared since: none is retained"
    if cut.retained_unknown:
        names = ", ".join(cut.unknown_topics)
        more = cut.retained_unknown - len(cut.unknown_topics)
        yield f"    {cut.retained_unknown} topics: {names}" + (f" and {more} more" if more else "")
