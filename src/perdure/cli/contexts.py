"""Named brokers: where a command goes that was not given a data directory.

``contexts.json`` in the user's configuration directory holds URLs and API keys, for its owner
alone. A command that is given a data directory or a configuration stays on this machine, whatever
is in use.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, final
from urllib.parse import urlsplit

import click
import msgspec

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.files import replace_file

VARIABLE: Final = "PERDURE_CONTEXT"
LOCAL: Final = "local"
"""The name of no context: this machine."""

CONTEXTS_MAX: Final = 256
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_META: Final = "perdure.here"


@final
class Context(msgspec.Struct, frozen=True):
    """One broker.

    Attributes:
        url: of its HTTP API, ``http://host:18083``.
        key: an API key or a token of ``http.token_file``.
        ca_file: authority of its certificate; empty = those of the system.
    """

    url: str
    key: str
    ca_file: str = ""


@final
class Contexts(msgspec.Struct):
    """The file.

    Attributes:
        current: name of the one in use; empty = none.
        contexts: by name.
    """

    current: str = ""
    contexts: dict[str, Context] = msgspec.field(default_factory=dict)


def path_of() -> Path:
    """Where the file is."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "perdure" / "contexts.json"


def load_contexts() -> Contexts:
    """All of them.

    Raises:
        CommandFailed: the file is none, or others may read it.
    """
    path = path_of()
    try:
        if path.stat().st_mode & 0o077:
            raise CommandFailed(
                f"{path} holds keys, and others may read it",
                ExitCode.NOT_PERMITTED,
                hint=f"chmod 600 {path}",
            )
        return msgspec.json.decode(path.read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise CommandFailed(
            f"cannot read {path}: {error.strerror}", ExitCode.NOT_PERMITTED
        ) from error
    except ValueError as error:
        raise CommandFailed(f"{path} is damaged: {error}", ExitCode.DATA) from error


def save_contexts(contexts: Contexts) -> None:
    """Replace the file.

    Raises:
        CommandFailed: it cannot be written.
    """
    path = path_of()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = msgspec.json.format(msgspec.json.encode(contexts), indent=2) + b"\n"
        replace_file(path, data)
    except OSError as error:
        raise CommandFailed(
            f"cannot write {path}: {error.strerror}", ExitCode.NOT_PERMITTED
        ) from error


def check_context(name: str, url: str) -> str:
    """The URL of a context that can be used, without a slash at its end.

    Raises:
        click.UsageError: it cannot.
    """
    if _NAME.fullmatch(name) is None or name == LOCAL:
        raise click.UsageError(
            f"{name!r} is no name for a context: letters, digits, . _ and -, 64 at most"
        )
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise click.UsageError(f"{url!r} is no URL of a broker: http.bind, http://host:18083")
    return url.rstrip("/")


def stay_here() -> None:
    """This command was given a data directory or a configuration."""
    click.get_current_context().find_root().meta[_META] = True


def selected() -> tuple[str, Context] | None:
    """The broker that this command goes to; None = the one on this machine.

    Raises:
        CommandFailed: there is no such context.
    """
    context = click.get_current_context(silent=True)
    root = context.find_root() if context is not None else None
    if root is None or root.meta.get(_META):
        return None
    given = os.environ.get(VARIABLE)
    if given is None and not path_of().exists():
        return None
    contexts = load_contexts() if given != LOCAL else Contexts()
    name = contexts.current if given is None else given
    if not name or name == LOCAL:
        return None
    found = contexts.contexts.get(name)
    if found is None:
        raise CommandFailed(
            f"there is no context {name!r}", ExitCode.CONFIG, hint="perdure context list"
        )
    return name, found


def refuse_remote(what: str) -> None:
    """Refuse what only works on this machine while another broker is meant.

    Raises:
        CommandFailed: it is.
    """
    found = selected()
    if found is not None:
        raise CommandFailed(
            f"{what} is done on the broker's machine, and the context {found[0]} is in use",
            ExitCode.USAGE,
            hint=f"name a data directory with --data, or set {VARIABLE}={LOCAL}; what the API has, "
            "`perdure api` asks for",
        )
