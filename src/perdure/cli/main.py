"""``perdure``: finds the command, imports only that one, and turns errors into exit codes."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, final

import click

from perdure import __version__
from perdure.cli.exit_codes import ExitCode, exit_code_of
from perdure.cli.extras import missing
from perdure.cli.output import error_line
from perdure.errors import PerdureError
from perdure.pure import build

COMMANDS: Mapping[str, str] = {
    "init": "Write a configuration to begin with, and a link for the first user.",
    "serve": "Run the broker.",
    "status": "Show whether the broker runs, and its numbers.",
    "health": "Tell by the exit code whether the broker serves.",
    "top": "Watch the connected sessions with most to do.",
    "trace": "Watch what goes between the broker and a client, or about a topic.",
    "alarms": "Show what the broker warns of.",
    "pub": "Publish messages.",
    "sub": "Subscribe and print messages.",
    "sessions": "List, show, explain and discard sessions.",
    "subs": "List subscriptions, and who gets a topic.",
    "shared": "List groups of shared subscriptions.",
    "retained": "List, show and delete retained messages.",
    "listeners": "Show, start and stop listeners.",
    "unauthorized": "List clients that were refused lately.",
    "bans": "Keep clients out: list, add and remove bans.",
    "filters": "Content filters that clients subscribe with by id.",
    "applications": "Applications on Kafka: list, show, add and remove.",
    "forwarders": "Bridges and sinks: list, show, add, pause, resume and remove.",
    "queues": "List, show, export and discard the queues of persistent clients.",
    "storage": "Look into the log and check it.",
    "cluster": "Show and compare the nodes of a cluster; make a node's data directory.",
    "backup": "Back a data directory up, and list, verify and prune backups.",
    "restore": "Make a data directory from a backup.",
    "pipeline": "Read the log with Spark, and archive it into tables.",
    "sql": "Ask the log and the archive in SQL.",
    "passwd": "Write the credentials file.",
    "acl": "Show the rules of who may use which topic, and put others in force.",
    "auth": "Try a login against the configured chain.",
    "tokens": "Issue, show and revoke tokens that clients log in with.",
    "users": "List, add and change who may log in to the dashboard and the HTTP API.",
    "api-keys": "List, add and revoke keys for the HTTP API.",
    "api": "Ask for any operation of the API, here or on another machine.",
    "context": "Name brokers on other machines, and choose one.",
    "registry": "Subscriptions and devices on Redis, in nexxus's keys.",
    "doctor": "Check whether this machine is fit for a broker.",
    "config": "Check and show the configuration.",
    "bench": "Measure a broker.",
    "completion": "Print the completion script of a shell.",
    "examples": "Print the examples of all commands.",
    "plan": "Tell what something will need before there is any of it.",
}
"""Command names, in the order of the help, with the line that the help shows.

Each is ``command`` in ``perdure.cli.commands.<name>``, with underscores for hyphens. The lines
stand here so that ``--help`` imports none of the modules.
"""


@final
class LazyGroup(click.Group):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"perdure.cli.commands.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False,
              callback=lambda context, _, wanted: _version(context) if wanted else None,
              help="Show the version and how it was built.")  # fmt: skip
@click.option("--debug", is_flag=True, help="Show a traceback when something goes wrong.")
def cli(debug: bool) -> None:
    """An MQTT 3.1.1 and 5.0 broker that does not forget.

    \b
    Examples:
      perdure serve
      perdure sub -t 'devices/+/temperature' -q 1 -i cellar -c
      perdure pub -t devices/7/temperature -m 21.5 -q 1
      perdure sessions explain cellar devices/7/temperature
    """
    # Unless a command decides otherwise, what the floors below log goes to standard error, and
    # only if someone should look.
    from perdure.observe import logs

    logs.configure_on_use(level="debug" if debug else "warning", format="console")


def _version(context: click.Context) -> None:
    """Say which version this is, and whether its hot modules are compiled."""
    click.echo(f"perdure, version {__version__}, {build()}")
    context.exit()


def run(args: Sequence[str]) -> int:
    """Run a command line; returns the exit code and never raises.

    Args:
        args: without the program's name.
    """
    debug = _is_debug(args)
    stdout = sys.stdout
    try:
        result: Any = cli.main(list(args), prog_name="perdure", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else ExitCode.OK
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ExitCode.USAGE
    except click.UsageError as error:
        context = error.ctx.command_path if error.ctx else "perdure"
        error_line(error.format_message(), hint=f"{context} --help tells what it takes")
        return ExitCode.USAGE
    except click.ClickException as error:
        error_line(error.format_message())
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`| head`). Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return ExitCode.OK
    except SystemExit as error:
        # So click ends where it sees that first, after it has replaced stdout by a silent one.
        if sys.stdout is not stdout:
            return ExitCode.OK
        return error.code if isinstance(error.code, int) else ExitCode.BUG
    except PerdureError as error:
        if debug:
            traceback.print_exc()
        error_line(error.message or type(error).__name__, hint=error.hint)
        return exit_code_of(error)
    except Exception as error:  # noqa: BLE001 - the last line of defence; a bug by definition
        if debug:
            traceback.print_exc()
        told = missing(error) if isinstance(error, ImportError) else None
        if told is not None:
            error_line(told[0], hint=told[1])
            return ExitCode.CONFIG
        error_line(
            f"internal error: {type(error).__name__}: {error}",
            hint="this is a bug; perdure --debug ... shows where",
        )
        return ExitCode.BUG


def _is_debug(args: Sequence[str]) -> bool:
    """Whether ``--debug`` stands before the command."""
    for arg in args:
        if arg == "--debug":
            return True
        if not arg.startswith("-"):
            break
    return False


def main() -> NoReturn:
    """Entry point of the ``perdure`` script."""
    sys.exit(run(sys.argv[1:]))
