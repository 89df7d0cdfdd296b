"""Options of commands that read the log: which topics, from when and until when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])


def topic_option(*, otherwise: str = "Everything") -> Callable[[_F], _F]:
    """``--topic``, which the command gets as ``filters``.

    Args:
        otherwise: what is read if none is given.
    """
    return click.option(
        "--topic",
        "-t",
        "filters",
        multiple=True,
        metavar="FILTER",
        help=f"Topic filter; may be repeated. {otherwise} if not given.",
    )


def since_option(command: _F) -> _F:
    """``--from``, which the command gets as ``since``."""
    return click.option("--from", "since", metavar="TIME", help="RFC 3339, or how long ago (2h).")(
        command
    )


def until_option(command: _F) -> _F:
    """``--until``."""
    return click.option("--until", metavar="TIME", help="RFC 3339, or how long ago (5m).")(command)
