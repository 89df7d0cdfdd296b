"""``perdure init``: a configuration, a data directory, and the link that makes the first user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.identity_file import open_ledger
from perdure.cli.output import Output, output_options
from perdure.config.load import load
from perdure.identity.setup import Setup

_TEMPLATE: Final = """\
# Configuration of a Perdure broker: only what differs from the defaults.
# `perdure config reference` describes every setting, `perdure config check` tries this file,
# `perdure doctor` the machine. Most changes take effect with SIGHUP.

storage:
  path: {data}

listeners:
  tcp:
    # Clients of this machine only, until they log in: then 0.0.0.0:1883.
    bind: 127.0.0.1:1883

http:
  # The dashboard (/ui/) and the HTTP API. Give it a certificate (http.tls) before others reach it.
  bind: 127.0.0.1:18083

# auth:
#   password_file: {directory}/users     # perdure passwd {directory}/users NAME
#   acl_file: {directory}/acl

# retention:
#   time: 7d                             # messages are kept for so long
"""


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), default=".")
@output_options
def command(directory: Path, out: Output) -> None:
    """Write DIRECTORY/perdure.yaml, make its data directory, and print the first user's link.

    Nothing that is there is changed: a configuration that exists is refused. Who opens the link,
    at the address of the dashboard, within an hour, makes the first administrator.

    \b
    Examples:
      perdure init /etc/perdure
      perdure serve --config /etc/perdure/perdure.yaml
    """
    directory = directory.absolute()
    file, data = directory / "perdure.yaml", directory / "data"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as written:
            written.write(_TEMPLATE.format(data=data, directory=directory))
        data.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError as error:
        raise CommandFailed(
            f"{error.filename} is there already",
            ExitCode.DATA,
            hint="perdure doctor --config looks at it; or name another directory",
        ) from error
    except OSError as error:
        raise CommandFailed(
            f"cannot write {error.filename}: {error.strerror}", ExitCode.NOT_PERMITTED
        ) from error
    config = load(file, environ=os.environ, sets=(), overrides=[]).config
    with open_ledger(config) as ledger:
        token = Setup(ledger).offer()
    link = f"http://{config.http.bind}/ui/setup?token={token}" if token else ""
    out.record(
        {
            "config": str(file),
            "data": str(data),
            "start": f"perdure serve --config {file}",
            "setup_link": link,
        }
    )
