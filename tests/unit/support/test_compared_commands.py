"""Every command that reads is compared with the API, or is said why not."""

from __future__ import annotations

from collections.abc import Iterator

import click

from perdure.cli.main import cli
from tests.support.compared_commands import COMMANDS, OTHERWISE, WRITES


def _leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from _leaves(found, (*path, name))
        else:
            yield " ".join((*path, name))


def test_no_command_that_reads_is_left_out() -> None:
    compared = {command.partition(" --")[0] for command in COMMANDS}
    for leaf in _leaves(cli):
        if leaf not in compared and leaf not in OTHERWISE:
            assert leaf.split()[-1] in WRITES, f"{leaf}: compare it with the API, or say why not"
