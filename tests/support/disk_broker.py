"""``python -m tests.support.disk_broker --disk DIR --data DIR --bind HOST:PORT [--set a.b=c]``:
a broker as ``perdure serve`` runs it, on a disk that obeys ``tests.support.disk``.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

from perdure.config.document import Origin
from perdure.config.environ import Override
from perdure.config.load import load
from perdure.errors import PerdureError
from perdure.observe import logs
from perdure.server.app import run
from tests.support.disk import OrderedEngine


def disk_command(disk: Path, data: Path, port: int, *options: str) -> list[str]:
    """The command that runs one on a port of the loopback address."""
    module = [sys.executable, "-m", "tests.support.disk_broker", "--disk", str(disk)]
    return [*module, "--data", str(data), "--bind", f"127.0.0.1:{port}", *options]


def main(args: Sequence[str]) -> int:
    """Run one until a signal stops it; returns its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--disk", type=Path, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--bind", required=True)
    parser.add_argument("--set", dest="sets", action="append", default=[])
    options = parser.parse_args(args)
    overrides = [
        Override(("storage", "path"), options.data, Origin("flag", "--data")),
        Override(("listeners", "tcp", "bind"), options.bind, Origin("flag", "--bind")),
    ]
    config = load(None, environ={}, sets=options.sets, overrides=overrides).config
    settings = config.log
    logs.configure(
        level=settings.level,
        format=settings.format,
        repeat_max=settings.repeat_max,
        repeat_window_s=settings.repeat_window_s,
    )
    try:
        return run(config, engine=functools.partial(OrderedEngine, options.disk))
    except PerdureError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
