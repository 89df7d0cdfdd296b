"""``perdure sql``: the log and the archive in SQL, without Spark."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import click

from perdure.cli.archive_place import archive_lake, missing_option
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.pipeline_options import From, log_options, opened_log, read_options
from perdure.cli.range_options import since_option, topic_option, until_option
from perdure.config.units import format_time
from perdure.errors import ConfigError
from perdure.limits import OFFSET_MAX


@click.command()
@click.argument("query")
@log_options
@topic_option()
@since_option
@until_option
@click.option(
    "--to", default="", metavar="PLACE", help="Of the archive; else pipeline.tables.place."
)
@missing_option
@click.option("--memory", default="2GB", show_default=True, help="Before temporary files are used.")
@output_options
def command(
    query: str,
    log: From,
    filters: tuple[str, ...],
    since: str | None,
    until: str | None,
    to: str,
    missing: str,
    memory: str,
    out: Output,
) -> None:
    """Ask the log, and the tables of an archive, in DuckDB's SQL. Needs perdure[sql].

    The table log has the columns of the Spark data source; those of the archive have their names.
    What retention has dropped from the log comes from the archive. --topic, --from and --until
    narrow what is read of the log, which conditions in the query do not.

    \b
    Examples:
      perdure sql 'select topic, count(*) as n from log group by topic order by n desc limit 5'
      perdure sql --from 1h "select client_id, max(published_at) from log group by client_id"
      perdure sql --to archive 'select device, avg(temperature) from temperature group by device'
    """
    try:
        from perdure.pipeline.sql import QueryError, SqlSession, check_memory
    except ImportError as error:
        raise ConfigError(
            "SQL is not installed", hint="pip install 'perdure[spark,sql]'"
        ) from error
    has_lake = bool(to or log.pipeline.tables.place)
    lake = archive_lake(log.pipeline.tables, to) if has_lake else None
    options = read_options(log, filters, **{"from": since, "until": until})
    if lake is not None:
        from perdure.pipeline.archive_state import load_state

        if load_state(lake.place, lake.store) is not None:
            options = _with_archive(options, lake, skips=missing == "skip")
    with opened_log(options):
        pass  # It can be read.
    session = SqlSession(options, lake, memory=check_memory(memory))
    try:
        names, rows = session.query(query)
        out.rows([Column(name) for name in names], _plain_rows(rows))
    except QueryError as error:
        raise CommandFailed(
            str(error).partition("\n")[0],
            ExitCode.USAGE,
            hint=f"tables: {', '.join(session.tables)}",
        ) from error
    finally:
        session.close()


def _with_archive(options: Any, lake: Any, *, skips: bool) -> Any:
    """Options that read what came before the log from the archive."""
    import msgspec

    return msgspec.structs.replace(options, catalog=lake.place, lake=lake, skip_missing=skips)


def _plain_rows(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """Moments as the other commands write them; bytes as text, or base64 if they are none. A sum
    of whole numbers has 128 bits in DuckDB, and is a number here as long as it has 64."""
    if isinstance(value, Decimal):
        if value.as_tuple().exponent != 0:
            return float(value)
        return int(value) if abs(value) <= OFFSET_MAX else str(value)
    if isinstance(value, datetime):
        return format_time(round(value.timestamp() * 1_000_000))
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value if isinstance(value, str | int | float | bool | None) else str(value)
