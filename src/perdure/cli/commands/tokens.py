"""``perdure tokens``: issues, shows and revokes tokens of a token store.

A token comes from standard input or a file, and never from an argument, which every process on the
machine could read.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.clock import SystemClock
from perdure.config.units import format_time, parse_duration
from perdure.tokens import (
    LAYOUTS,
    Listed,
    Token,
    TokenStore,
    new_id,
    open_tokens,
    parse_id,
    show_id,
)

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")


def _store_options(command: _F) -> _F:
    """Add ``--store``, ``--layout`` and ``--prefix``."""
    for option in (
        click.option("--prefix", default="", help="Of all keys; the layout's own by default."),
        click.option("--layout", type=click.Choice(LAYOUTS), default="planned", show_default=True,
                     help="On Redis: how tokens are kept."),
        click.option("--store", "place", required=True, metavar="PLACE",
                     envvar="PERDURE_TOKEN_STORE",
                     help="A Redis URL, or the file of an embedded store."),
    ):  # fmt: skip
        command = option(command)
    return command


_token_file = click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="Read the token there, not from standard input.",
)


_PAGE: Final = 1_000
"""Tokens that are asked for at once."""

_COLUMNS: Final = (
    Column("id"),
    Column("identity"),
    Column("expires_at", time=True),
    Column("client_id"),
    Column("rights"),
)


@click.group()
def command() -> None:
    """Issue, show and revoke tokens: what devices and programs present as a password.

    A store is a file (for a broker by itself) or a Redis, where millions of tokens take 39 bytes
    each. A token says whose it is, until when it holds, which client identifiers may use it and
    what they may do. Brokers accept the tokens of the store that `auth.tokens` names.

    \b
    Examples:
      perdure tokens issue ada --store tokens.db --expires 30d
      perdure tokens issue pump-7 --store redis://localhost --client-id 'pump-7*' \\
          --right 'write devices/%c/data'
      perdure tokens show --store tokens.db < token
      perdure tokens revoke --store tokens.db < token
      perdure tokens list --store tokens.db --identity ada
      perdure tokens maintain --store redis://localhost
    """


@command.command()
@click.argument("identity")
@_store_options
@click.option("--expires", default="30d", show_default=True, metavar="DURATION",
              help="How long it holds.")  # fmt: skip
@click.option("--client-id", default="", metavar="PATTERN",
              help="Client identifiers that may use it (*, ?, [...]); any by default.")  # fmt: skip
@click.option("--right", "rights", multiple=True, metavar="RULE",
              help="A rule in the words of the ACL file, such as 'read public/#'; "
                   "may be repeated.")  # fmt: skip
@output_options
def issue(
    identity: str,
    place: str,
    layout: str,
    prefix: str,
    expires: str,
    client_id: str,
    rights: tuple[str, ...],
    out: Output,
) -> None:
    """Make a token for IDENTITY and print it: it is shown this once."""
    from perdure.topic.rules import parse_rule

    now_s = _now_s()
    try:
        for right in rights:
            parse_rule(right.strip(), is_pattern=True)
        lasts_s = parse_duration(expires, "s")
        token = Token(new_id(secrets.token_bytes), identity, now_s + lasts_s, client_id, rights)
        _with_store(place, layout, prefix, now_s, lambda store: store.save([token], now_s))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    shown = {"token": show_id(token.id), **_row(token)}
    if out.is_json:
        out.record(shown)
    else:
        out.text(f"{shown['token']}\n")


@command.command()
@_store_options
@_token_file
@output_options
def show(place: str, layout: str, prefix: str, token_file: Path | None, out: Output) -> None:
    """Show what a token says; exit code 67 if it does not hold."""
    token_id, now_s = _read(token_file), _now_s()
    found = _with_store(place, layout, prefix, now_s, lambda store: store.find(token_id, now_s))
    if found is None:
        raise CommandFailed("the token does not hold", ExitCode.NOT_FOUND)
    out.record(_row(found))


@command.command("list")
@_store_options
@click.option("--identity", default="", help="Only tokens of this one.")
@output_options
def list_tokens(place: str, layout: str, prefix: str, identity: str, out: Output) -> None:
    """List the tokens that hold, by names that `revoke --id` takes."""
    now_s = _now_s()

    async def work(store: TokenStore) -> list[dict[str, Any]]:
        rows, after = [], ""
        while True:
            found, after = await store.page(after, _PAGE, now_s)
            rows += [
                {"id": each.handle, **_row(each)}
                for each in found
                if identity in ("", each.identity)
            ]
            if not after:
                return rows

    out.rows(_COLUMNS, _with_store(place, layout, prefix, now_s, work))


@command.command()
@_store_options
@_token_file
@click.option("--id", "handle", metavar="NAME", help="Of a list, in place of the token.")
def revoke(
    place: str, layout: str, prefix: str, token_file: Path | None, handle: str | None
) -> None:
    """Revoke a token; exit code 67 if there is none.

    A running broker disconnects who presented it at its next look (`auth.tokens.recheck_s`), or at
    once by `perdure api tokens.revoke`.
    """
    now_s = _now_s()
    token_id = None if handle is not None else _read(token_file)

    async def work(store: TokenStore) -> bool:
        if token_id is not None:
            return await store.revoke(token_id)
        return await store.revoke_handle(handle or "", now_s) is not None

    if not _with_store(place, layout, prefix, now_s, work):
        raise CommandFailed("there is no such token", ExitCode.NOT_FOUND)


@command.command()
@_store_options
@output_options
def maintain(place: str, layout: str, prefix: str, out: Output) -> None:
    """Remove expired tokens, and make room for more where the layout needs it.

    To be run every hour or so; harmless at any time, and by several at once.
    """
    now_s = _now_s()

    async def work(store: TokenStore) -> tuple[int, int]:
        return await store.maintain(now_s), await store.count()

    removed, kept = _with_store(place, layout, prefix, now_s, work)
    out.record({"removed": removed, "kept": kept})


def _with_store(
    place: str,
    layout: str,
    prefix: str,
    now_s: int,
    work: Callable[[TokenStore], Awaitable[_T]],
) -> _T:
    async def run() -> _T:
        store = await open_tokens(place, layout=layout, prefix=prefix, now_s=now_s)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def _read(token_file: Path | None) -> bytes:
    """The identifier that was given.

    Raises:
        CommandFailed: it is none, or the file cannot be read.
    """
    try:
        text = sys.stdin.read(1024) if token_file is None else token_file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"the token cannot be read: {error}", ExitCode.DATA) from None
    token_id = parse_id(text.strip())
    if token_id is None:
        raise CommandFailed("a token has 40 hexadecimal digits", ExitCode.DATA)
    return token_id


def _row(token: Token | Listed) -> dict[str, Any]:
    expires_at_us = token.expires_at * 1_000_000
    return {
        "identity": token.identity,
        "expires_at": format_time(expires_at_us),
        "expires_at_us": expires_at_us,
        "client_id": token.client_id,
        "rights": list(token.rights),
    }


def _now_s() -> int:
    return SystemClock().now_us() // 1_000_000
