"""``perdure users``: who may log in to the dashboard and the HTTP API."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from perdure.cli.data import broker_options, confirm
from perdure.cli.identity_file import local_actor, open_ledger
from perdure.cli.output import Column, Output, output_options
from perdure.cli.secret_input import read_secret, secret_options
from perdure.config.schema import Config
from perdure.identity import passwords
from perdure.identity.records import ROLES, check_name, check_password
from perdure.identity.rows import user_fields
from perdure.identity.setup import Setup
from perdure.identity.users import Users

_COLUMNS: Final = (
    Column("name"),
    Column("role"),
    Column("created_at", time=True),
    Column("last_login_at", time=True),
)

_role = click.option(
    "--role", type=click.Choice(ROLES), required=True, help="What they may do; see above."
)


@click.group()
def command() -> None:
    """List, add and change the users of the dashboard and the HTTP API.

    A viewer sees everything but secrets; an operator also publishes, kicks, discards, bans and
    rotates; an admin also changes users, keys, credentials and the configuration. A change holds at
    once, also for who is logged in. It is written to `identity.db` in the data directory, whether
    a broker runs or not.

    \b
    Examples:
      perdure users add ada --role admin
      perdure users add grafana --role viewer --stdin < secret
      perdure users set-role ada --role operator
      perdure users logout ada
    """


@command.command("list")
@broker_options
@output_options
def list_users(config: Config, out: Output) -> None:
    """List the users."""
    with open_ledger(config) as ledger:
        out.rows(_COLUMNS, [user_fields(each) for each in Users(ledger).all()])


@command.command()
@click.argument("name")
@_role
@secret_options
@broker_options
@output_options
def add(
    name: str, role: str, password_file: Path | None, from_stdin: bool, config: Config, out: Output
) -> None:
    """Add a user."""
    with open_ledger(config) as ledger:
        check_name(name)
        text = _password_text(name, password_file, from_stdin=from_stdin)
        out.record(user_fields(Users(ledger).add(name, role, text, local_actor())))


@command.command("set-role")
@click.argument("name")
@_role
@broker_options
@output_options
def set_role(name: str, role: str, config: Config, out: Output) -> None:
    """Give a user another role."""
    with open_ledger(config) as ledger:
        out.record(user_fields(Users(ledger).set_role(name, role, local_actor())))


@command.command("set-password")
@click.argument("name")
@secret_options
@broker_options
@output_options
def set_password(
    name: str, password_file: Path | None, from_stdin: bool, config: Config, out: Output
) -> None:
    """Give a user another password; all their logins end."""
    with open_ledger(config) as ledger:
        text = _password_text(name, password_file, from_stdin=from_stdin)
        out.record(user_fields(Users(ledger).set_password(name, text, local_actor())))


@command.command()
@click.argument("name")
@broker_options
@output_options
def logout(name: str, config: Config, out: Output) -> None:
    """Log a user out everywhere."""
    with open_ledger(config) as ledger:
        Users(ledger).end_logins(name, local_actor())
        _done(out, name, "logged_out")


@command.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@broker_options
@output_options
def remove(name: str, yes: bool, config: Config, out: Output) -> None:
    """Remove a user, whose logins end."""
    confirm(f"Remove {name}?", yes=yes)
    with open_ledger(config) as ledger:
        Users(ledger).remove(name, local_actor())
        _done(out, name, "removed")


@command.command("setup-link")
@broker_options
@output_options
def setup_link(config: Config, out: Output) -> None:
    """Print the path of a new setup link: who opens it makes the first administrator.

    It holds once, for an hour, and only while there is no user. Put the address of the dashboard
    before it.
    """
    with open_ledger(config) as ledger:
        token = Setup(ledger).offer()
        if not token:
            raise click.UsageError("there are users already: take `perdure users add`")
        out.record({"path": f"/ui/setup?token={token}"})


def _password_text(name: str, path: Path | None, *, from_stdin: bool) -> str:
    password = read_secret(path, from_stdin=from_stdin, user=name)
    return passwords.hash_password(check_password(password, name=name))


def _done(out: Output, name: str, action: str) -> None:
    row: dict[str, Any] = {"name": name, "action": action}
    out.record(row)
