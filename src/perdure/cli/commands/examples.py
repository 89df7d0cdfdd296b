"""``perdure examples``: those of all commands' helps, in one place."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import NamedTuple

import click

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options

_HEAD = "Examples:"


class Example(NamedTuple):
    """A line to copy.

    Attributes:
        command: whose help has it.
        about: what that command does.
        line: as it is typed.
    """

    command: str
    about: str
    line: str


def examples(command: click.Command, parent: click.Context | None = None) -> Iterator[Example]:
    """Those of a command and of all below it, in the order of the help.

    Args:
        command: where to begin.
        parent: what it is called by; None = it is the program.
    """
    name = "perdure" if parent is None else command.name
    context = click.Context(command, info_name=name, parent=parent)
    about = command.get_short_help_str(200)
    for line in _lines(command.help or ""):
        yield Example(context.command_path, about, line)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            if below is not None and not below.hidden:
                below.name = each
                yield from examples(below, context)


def _lines(text: str) -> Iterator[str]:
    """What stands below the heading, up to an empty line."""
    is_below = False
    whole = inspect.cleandoc(text).replace("\\\n", " ")
    for line in whole.splitlines():
        if line.strip() == _HEAD:
            is_below = True
        elif not line.strip():
            is_below = False
        elif is_below:
            yield " ".join(line.split())


@click.command()
@click.argument("words", nargs=-1, metavar="[WORD]...")
@output_options
@click.pass_context
def command(context: click.Context, words: tuple[str, ...], out: Output) -> None:
    """Print the examples of all commands, or those that hold each WORD.

    \b
    Examples:
      perdure examples
      perdure examples retained
      perdure examples sessions explain
    """
    found = [
        each
        for each in examples(context.find_root().command)
        if all(word.lower() in f"{each.line} {each.about}".lower() for word in words)
    ]
    if not found:
        raise CommandFailed(
            f"no example holds {' '.join(words)!r}",
            ExitCode.NOT_FOUND,
            hint="perdure --help lists the commands",
        )
    if out.format != "table":
        columns = (Column("command"), Column("line"))
        out.rows(columns, (each._asdict() for each in found))
        return
    told = ""
    for each in found:
        if each.command != told:
            out.text(f"{'' if not told else chr(10)}# {each.about}\n")
            told = each.command
        out.text(f"{each.line}\n")
