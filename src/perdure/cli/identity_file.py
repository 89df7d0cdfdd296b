"""``identity.db`` for commands: changed in place, whether a broker runs or not."""

from __future__ import annotations

import contextlib
import getpass
from collections.abc import Iterator
from pathlib import Path

from perdure.admin.problems import Refused
from perdure.admin.records.identity import DrainAudit
from perdure.admin.rights import Principal
from perdure.cli.admin_client import AdminClient
from perdure.cli.contexts import refuse_remote
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.clock import SystemClock
from perdure.config.schema import Config
from perdure.identity.file import IdentityFile
from perdure.identity.ledger import Actor, Ledger

_CODES = {
    "not_found": ExitCode.NOT_FOUND,
    "conflict": ExitCode.DATA,
    "bad_request": ExitCode.DATA,
}


def local_actor() -> Actor:
    """Whoever runs this command."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "local"
    return Actor(Principal(name, "admin", source="socket"))


@contextlib.contextmanager
def open_ledger(config: Config) -> Iterator[Ledger]:
    """The file of a broker. What was changed in it is in the broker's log afterwards, if one runs.

    Raises:
        CommandFailed: the broker keeps nothing, or what was asked for is refused.
    """
    refuse_remote("changing users and keys in their file")
    if not config.storage.traits.is_kept:
        raise CommandFailed(
            f"storage.backend is {config.storage.backend}: users are kept nowhere",
            ExitCode.NOT_FOUND,
        )
    directory = Path(config.storage.path)
    directory.mkdir(parents=True, exist_ok=True)
    with IdentityFile(directory) as file:
        try:
            yield Ledger(file, SystemClock())
        except Refused as error:
            code = _CODES.get(error.problem.code, ExitCode.UNAVAILABLE)
            raise CommandFailed(error.message, code, hint=error.hint) from None
        if file.outgoing(1):
            _drain(directory)


def _drain(directory: Path) -> None:
    """Let a running broker take the records now; else the next one does at its start."""
    with contextlib.suppress(CommandFailed):
        client = AdminClient.connect(directory)
        if client is not None:
            with client:
                client.call(DrainAudit())
