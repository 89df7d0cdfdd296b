"""``perdure pipeline maintain``: fewer files, no old states."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import click
import msgspec

from perdure.cli.archive_place import archive_place
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.pipeline_options import pipeline_installed
from perdure.clock import SystemClock
from perdure.config.units import parse_duration, parse_size

KEEP: Final = "7d"
FILE_SIZE: Final = "128MiB"


@click.command()
@click.option(
    "--to", callback=archive_place, required=True, metavar="DIR", help="Directory of the archive."
)
@click.option(
    "--table", "tables", multiple=True, metavar="NAME", help="Only this one; may be repeated."
)
@click.option(
    "--file-size",
    default=FILE_SIZE,
    show_default=True,
    metavar="SIZE",
    help="Put smaller files together to about this.",
)
@click.option(
    "--keep",
    default=KEEP,
    show_default=True,
    metavar="DURATION",
    help="Forget states of a table, and delete files that nothing needs, that are older.",
)
@output_options
def maintain(to: Path, tables: tuple[str, ...], file_size: str, keep: str, out: Output) -> None:
    """Put small files of an archive together, and delete what nothing needs.

    An archive may run meanwhile. Rows stay as they are. Needs no Spark and no Java.
    """
    try:
        file_bytes = parse_size(file_size)
        before_us = SystemClock().now_us() - parse_duration(keep, "us")
    except ValueError as error:
        raise click.BadParameter(f"--file-size, --keep: {error}") from error
    with pipeline_installed():
        from perdure.pipeline.archive_state import load_state
        from perdure.pipeline.jobs import maintain as job
        from perdure.pipeline.sinks.opening import open_sink

        state = load_state(to)
        if state is None:
            raise CommandFailed(
                f"{to} holds no archive",
                ExitCode.NOT_FOUND,
                hint="name the directory that pipeline archive wrote to",
            )
        sink = open_sink(state.format, to, state.catalog, state.position.database)
    specs = {spec.name: spec for spec in state.tables}
    unknown = [name for name in tables if name not in specs]
    if unknown:
        raise CommandFailed(
            f"the archive has no table {unknown[0]}",
            ExitCode.NOT_FOUND,
            hint=f"it has {', '.join(specs)}",
        )
    try:
        columns = [Column(name, right=name != "table") for name in job.Maintained.__struct_fields__]
        out.rows(
            columns,
            [
                msgspec.structs.asdict(
                    job.maintain(
                        sink,
                        specs[name],
                        before_us=before_us,
                        file_bytes=file_bytes,
                        progress=partial(_progress, name),
                    )
                )
                for name in tables or specs
            ],
        )
    finally:
        sink.close()


def _progress(table: str, done: int, total: int) -> None:
    """How many groups of a table are done, if there are any."""
    if done < total:
        click.echo(f"{table}: group {done + 1} of {total}", err=True)
