"""``perdure auth test``: asks the chain of a configuration about a login, without a broker."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from pathlib import Path
from typing import Any

import click

from perdure.broker.auth.authenticate import AuthRequest, AuthResult
from perdure.broker.auth.control import AccessControl, read_files
from perdure.broker.auth.grant import Grant
from perdure.broker.auth.key_file import KEY_BYTES
from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import Output, output_options
from perdure.cli.settings_options import config_options
from perdure.clock import SystemClock
from perdure.config.load import load
from perdure.config.schema import Config
from perdure.mqtt.reason_codes import name as name_of
from perdure.observe.metrics import Metrics
from perdure.server.auth_part import AuthPart
from perdure.server.listeners import listener_chains

SECRET_BYTES_MAX = 65_535
"""Longest password in CONNECT (MQTT 5.0 section 3.1.3.6)."""


@click.group()
def command() -> None:
    """Try logins.

    \b
    Examples:
      perdure auth test --config perdure.yaml --username ada --stdin < password
      perdure auth test --username ada --listener ws:127.0.0.1:8083 --password-file token
    """


@command.command()
@config_options
@click.option("--username", "-u", help="User name of the CONNECT; none if not given.")
@click.option("--client-id", "-i", default="perdure-auth-test", show_default=True)
@click.option("--password-file", type=click.Path(path_type=Path), help="Read the password there.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the password from standard input.")
@click.option("--address", default="127.0.0.1", show_default=True, help="Where it comes from.")
@click.option("--listener", default="", help="Its name, if it has a chain of its own.")
@output_options
def test(
    config_path: Path | None,
    sets: tuple[str, ...],
    username: str | None,
    client_id: str,
    password_file: Path | None,
    from_stdin: bool,
    address: str,
    listener: str,
    out: Output,
) -> int:
    """Ask who would be let in, by which method and with which rights.

    Asks what `auth.chain` asks: services and servers are asked for real, and know of it. Exits
    with 77 if the client would be refused.
    """
    if password_file is not None and from_stdin:
        raise click.UsageError("give one of --password-file and --stdin")
    config = load(config_path, environ=os.environ, sets=sets).config
    names = listener_chains(config)
    if listener and listener not in names:
        known = ", ".join(names) or "there is none"
        raise click.UsageError(f"no listener {listener!r} has a chain of its own: {known}")
    request = AuthRequest(
        client_id=client_id,
        username=username,
        password=_password(password_file, from_stdin=from_stdin),
        address=address,
        loopback=address in ("127.0.0.1", "::1"),
        listener=listener,
        now_us=SystemClock().monotonic_us(),
    )
    result = asyncio.run(_ask(config, request))
    row = _row(result, request)
    out.record({name: value for name, value in row.items() if value is not None})
    return 0 if result.ok else ExitCode.NOT_PERMITTED


def _password(file: Path | None, *, from_stdin: bool) -> bytes | None:
    if file is not None:
        return file.read_bytes()[:SECRET_BYTES_MAX].rstrip(b"\r\n")
    if from_stdin:
        return sys.stdin.buffer.read(SECRET_BYTES_MAX).rstrip(b"\r\n")
    return None


async def _ask(config: Config, request: AuthRequest) -> AuthResult:
    part = AuthPart(config, Metrics())
    access = AccessControl(
        config.auth,
        read_files(config.auth),
        random_bytes=secrets.token_bytes,
        decoy_key=secrets.token_bytes(KEY_BYTES),
        guard=part.guard,
        methods=part.methods,
        listener_chains=listener_chains(config),
    )
    try:
        return await access.authenticate(request)
    finally:
        await part.stop()
        access.close()


def _row(result: AuthResult, request: AuthRequest) -> dict[str, Any]:
    grant = result.grant
    rules = None
    if isinstance(grant, Grant):
        rules = (
            "; ".join(f"{rule.permission.value} {rule.filter}" for rule in grant.rules) or "none"
        )
    ends_s = (result.expires_us - request.now_us) // 1_000_000 if result.expires_us else None
    return {
        "result": "allow" if result.ok else "deny",
        "method": result.method,
        "reason": f"0x{result.reason_code:02x} {name_of(result.reason_code)}",
        "detail": result.reason or result.limit or None,
        "username": result.username,
        "superuser": result.superuser,
        "rules": rules,
        "expires_in_s": ends_s,
    }
