"""``perdure completion``: what makes a shell complete our commands and options."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from perdure.cli.exit_codes import CommandFailed, ExitCode

SHELLS: Final = ("bash", "zsh", "fish")


def script(shell: str, program: click.Command) -> str:
    """The script for a shell.

    Args:
        shell: one of ``SHELLS``.
        program: the whole of the command line.
    """
    found = get_completion_class(shell)
    assert found is not None
    return found(program, {}, "perdure", "_PERDURE_COMPLETE").source()


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Examples:
      perdure completion bash > /etc/bash_completion.d/perdure
      perdure completion zsh > ~/.zfunc/_perdure
      perdure completion fish > ~/.config/fish/completions/perdure.fish
    """
    try:
        click.echo(script(shell, context.find_root().command))
    except RuntimeError as error:  # bash is not here, or older than 4.4
        raise CommandFailed(str(error), ExitCode.UNAVAILABLE) from error
