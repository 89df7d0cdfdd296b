"""``perdure cluster``: several brokers on one log."""

from __future__ import annotations

import click

from perdure.cli.cluster_join import init, join


@click.group()
def command() -> None:
    """Make a node's data directory from a broker's, or from a node that runs.

    \b
    Examples:
      perdure cluster init --data /var/lib/perdure --to /backups
      perdure cluster join --from https://n1:18083 --token-file token --data /var/lib/perdure
    """


command.add_command(init)
command.add_command(join)
