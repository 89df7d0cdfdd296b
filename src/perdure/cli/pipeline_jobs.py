"""``perdure pipeline jobs``: what the running broker knows of its pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.admin.records.pipeline import ListPipelines, Pipeline
from perdure.cli.data import data_options
from perdure.cli.output import Column, Output, output_options
from perdure.cli.running_broker import running_broker

_COLUMNS = (
    Column("pipeline"),
    Column("behind_s", right=True, tenths=True),
    Column("rows", right=True),
    Column("job"),
    Column("state"),
    Column("every_s", right=True, tenths=True),
    Column("runs", right=True),
    Column("failures", right=True),
    Column("succeeded_at", time=True),
    Column("due_at", time=True),
    Column("unreachable_since", time=True),
    Column("last_error", prose=True),
)


@click.command()
@data_options
@output_options
def jobs(data: Path, out: Output) -> None:
    """List the jobs of pipelines that have told the running broker of themselves.

    Each run of `pipeline run` does, wherever it is; a pipeline that is run by hand has no jobs.
    `perdure pipeline status` reads the same files without a broker.

    \b
    Examples:
      perdure pipeline jobs
      perdure pipeline jobs --json
    """
    with running_broker(data) as client:
        found = list(client.items(ListPipelines()))
    if out.is_json:
        out.rows((), map(msgspec.to_builtins, found))
        return
    out.rows(_COLUMNS, (row for each in found for row in _rows(each)))


def _rows(found: Pipeline) -> Iterator[dict[str, Any]]:
    """A row for each job; one row for a pipeline without any."""
    about = {"pipeline": found.name, "behind_s": found.behind_s, "rows": found.rows}
    for job in found.jobs:
        yield {**msgspec.to_builtins(job), **about, "job": job.name}
    if not found.jobs:
        yield {**about, "job": "by hand"}
