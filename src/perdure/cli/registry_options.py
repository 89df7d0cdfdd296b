"""Where a registry is, as an option of every command that looks into one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


def place_options(command: _F) -> _F:
    """Add ``--url``, ``--partitions`` and ``--prefix``."""
    for option in (
        click.option("--prefix", default="nxx:", show_default=True, help="Of all keys."),
        click.option("--partitions", type=click.IntRange(1, 1 << 20), default=1024,
                     show_default=True, help="As all workers have it (redis.partitions)."),
        click.option("--url", required=True, envvar="PERDURE_REGISTRY_URL", metavar="URL",
                     help="redis://host:6379/0, or redis+cluster://host,host,..."),
    ):  # fmt: skip
        command = option(command)
    return command
