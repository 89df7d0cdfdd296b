"""``perdure pipeline maintain``: fewer files, no old states."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import click
import msgspec

from perdure.cli.archive_place import archive_lake, to_option
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.pipeline_options import pipeline_installed
from perdure.cli.settings_options import config_options
from perdure.clock import SystemClock
from perdure.config.load import load
from perdure.config.units import parse_duration, parse_size


@click.command()
@config_options
@to_option
@click.option(
    "--table", "tables", multiple=True, metavar="NAME", help="Only this one; may be repeated."
)
@click.option(
    "--file-size",
    metavar="SIZE",
    help="Put smaller files together to about this; else pipeline.maintain.file_bytes (128MiB).",
)
@click.option(
    "--keep",
    metavar="DURATION",
    help="Forget states of a table, and delete files that nothing needs, that are older; else "
    "pipeline.maintain.keep_s (7d).",
)
@output_options
def maintain(
    config_path: Path | None,
    sets: tuple[str, ...],
    to: str,
    tables: tuple[str, ...],
    file_size: str | None,
    keep: str | None,
    out: Output,
) -> None:
    """Put small files of an archive together, and delete what nothing needs.

    An archive may run meanwhile. Rows stay as they are. Needs no Spark and no Java.
    """
    settings = load(config_path, environ=os.environ, sets=sets).config.pipeline
    try:
        file_bytes = parse_size(file_size) if file_size else settings.maintain.file_bytes
        kept_us = parse_duration(keep, "us") if keep else settings.maintain.keep_s * 1_000_000
    except ValueError as error:
        raise click.BadParameter(f"--file-size, --keep: {error}") from error
    before_us = SystemClock().now_us() - kept_us
    lake = archive_lake(settings.tables, to)
    with pipeline_installed():
        from perdure.pipeline.archive_state import load_state
        from perdure.pipeline.jobs import maintain as job
        from perdure.pipeline.sinks.opening import open_sink

        state = load_state(lake.place, lake.store)
        if state is None:
            raise CommandFailed(
                f"{lake.place} holds no archive",
                ExitCode.NOT_FOUND,
                hint="name the place that pipeline archive wrote to",
            )
        sink = open_sink(state.within(lake), state.position.database)
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
