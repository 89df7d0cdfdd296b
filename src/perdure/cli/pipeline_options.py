"""What the commands of ``perdure pipeline`` have in common."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.clock import SystemClock
from perdure.config.units import format_time
from perdure.errors import ConfigError

if TYPE_CHECKING:
    from perdure.pipeline.options import ReadOptions


def topic_options(command: Any) -> Any:
    """Add ``--topic``, ``--from``, ``--master`` and ``--memory``."""
    for option in (
        click.option("--memory", default="2g", show_default=True, help="Of the Spark driver."),
        click.option("--master", metavar="URL", help="Where Spark runs; else on this machine."),
        click.option("--from", "since", metavar="TIME", help="RFC 3339, or how long ago (2h)."),
        click.option(
            "--topic",
            "-t",
            "filters",
            multiple=True,
            metavar="FILTER",
            help="Topic filter; may be repeated. Everything if not given.",
        ),
    ):
        command = option(command)
    return command


def read_options(data: Path, filters: tuple[str, ...], **others: str | None) -> ReadOptions:
    """Checked options of a read.

    Raises:
        CommandFailed: there is no database.
        click.BadParameter: an option cannot be used.
        ConfigError: the pipeline is not installed.
    """
    try:
        from perdure.pipeline.options import parse_options
    except ImportError as error:
        raise missing() from error
    if not (data / "CURRENT").exists():
        raise CommandFailed(
            f"{data} holds no database",
            ExitCode.NOT_FOUND,
            hint="name the broker's data directory with --data",
        )
    given = {name: value for name, value in others.items() if value is not None}
    if filters:
        given["topic"] = msgspec.json.encode(filters).decode()
    try:
        return parse_options({"path": str(data.resolve()), **given}, SystemClock().now_us())
    except ConfigError as error:
        raise click.BadParameter(error.message) from error


def missing() -> ConfigError:
    """What to say where the extra is missing."""
    return ConfigError("the data pipeline is not installed", hint="pip install 'perdure[spark]'")


def plain(value: Any) -> Any:
    """Rows of an answer with moments as the other commands write them."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return format_time(round(value.timestamp() * 1_000_000))
    return value
