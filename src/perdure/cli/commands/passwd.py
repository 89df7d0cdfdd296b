"""``perdure passwd``: adds, changes and removes users of a credentials file.

A secret comes from a prompt, a file or standard input, and never from an argument, which every
process on the machine could read.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import click

from perdure.broker.auth.credentials import CredentialsFile
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.secret_input import read_secret

SALT_BYTES = 16


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("user", required=False)
@click.option("--password-file", type=click.Path(path_type=Path), help="Read the password there.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the password from standard input.")
@click.option("--token", "as_token", is_flag=True, help="Make a random token and print it once.")
@click.option("--scram", is_flag=True, help="Also allow SCRAM-SHA-256 with this password.")
@click.option("--delete", "-D", is_flag=True, help="Remove the user.")
@click.option("--delete-tokens", is_flag=True, help="Withdraw the user's tokens.")
@output_options
def command(
    file: Path,
    user: str | None,
    password_file: Path | None,
    from_stdin: bool,
    as_token: bool,
    scram: bool,
    delete: bool,
    delete_tokens: bool,
    out: Output,
) -> None:
    """Write the credentials FILE that auth.password_file names.

    Sets the password of USER, who is added if new. Without USER: lists the users. The broker
    reads a changed file at its next reload (SIGHUP).

    \b
    Examples:
      perdure passwd users ada
      perdure passwd users ada --scram --password-file /run/secrets/ada
      perdure passwd users pump-7 --token
      perdure passwd users ada --delete
    """
    ways = [password_file is not None, from_stdin, as_token, delete, delete_tokens]
    if sum(ways) > 1:
        raise click.UsageError(
            "take one of --password-file, --stdin, --token, --delete and --delete-tokens"
        )
    if scram and (as_token or delete or delete_tokens):
        raise click.UsageError("--scram goes with a password")
    if user is None:
        if any(ways) or scram:
            raise click.UsageError("name a user")
        _list(CredentialsFile.load(file), out)
        return
    credentials = CredentialsFile.load(file, missing_ok=not (delete or delete_tokens))
    known = user in credentials
    result: dict[str, Any] = {"file": str(file), "user": user}
    if delete or delete_tokens:
        found = credentials.delete(user) if delete else credentials.delete_tokens(user)
        if not found:
            what = f"no user {user!r}" if not known else f"user {user!r} has no token"
            raise CommandFailed(f"{file}: {what}", ExitCode.NOT_FOUND)
        result["action"] = "deleted" if delete else "tokens_deleted"
    elif as_token:
        token = secrets.token_urlsafe(32)
        credentials.add_token(user, token)
        result |= {"action": "token_added", "token": token}
    else:
        password = read_secret(password_file, from_stdin=from_stdin, user=user)
        credentials.set_password(
            user,
            password,
            salt=secrets.token_bytes(SALT_BYTES),
            schemes=("scrypt", "scram-sha-256") if scram else ("scrypt",),
        )
        result["action"] = "changed" if known else "added"
    credentials.save()
    _report(result, out)


def _list(credentials: CredentialsFile, out: Output) -> None:
    rows = [
        {
            "user": user,
            "passwords": [entry.encode().split("$")[1] for entry in credentials.hashes(user)],
            "tokens": len(credentials.tokens(user)),
        }
        for user in credentials.users
    ]
    out.rows((Column("user"), Column("passwords"), Column("tokens", right=True)), rows)


def _report(result: dict[str, Any], out: Output) -> None:
    if out.is_json:
        out.record(result)
    elif "token" in result:
        out.text(f"{result['token']}\n")
        click.echo("this token is not shown again; it is the user's password", err=True)
    else:
        click.echo(f"{result['file']}: {result['user']} {result['action']}", err=True)
