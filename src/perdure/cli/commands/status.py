"""``perdure status``: whether the broker on this machine runs and takes messages."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from perdure.admin.records.node import GetOverview, GetStats, Stats
from perdure.cli.admin_client import AdminClient
from perdure.cli.data import data_options
from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import Output, output_options
from perdure.cli.running_broker import not_running


@click.command()
@click.option(
    "--node",
    metavar="NAME",
    help="Those of this node of the cluster, * = of all; with rates, and as of when they are.",
)
@data_options
@output_options
def command(node: str | None, data: Path, out: Output) -> int:
    """Show the running broker's numbers; exit 69 if none runs, 75 if its storage has failed
    or its disk budget is used up.

    \b
    Examples:
      perdure status
      perdure status --node n2
      perdure status --node '*' --json
      perdure status --data /var/lib/perdure --json
    """
    client = AdminClient.connect(data)
    if client is None:
        raise not_running(data)
    with client:
        stats: Stats
        if node is None:
            stats = client.call(GetStats())
        else:
            stats = client.call(GetOverview(node=node))
    out.record(msgspec.to_builtins(stats))
    return ExitCode.OK if stats.storage == "ok" else ExitCode.TEMPORARY
