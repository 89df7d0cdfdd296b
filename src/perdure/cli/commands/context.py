"""``perdure context``: named brokers, for commands that go to another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from perdure.cli.contexts import (
    CONTEXTS_MAX,
    LOCAL,
    Context,
    check_context,
    load_contexts,
    save_contexts,
)
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.secret_input import read_secret

_COLUMNS: Final = (Column("name"), Column("in_use"), Column("url"), Column("ca_file"))


@click.group()
def command() -> None:
    """Name brokers on other machines, and choose which one commands go to.

    A context is a URL and an API key. While one is in use, commands that ask a running broker go
    there over HTTP, unless --data or --config names one here. PERDURE_CONTEXT=NAME chooses for one
    command, PERDURE_CONTEXT=local none. Keys are kept in ~/.config/perdure/contexts.json, for you
    alone.

    \b
    Examples:
      perdure context add plant --url https://broker.example:18083 --stdin < key
      perdure context use plant
      perdure sessions list
      PERDURE_CONTEXT=local perdure status
    """


@command.command("list")
@output_options
def list_contexts(out: Output) -> None:
    """List the contexts, without their keys."""
    found = load_contexts()
    rows = [
        {"name": name, "in_use": name == found.current, "url": each.url, "ca_file": each.ca_file}
        for name, each in sorted(found.contexts.items())
    ]
    out.rows(_COLUMNS, rows)


@command.command()
@click.argument("name")
@click.option("--url", required=True, help="Of the HTTP API: http.bind of the broker.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="Authority of its certificate.")
@click.option("--key-file", type=click.Path(path_type=Path), help="Read the API key from a file.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the key from standard input.")
@output_options
def add(
    name: str, url: str, ca_file: Path | None, key_file: Path | None, from_stdin: bool, out: Output
) -> None:
    """Add a broker, or change it; the first one is in use."""
    url = check_context(name, url)
    found = load_contexts()
    if name not in found.contexts and len(found.contexts) >= CONTEXTS_MAX:
        raise CommandFailed(f"there are {CONTEXTS_MAX} contexts already", ExitCode.DATA)
    key = read_secret(key_file, from_stdin=from_stdin, user=f"the broker {name} (its API key)")
    if not key.strip() or not key.isascii() or any(each.isspace() for each in key.strip()):
        raise CommandFailed("this is no API key", ExitCode.DATA, hint="perdure api-keys add")
    authority = str(ca_file.resolve()) if ca_file is not None else ""
    found.contexts[name] = Context(url, key.strip(), authority)
    found.current = found.current or name
    save_contexts(found)
    out.record({"name": name, "url": url, "in_use": found.current == name})


@command.command()
@click.argument("name")
@output_options
def use(name: str, out: Output) -> None:
    """Have commands go to a broker; `local` = to the one on this machine."""
    found = load_contexts()
    if name != LOCAL and name not in found.contexts:
        raise _unknown(name)
    found.current = "" if name == LOCAL else name
    save_contexts(found)
    out.record({"name": name, "in_use": True})


@command.command()
@click.argument("name")
@output_options
def remove(name: str, out: Output) -> None:
    """Forget a broker and its key."""
    found = load_contexts()
    if found.contexts.pop(name, None) is None:
        raise _unknown(name)
    if found.current == name:
        found.current = ""
    save_contexts(found)
    out.record({"name": name, "action": "removed"})


def _unknown(name: str) -> CommandFailed:
    return CommandFailed(
        f"there is no context {name!r}", ExitCode.NOT_FOUND, hint="perdure context list"
    )
