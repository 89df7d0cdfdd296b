"""``perdure serve``: reads the configuration and hands it to the server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, cast

import click

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.settings_options import config_options
from perdure.config.document import Origin
from perdure.config.environ import Override
from perdure.config.live_settings import LiveSettings
from perdure.config.load import Loaded, load
from perdure.config.schema import Config
from perdure.observe import logs
from perdure.observe.log_writer import LogWriter
from perdure.pure import build

log = logs.get_logger("config")


@click.command()
@config_options
@click.option("--data", metavar="DIR", help="Data directory (storage.path).")
@click.option(
    "--bind", metavar="HOST:PORT", help="Where to listen for MQTT over TCP (listeners.tcp.bind)."
)
@click.option(
    "--profile",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Sample where CPU time goes and write collapsed stacks.",
)
def command(
    config_path: Path | None,
    sets: tuple[str, ...],
    data: str | None,
    bind: str | None,
    profile: Path | None,
) -> int:
    """Run the broker in the foreground.

    Needs no file: it listens on localhost:1883 and keeps its data in ./perdure-data. SIGTERM
    drains and stops, SIGHUP reloads.

    \b
    Examples:
      perdure serve
      perdure serve --data /var/lib/perdure --config /etc/perdure.yaml
      perdure serve --bind 0.0.0.0:1883 --set auth.password_file=users
      PERDURE_PURE_PYTHON=1 perdure serve --profile broker.collapsed
    """
    overrides = []
    if data is not None:
        overrides.append(Override(("storage", "path"), data, Origin("flag", "--data")))
    if bind is not None:
        overrides.append(Override(("listeners", "tcp", "bind"), bind, Origin("flag", "--bind")))

    def read(more: Sequence[Override]) -> Loaded:
        return load(config_path, environ=os.environ, sets=sets, overrides=[*overrides, *more])

    live = LiveSettings(read)
    loaded = live.loaded
    config = loaded.config

    def reload() -> Config:
        ignored = live.reload().restart
        _configure_logs(live.loaded, writer)
        if ignored:
            log.warning("config.needs_restart", settings=list(ignored))
        return live.loaded.config

    writer = LogWriter(sys.stderr)
    try:
        _configure_logs(loaded, writer)

        # Imported late: a bad configuration is told at once.
        from perdure.server.app import run

        with _profiled(profile):
            people = writer.isatty() and config.log.format != "json"
            greet = writer.write if people else None
            return run(config, reload=reload, greet=greet, live=live)
    finally:
        writer.close()


@contextmanager
def _profiled(path: Path | None) -> Iterator[None]:
    """Sample stacks meanwhile if there is a file to write them to."""
    if path is None:
        yield
        return
    from perdure.server.profile import Profiler

    profiler = Profiler(path)
    try:
        profiler.start()
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error.strerror}", ExitCode.DATA) from error
    if build() == "compiled":
        log.warning(
            "profile.compiled",
            hint="compiled functions have no frames: PERDURE_PURE_PYTHON=1 shows them, or perf",
        )
    try:
        yield
    finally:
        profiler.stop()
        log.info("profile.written", path=str(path))


def _configure_logs(loaded: Loaded, writer: LogWriter) -> None:
    """Log as configured, and first of all what the configuration has that was ignored."""
    settings = loaded.config.log
    logs.configure(
        level=settings.level,
        format=settings.format,
        repeat_max=settings.repeat_max,
        repeat_window_s=settings.repeat_window_s,
        stream=cast("TextIO", writer),
    )
    for warning in loaded.warnings:
        log.warning("config.ignored", reason=warning)
