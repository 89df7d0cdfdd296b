"""``perdure alarms``: what the broker warns of."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from perdure.admin.records.watch import ListAlarms
from perdure.cli.data import data_options
from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.running_broker import running_broker

COLUMNS = (
    Column("name"),
    Column("state"),
    Column("raised_at", time=True),
    Column("cleared_at", time=True),
    Column("message", prose=True),
)


@click.group()
def command() -> None:
    """Show what the broker warns of.

    \b
    Examples:
      perdure alarms list
      perdure alarms list --ended --json
    """


@command.command("list")
@click.option("--ended", is_flag=True, help="Those that are over, too (the last 200).")
@data_options
@output_options
def list_alarms(data: Path, ended: bool, out: Output) -> int:
    """List alarms, the newest first; exit 1 if one is raised.

    \b
    Examples:
      perdure alarms list --data /var/lib/perdure || mail -s perdure ops@example
    """
    with running_broker(data) as client:
        found = client.call(ListAlarms(ended=ended)).items
    out.rows(COLUMNS, [msgspec.to_builtins(alarm) for alarm in found])
    raised = any(alarm.state == "raised" for alarm in found)
    return ExitCode.EXPECTATION if raised else ExitCode.OK
