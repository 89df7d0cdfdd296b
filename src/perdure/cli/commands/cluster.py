"""``perdure cluster``: several brokers on one log."""

from __future__ import annotations

import click

from perdure.cli.cluster_join import init, join
from perdure.cli.cluster_nodes import expel, forget, status, verify


@click.group()
def command() -> None:
    """Show and compare the nodes of a cluster; make a node's data directory.

    \b
    Examples:
      perdure cluster status --data /var/lib/perdure
      perdure cluster verify --kafka k1:9092 --name prod n1 n2 n3
      perdure cluster init --data /var/lib/perdure --to /backups
      perdure cluster join --from https://n1:18083 --token-file token --data /var/lib/perdure
    """


command.add_command(init)
command.add_command(join)
command.add_command(status)
command.add_command(verify)
command.add_command(expel)
command.add_command(forget)
