"""``--config`` and ``--set``: how commands take a configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


def config_options(command: _F) -> _F:
    """Add ``--config`` (as ``config_path``) and ``--set`` (as ``sets``) to a command."""
    command = click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="SECTION.NAME=VALUE",
        help="Set one setting; wins over file and environment. May be repeated.",
    )(command)
    return click.option(
        "--config",
        "-c",
        "config_path",
        type=click.Path(path_type=Path),
        envvar="PERDURE_CONFIG",
        metavar="FILE",
        help="Configuration file, YAML or TOML; $PERDURE_CONFIG if not given.",
    )(command)
