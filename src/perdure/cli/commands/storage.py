"""``perdure storage``: looks into a data directory or a server, beside a running broker or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from perdure.admin.records.storage import (
    DropGeneration,
    ListDatabases,
    ListGenerations,
    RotateLog,
)
from perdure.cli.admin_client import AdminClient
from perdure.cli.data import confirm, data_options, database_directory, storage_options
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.running_broker import not_running
from perdure.cli.state_open import (
    is_in_server,
    open_directory_state,
    open_server_state,
    open_stored,
    place,
)
from perdure.cli.storage_read import export, read
from perdure.cli.storage_repair import repair
from perdure.config.schema import StorageConfig
from perdure.config.units import format_size, format_time
from perdure.topic.proposal import parse_proposal

if TYPE_CHECKING:
    from perdure.storage.contract import Finding, GenerationInfo


@click.group()
def command() -> None:
    """Look into the log and check it.

    \b
    Examples:
      perdure storage info
      perdure storage read --topic 'devices/+/temperature' --from 1h --limit 20
      perdure storage export --to log.jsonl.gz --from 1d
      perdure storage check --data /var/lib/perdure
      perdure storage repair --data /var/lib/perdure
    """


@command.command()
@storage_options
@output_options
def info(storage: StorageConfig, out: Output) -> None:
    """Show what a broker's state holds."""
    record = _info_of_server(storage) if is_in_server(storage) else _info_of_directory(storage)
    if not out.is_json:
        record |= {
            name: _rounded(record[name]) for name in ("disk_bytes", "log_bytes") if name in record
        }
    out.record(record)


def _info_of_directory(storage: StorageConfig) -> dict[str, Any]:
    with open_directory_state(storage) as opened:
        database = opened.database
        path = Path(storage.path)
        return {
            "path": str(path.resolve()),
            "disk_bytes": _disk_bytes(path),
            **_log_info(database.last_offset, database.generations()),
            "sessions": opened.run(database.session_count()),
            "shared_groups": len(opened.run(database.groups())),
            "retained_messages": database.retained_count,
        }


def _info_of_server(storage: StorageConfig) -> dict[str, Any]:
    with open_server_state(storage) as opened:
        view = opened.source
        return {
            "server": place(storage),
            **_log_info(view.last_offset, view.generations()),
            "sessions": opened.run(view.session_count()),
            "shared_groups": len(opened.run(view.groups())),
            "retained_messages": opened.run(view.retained_count()),
        }


def _log_info(last_offset: int, generations: Sequence[GenerationInfo]) -> dict[str, Any]:
    return {
        "last_offset": last_offset,
        "last_at": format_time(last_offset),
        "generations": len(generations),
        "oldest_at": format_time(generations[0].created_at_us) if generations else None,
        "messages": sum(generation.message_count for generation in generations),
        "log_bytes": sum(generation.bytes for generation in generations),
        "streams": sum(generation.stream_count for generation in generations),
    }


def _disk_bytes(path: Path) -> int:
    """Space that the files of a directory take; a running broker may delete some meanwhile."""
    total = 0
    for file in path.rglob("*"):
        try:
            stat = file.lstat()
        except FileNotFoundError:
            continue
        total += stat.st_blocks * 512
    return total


def _rounded(size: int) -> str:
    """A size for people: three digits or so."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return format_size(size)


@command.command()
@storage_options
@output_options
def databases(storage: StorageConfig, out: Output) -> None:
    """List the databases that the broker keeps messages in: one, in this release."""
    from perdure.server.administration.storage import database_row

    client = AdminClient.connect(Path(storage.path), or_read=True)
    if client is not None:
        with client:
            rows = client.call(ListDatabases()).items
    else:
        with open_stored(storage) as (log, _):
            rows = [database_row(storage, log.last_offset, log.generations())]
    columns = (
        Column("database"),
        Column("backend"),
        Column("durability"),
        Column("generations", right=True),
        Column("message_count", right=True),
        Column("bytes", right=True),
        Column("last_at", time=True),
    )
    out.rows(columns, map(msgspec.to_builtins, rows))


@command.command()
@storage_options
@output_options
def generations(storage: StorageConfig, out: Output) -> None:
    """List the generations of the log, oldest first."""
    from perdure.server.administration.storage import generation_row

    client = AdminClient.connect(Path(storage.path), or_read=True)
    if client is not None:
        with client:
            rows = client.call(ListGenerations()).items
    else:
        with open_stored(storage) as (log, _):
            rows = [generation_row(info) for info in log.generations()]
    columns = (
        Column("generation", right=True),
        Column("layout", right=True),
        Column("created_at", time=True),
        Column("state"),
        Column("message_count", right=True),
        Column("bytes", right=True),
        Column("stream_count", right=True),
    )
    out.rows(columns, map(msgspec.to_builtins, rows))


@command.command()
@storage_options
@click.option("--generation", type=int, help="Only this one; else all.")
@output_options
def streams(storage: StorageConfig, generation: int | None, out: Output) -> None:
    """List the learned streams: topics whose levels vary are one stream."""
    if is_in_server(storage):
        raise CommandFailed(
            f"storage.backend is {storage.backend}: a log in a server learns no streams",
            ExitCode.USAGE,
            hint="perdure storage read -t FILTER reads it by topic",
        )
    with open_directory_state(storage) as opened:
        known = [item.generation for item in opened.database.generations()]
        if generation is not None and generation not in known:
            raise CommandFailed(f"there is no generation {generation}", ExitCode.NOT_FOUND)
        chosen = known if generation is None else [generation]
        rows = (
            {"generation": item.generation, "stream": item.stream, "pattern": item.pattern}
            for number in chosen
            for item in opened.database.streams(number)
        )
        columns = (Column("generation", right=True), Column("stream", right=True))
        out.rows((*columns, Column("pattern")), rows)


@command.command()
@storage_options
@output_options
def check(storage: StorageConfig, out: Output) -> int:
    """Verify every file and record of a broker's state; exit 65 if something is wrong.

    Goes on behind what cannot be read, and lists the sessions that it touches.
    """
    if is_in_server(storage):
        with open_server_state(storage) as server:
            from perdure.server.own_files import wrong_files

            found = server.each(server.source.check())
            count = _print_findings(out, chain(wrong_files(Path(storage.path)), found))
    else:
        count = _print_findings(out, _check_directory(storage))
    verdict = "ok" if count == 0 else f"{count} {'problem' if count == 1 else 'problems'}"
    click.echo(f"{place(storage)}: {verdict}", err=True)
    return ExitCode.DATA if count else ExitCode.OK


def _check_directory(storage: StorageConfig) -> Iterator[Finding]:
    """What is wrong with the files of a directory, and then with its rows."""
    from perdure.server.own_files import wrong_files
    from perdure.storage.rocksdb.inspection import inspect

    path = database_directory(storage)
    yield from wrong_files(path)
    yield from inspect(path, storage.rocksdb)


def _print_findings(out: Output, findings: Iterator[Finding]) -> int:
    rows = ({"table": each.table, "key": each.key, "problem": each.problem} for each in findings)
    return out.rows((Column("table"), Column("key"), Column("problem")), rows)


@command.command()
@data_options
@click.option(
    "--proposal",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Begin with the topic structure that pipeline learn proposes.",
)
@output_options
def rotate(data: Path, proposal: Path | None, out: Output) -> None:
    """Begin a new generation of the log now. Needs a running broker."""
    request = RotateLog()
    if proposal is not None:
        found = parse_proposal(proposal.read_bytes())
        request = RotateLog(structure=found.structure)
    client = AdminClient.connect(data)
    if client is None:
        raise not_running(data)
    with client:
        out.record(msgspec.to_builtins(client.call(request)))
    if proposal is not None:
        click.echo(
            "later generations inherit the levels that vary; to keep the thresholds too, set "
            f"storage.rocksdb.learn_thresholds to {list(found.thresholds)}",
            err=True,
        )


@command.command()
@data_options
@click.argument("generation", type=int)
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@click.option("--force", is_flag=True, help="Drop what a pipeline has not read, too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_options
def drop(data: Path, generation: int, dry_run: bool, force: bool, yes: bool, out: Output) -> None:
    """Drop the oldest GENERATION of the log now. Needs a running broker.

    What sessions are owed from it is copied to them first.
    """
    client = AdminClient.connect(data)
    if client is None:
        raise not_running(data)
    with client:
        request = DropGeneration(generation=generation, dry_run=True, force=force)
        preview = client.call(request)
        if not dry_run:
            confirm(f"Drop {preview.message_count} messages of generation {generation}?", yes=yes)
            preview = client.call(msgspec.structs.replace(request, dry_run=False))
    out.record(msgspec.to_builtins(preview))


command.add_command(read)
command.add_command(export)
command.add_command(repair)
