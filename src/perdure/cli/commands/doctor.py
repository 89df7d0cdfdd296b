"""``perdure doctor``: is this machine, with this configuration, fit for a broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from perdure.cli.admin_client import AdminClient
from perdure.cli.data import broker_options
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.config.schema import Config

if TYPE_CHECKING:
    from perdure.server.doctor import Check

_COLUMNS: Final = (
    Column("check"),
    Column("verdict"),
    Column("found", prose=True),
    Column("remedy", prose=True),
)


@click.command()
@broker_options
@output_options
def command(config: Config, out: Output) -> int:
    """Check limits, disk, clock, ports, permissions and configuration, each with its remedy.

    Run it as the broker's user, with the broker's configuration. Ports are tried only while no
    broker runs on the directory. Exit code 0: fit, warnings or not; 1: a problem.

    \b
    Examples:
      sudo -u perdure perdure doctor --config /etc/perdure/perdure.yaml
      perdure doctor --json
    """
    from perdure.server.doctor import Check, examine_machine
    from perdure.server.preflight import look

    running = _is_running(Path(config.storage.path))
    checks: list[Check] = list(examine_machine(config))
    about = "runs on this directory" if running else "none runs on this directory"
    checks.append(Check("broker", "ok", about))
    found = look(config, ports=not running).findings
    checks += [Check(each.path, each.severity, each.message, each.hint) for each in found]
    if not found:
        checks.append(Check("configuration", "ok", "files, packages and addresses are there"))
    out.rows(_COLUMNS, map(msgspec.to_builtins, checks))
    is_fit = all(each.verdict != "problem" for each in checks)
    return ExitCode.OK if is_fit else ExitCode.EXPECTATION


def _is_running(data: Path) -> bool:
    try:
        client = AdminClient.connect(data)
    except CommandFailed:
        return True
    if client is None:
        return False
    client.close()
    return True
