"""``perdure storage repair``: makes a damaged data directory one that a broker starts with."""

from __future__ import annotations

import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Final

import click

from perdure.cli.data import confirm, database_directory, storage_options
from perdure.cli.exit_codes import ExitCode
from perdure.cli.state_open import is_in_server
from perdure.config.schema import StorageConfig

FINDINGS_SHOWN_MAX: Final = 50
"""Lines of damage before a repair asks."""


@click.command()
@storage_options
@click.option("--yes", is_flag=True, help="Do not ask.")
def repair(storage: StorageConfig, yes: bool) -> int:
    """Make a damaged data directory one that a broker starts with.

    Says first what is damaged and may be lost. The damaged files are kept in damaged-<time>/ below
    the data directory. The broker must not run. Of a state that is in a server only the files of
    the data directory are looked at.
    """
    in_server = is_in_server(storage)
    path = Path(storage.path) if in_server else database_directory(storage)
    from perdure.server.own_files import damaged_files, missed_files, put_aside
    from perdure.storage.rocksdb.inspection import inspect
    from perdure.storage.rocksdb.repair import repair_directory

    beside, missed = list(damaged_files(path)), list(missed_files(path))
    rows = [] if in_server else list(inspect(path, storage.rocksdb))
    found = Counter((each.table, each.problem) for each in (*beside, *missed, *rows))
    for (table, problem), count in islice(found.items(), FINDINGS_SHOWN_MAX):
        where = f"{table}: " if table else ""
        times = f" ({count} rows)" if count > 1 else ""
        click.echo(f"{where}{problem}{times}", err=True)
    if len(found) > FINDINGS_SHOWN_MAX:
        click.echo(f"... and {len(found) - FINDINGS_SHOWN_MAX} more", err=True)
    if not found:
        click.echo(f"{path}: nothing to repair", err=True)
        return ExitCode.OK
    click.echo(
        "What is listed is lost, as far as it cannot be read; all else is kept. "
        "A copy of the directory is the way back.",
        err=True,
    )
    confirm(f"Repair {path}?", yes=yes)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = path / f"damaged-{stamp}"
    if beside or missed:
        names, gone = [each.table for each in beside], [each.table for each in missed]
        put_aside(path, names, gone, aside)
    if rows:
        repair_directory(
            path, storage.rocksdb, stamp=stamp, say=lambda text: click.echo(text, err=True)
        )
    click.echo(f"{path}: repaired; what was damaged is in {aside}", err=True)
    return ExitCode.OK
