"""``perdure acl``: who may use which topic, by the ACL file of the running broker."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Final

import click
import msgspec

from perdure.admin.limits import PAGE_MAX
from perdure.admin.records.access import GetAclText, ListAcl, PutAclText
from perdure.cli.data import data_options
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.running_broker import print_record, running_broker

_COLUMNS: Final = (
    Column("number", right=True),
    Column("who"),
    Column("user"),
    Column("access"),
    Column("filter"),
)


@click.group()
def command() -> None:
    """Show the rules of the ACL file, and put others in force. Needs a running broker.

    \b
    Examples:
      perdure acl list
      perdure acl get > acl
      perdure acl put acl
    """


@command.command("list")
@data_options
@output_options
def list_rules(data: Path, out: Output) -> None:
    """List the rules in their order; without an ACL file everything is allowed."""
    with running_broker(data) as client:
        page = client.call(ListAcl(limit=1))
        if not page.enforced:
            click.echo("no ACL file: everything is allowed (auth.acl_file names one)", err=True)
        out.rows(_COLUMNS, map(msgspec.to_builtins, client.items(ListAcl(limit=PAGE_MAX))))


@command.command("get")
@data_options
@output_options
def get(data: Path, out: Output) -> None:
    """Print the file as it stands, with its comments; as JSON with its revision."""
    with running_broker(data) as client:
        found = client.call(GetAclText())
    if out.is_json:
        out.record(msgspec.to_builtins(found))
    else:
        out.text(found.text)


@command.command("put")
@data_options
@click.argument("file", type=click.File("rb"))
@click.option(
    "--if-match", default="", metavar="REVISION", help="Only if the file has this revision."
)
@output_options
def put(data: Path, file: BinaryIO, if_match: str, out: Output) -> None:
    """Put the rules of FILE (- = standard input) in the ACL file's place.

    They hold for connected clients at once. A line that is wrong leaves all as it was.
    """
    try:
        text = file.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CommandFailed(f"{file.name} is not UTF-8", ExitCode.DATA) from None
    print_record(data, PutAclText(text=text, if_match=if_match), out)
