"""``perdure serve``: reads the configuration and hands it to the server."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import click

from perdure.cli.exit_codes import ExitCode
from perdure.cli.settings_options import config_options
from perdure.config.document import Origin
from perdure.config.environ import Override
from perdure.config.load import Loaded, load
from perdure.observe import logs


@click.command()
@config_options
@click.option("--data", metavar="DIR", help="Data directory (storage.path).")
@click.option(
    "--bind",
    metavar="HOST:PORT",
    help="Where to listen for MQTT over TCP (listeners.tcp.bind).",
)
def command(
    config_path: Path | None, sets: tuple[str, ...], data: str | None, bind: str | None
) -> int:
    """Run the broker in the foreground.

    Needs no file: it listens on localhost:1883 and keeps its data in ./perdure-data. SIGTERM
    drains and stops, SIGHUP reloads.

    \b
    Examples:
      perdure serve
      perdure serve --data /var/lib/perdure --config /etc/perdure.yaml
      perdure serve --bind 0.0.0.0:1883 --set auth.password_file=users
    """
    overrides = []
    if data is not None:
        overrides.append(Override(("storage", "path"), data, Origin("flag", "--data")))
    if bind is not None:
        overrides.append(Override(("listeners", "tcp", "bind"), bind, Origin("flag", "--bind")))

    def reload() -> Loaded:
        return load(config_path, environ=os.environ, sets=sets, overrides=overrides)

    loaded = reload()
    log = loaded.config.log
    logs.configure(
        level=log.level,
        format=log.format,
        repeat_max=log.repeat_max,
        repeat_window_s=log.repeat_window_s,
    )
    for warning in loaded.warnings:
        logs.get_logger("config").warning("config.ignored", reason=warning)

    # Imported late: a bad configuration is told at once.
    app = importlib.import_module("perdure.server.app")
    code: int | None = app.run(loaded.config, reload=lambda: reload().config)
    return ExitCode.OK if code is None else code
