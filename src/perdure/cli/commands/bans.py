"""``perdure bans``: through the running broker, or in the ban file of a stopped one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
import msgspec

from perdure.admin.limits import PAGE_MAX
from perdure.admin.records.bans import AddBan, BanKind, BanRemoved, ListBans, RemoveBan
from perdure.cli.admin_client import AdminClient
from perdure.cli.data import broker_options
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, error_line, output_options
from perdure.clock import SystemClock
from perdure.config.schema import Config
from perdure.config.units import parse_duration, parse_time

if TYPE_CHECKING:
    from perdure.broker.auth.bans import BanFile

_F = TypeVar("_F", bound=Callable[..., Any])
Named = list[tuple[str, str]]

_LIST: Final = (
    Column("kind"),
    Column("value"),
    Column("until", time=True),
    Column("since", time=True),
    Column("reason"),
)


def _whom_options(command: _F) -> _F:
    """Add ``--client-id``, ``--username`` and ``--address``."""
    for option, text in (
        ("--address", "Address or network (CIDR) of the peer."),
        ("--username", "User name, as a client states or proves it."),
        ("--client-id", "Client identifier."),
    ):
        command = click.option(option, multiple=True, help=f"{text} May be repeated.")(command)
    return command


@click.group()
def command() -> None:
    """Keep clients out: by client identifier, user name or address.

    A banned client is refused at CONNECT; those that are connected are disconnected at once. Bans
    are kept in a file and last through restarts. The commands ask the running broker; if none
    runs, they change the file.

    \b
    Examples:
      perdure bans add --client-id pump-7 --reason 'floods plant/#'
      perdure bans add --address 203.0.113.0/24 --until 2h
      perdure bans list
      perdure bans remove --client-id pump-7
    """


@command.command("list")
@broker_options
@output_options
def list_bans(config: Config, out: Output) -> None:
    """List the bans."""
    client = AdminClient.connect(Path(config.storage.path))
    if client is not None:
        with client:
            out.rows(_LIST, map(msgspec.to_builtins, client.items(ListBans(limit=PAGE_MAX))))
        return
    from perdure.server.bans import ban_row

    out.rows(_LIST, (msgspec.to_builtins(ban_row(ban)) for ban in _file(config).load()))


@command.command()
@broker_options
@_whom_options
@click.option("--reason", default="", help="For operators; the client does not hear it.")
@click.option(
    "--until", metavar="TIME", help="RFC 3339, or how long from now on (2h); for ever if not given."
)
@output_options
def add(
    config: Config,
    client_id: tuple[str, ...],
    username: tuple[str, ...],
    address: tuple[str, ...],
    reason: str,
    until: str | None,
    out: Output,
) -> None:
    """Ban clients; one that is banned already has the new reason and end."""
    named = _named(client_id, username, address)
    now_us = SystemClock().now_us()
    until_us = _end(until, now_us) if until is not None else 0
    columns = (*_LIST, Column("closed", right=True))
    client = AdminClient.connect(Path(config.storage.path))
    if client is not None:
        with client:
            rows = [
                msgspec.to_builtins(
                    client.call(
                        AddBan(
                            kind=cast("Any", kind),
                            value=value,
                            reason=reason,
                            until=str(until_us) if until_us else None,
                        )
                    )
                )
                for kind, value in named
            ]
        out.rows(columns, rows)
        return
    from perdure.broker.auth.bans import make_ban
    from perdure.server.bans import ban_row

    file = _file(config)
    bans = [
        make_ban(kind, value, reason=reason, since_us=now_us, until_us=until_us)
        for kind, value in named
    ]
    for ban in bans:
        file.add(ban, now_us=now_us)
    out.rows(columns, ({**msgspec.to_builtins(ban_row(ban)), "closed": 0} for ban in bans))


@command.command()
@broker_options
@_whom_options
@click.option(
    "--login",
    multiple=True,
    metavar="USER@ADDRESS",
    help="Failed logins, as `perdure bans list` shows them. May be repeated.",
)
@output_options
def remove(
    config: Config,
    client_id: tuple[str, ...],
    username: tuple[str, ...],
    address: tuple[str, ...],
    login: tuple[str, ...],
    out: Output,
) -> int:
    """Take bans back, each as it was made: a network is not left by removing one address.

    Bans that the broker has made by itself (failed logins, flapping clients) are taken back from
    the running broker.
    """
    named = _named(client_id, username, address, login)
    client = AdminClient.connect(Path(config.storage.path))
    if client is not None:
        with client:
            return _remove_each(
                named,
                lambda kind, value: client.call(RemoveBan(kind=cast("BanKind", kind), value=value)),
                out,
            )
    file = _file(config)
    now_us = SystemClock().now_us()

    def removed(kind: str, value: str) -> BanRemoved:
        if kind == "login":
            raise CommandFailed(
                "no broker runs, and bans of failed logins end with it", ExitCode.NOT_FOUND
            )
        _, found = file.remove(kind, value, now_us=now_us)
        if not found:
            raise CommandFailed(f"there is no ban of {kind} {value!r}", ExitCode.NOT_FOUND)
        return BanRemoved(kind, value)

    return _remove_each(named, removed, out)


def _remove_each(named: Named, act: Callable[[str, str], BanRemoved], out: Output) -> int:
    """Remove each, and go on past those that are not there."""
    missing = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal missing
        for kind, value in named:
            try:
                yield msgspec.to_builtins(act(kind, value))
            except CommandFailed as error:
                if error.exit_code is not ExitCode.NOT_FOUND:
                    raise
                missing += 1
                error_line(error.message)

    out.rows((Column("kind"), Column("value"), Column("action")), rows())
    return ExitCode.NOT_FOUND if missing else ExitCode.OK


def _named(
    client_ids: tuple[str, ...],
    usernames: tuple[str, ...],
    addresses: tuple[str, ...],
    logins: tuple[str, ...] = (),
) -> Named:
    named = [
        *(("client_id", value) for value in client_ids),
        *(("username", value) for value in usernames),
        *(("address", value) for value in addresses),
        *(("login", value) for value in logins),
    ]
    if not named:
        raise click.UsageError("name somebody: --client-id, --username or --address")
    return named


def _end(text: str, now_us: int) -> int:
    """When a ban ends: a moment, or how long from now on."""
    try:
        end_us = now_us + _duration_us(text)
    except ValueError:
        try:
            end_us = parse_time(text, now_us)
        except ValueError:
            raise click.BadParameter(
                f"--until: expected a time such as 2026-12-01T00:00:00Z, or 2h, got {text!r}"
            ) from None
    if end_us <= now_us:
        raise click.BadParameter(f"--until: {text} has passed")
    return end_us


def _duration_us(text: str) -> int:
    if text.strip().isdecimal():
        raise ValueError("a number alone is a moment, in microseconds")
    return parse_duration(text, "us")


def _file(config: Config) -> BanFile:
    from perdure.server.bans import ban_file

    file = ban_file(config)
    if file is None:
        raise CommandFailed(
            "storage.backend is memory: bans are kept nowhere",
            ExitCode.NOT_FOUND,
            hint="auth.ban_file names a file",
        )
    return file
