"""``perdure health``: one question for probes, answered by the exit code."""

from __future__ import annotations

from pathlib import Path

import click

from perdure.admin.records.node import GetStats
from perdure.cli.admin_client import AdminClient
from perdure.cli.data import data_options
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.running_broker import not_running


@click.command()
@click.option(
    "--live",
    is_flag=True,
    help="Ask only whether it answers, not whether it takes clients and messages.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0.1, 60),
    default=4.0,
    show_default=True,
    help="Seconds to wait for the answer.",
)
@data_options
def command(data: Path, live: bool, timeout_s: float) -> int:
    """Tell by the exit code whether the broker on this machine serves.

    0 it does, 69 it does not run or does not answer, 75 it starts, stops, or its storage
    takes no messages. For probes of containers and supervisors; where HTTP is on they may ask
    /livez and /readyz.

    \b
    Examples:
      perdure health --data /var/lib/perdure
      perdure health --live
    """
    client = AdminClient.connect(data, timeout_s=timeout_s)
    if client is None:
        raise not_running(data)
    with client:
        stats = client.call(GetStats())
    if live or (stats.phase == "serving" and stats.storage == "ok"):
        click.echo("ok")
        return ExitCode.OK
    if stats.phase != "serving":
        raise CommandFailed(f"the broker takes no clients: {stats.phase}", ExitCode.TEMPORARY)
    raise CommandFailed(
        f"the storage takes no messages: {stats.storage}",
        ExitCode.TEMPORARY,
        hint="perdure status and the broker's log say why",
    )
