"""``perdure pipeline route``: the Kafka topics of all applications, and devices' queues."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click
import msgspec

from perdure.cli.data import broker_options
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.pipeline_options import (
    NO_SPARK,
    From,
    opened_log,
    pipeline_installed,
    read_options,
    spark_session,
)
from perdure.cli.range_options import since_option
from perdure.config.schema import Config, KafkaForwarderConfig
from perdure.errors import ConfigError, StorageUnavailable

if TYPE_CHECKING:
    from perdure.forwarders.route.job import Execute, RouteJob
    from perdure.forwarders.route.queue_writer import QueueSettings
    from perdure.forwarders.route.targets import Route

NAME: Final = "route"
"""Of the pipeline, for ``retention.keep_for``."""
_LINE_BYTES_MAX: Final = 1 << 20


class _Subscription(msgspec.Struct):
    """A line of ``perdure subs list --output jsonl``, as far as it matters."""

    client_id: str
    filter: str
    qos: int
    group: str | None = None


@click.command()
@broker_options
@since_option
@click.option("--master", metavar="URL", help="Where Spark runs, or none; else pipeline.master.")
@click.option("--memory", help="Of the Spark driver; else pipeline.memory (2g).")
@click.option("--once", is_flag=True, help="End when everything is routed.")
@click.option("--every", "every_s", type=click.IntRange(1, 86_400), default=10, show_default=True,
              metavar="SECONDS", help="Pause between two looks at the log.")  # fmt: skip
@click.option("--subscriptions", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              metavar="FILE", help="Devices that have queues: JSON lines with client_id, filter "
                                   "and qos, such as subs list writes.")  # fmt: skip
@click.option("--queues-to", "url", default="", metavar="URL", help="Redis with their queues.")
@click.option("--layout", type=click.Choice(["tbmq", "compact"]), default="tbmq",
              show_default=True, help="Of the queues.")  # fmt: skip
@click.option("--prefix", metavar="TEXT", help="Of the queues' keys; else the layout's own.")
@click.option("--limit", type=click.IntRange(1, 65_535), default=10_000, show_default=True,
              help="Entries of a queue; the oldest go.")  # fmt: skip
@output_options
def route(
    config: Config,
    since: str | None,
    master: str | None,
    memory: str | None,
    once: bool,
    every_s: int,
    subscriptions: Path | None,
    url: str,
    layout: Literal["tbmq", "compact"],
    prefix: str | None,
    limit: int,
    out: Output,
) -> None:
    """Fill the Kafka topics of all applications, and queues of devices on Redis, each once.

    One job reads the log once for all applications, instead of a forwarder for each: pause those
    (perdure forwarders pause app-NAME). Either goes on where the other stopped. Applications are
    those of applications.declared and those that were added. It begins at --from, or with all that
    the log has, and goes on where it left off.

    \b
    Examples:
      perdure pipeline route --config /etc/perdure/perdure.yaml
      perdure subs list --output jsonl > devices.jsonl
      perdure pipeline route --once --subscriptions devices.jsonl --queues-to redis://localhost
    """
    if bool(url) != bool(subscriptions):
        raise click.UsageError("--subscriptions and --queues-to go together")
    log = From(Path(config.storage.path), pipeline=config.pipeline)
    options = read_options(log, (), **{"from": since})
    with pipeline_installed():
        from perdure.forwarders.origin import origin_of
        from perdure.forwarders.route.job import RouteJob, Task
        from perdure.forwarders.route.queue_writer import QueueSettings
        from perdure.forwarders.route.targets import APPLICATION, QUEUE, Route, check_routes
        from perdure.pipeline.cursor import CursorKeeper
    applications = _applications(config)
    routes = [
        Route(APPLICATION, name, each)
        for name, settings in applications.items()
        for each in settings.filter
    ]
    if subscriptions is not None:
        routes += _devices(subscriptions, QUEUE)
    if not routes:
        raise CommandFailed("there is nothing to route", ExitCode.USAGE,
                            hint="perdure applications add, or --subscriptions")  # fmt: skip
    task = Task(tuple(check_routes(routes)), applications, origin_of(config),
                QueueSettings(url, layout, prefix, limit))  # fmt: skip
    with opened_log(options) as index:
        database = index.database_id
    if url:
        _tell_what_may_be_lost(task.queues)
    keep = CursorKeeper(options, NAME, NAME, warn=lambda text: click.echo(text, err=True))
    with _executor(config, master, memory) as (execute, rows):
        job = RouteJob(
            options,
            task,
            execute=execute,
            start=_left_off(log.data, database),
            on_position=keep,
            rows_per_round=rows,
        )
        _rounds(job, out, once=once, every_s=every_s)


def _tell_what_may_be_lost(queues: QueueSettings) -> None:
    from perdure.forwarders.route.queue_writer import may_lose

    # Whether it is away is up to the rounds.
    with contextlib.suppress(StorageUnavailable):
        for reason in may_lose(queues):
            click.echo(f"queues: {reason}", err=True)


@contextlib.contextmanager
def _executor(
    config: Config, master: str | None, memory: str | None
) -> Iterator[tuple[Execute, int]]:
    """What runs the tasks, and how many messages it takes at once."""
    from perdure.forwarders.route import here, job

    where = master or config.pipeline.master
    if where == NO_SPARK:
        yield here.route_here, here.ROWS_PER_ROUND
        return
    with pipeline_installed():
        from perdure.forwarders.route.spark import SparkRoute
    memory = memory or config.pipeline.memory
    with spark_session(NAME, master=where or None, memory=memory) as spark:
        yield SparkRoute(spark), job.ROWS_PER_ROUND


def _rounds(job: RouteJob, out: Output, *, once: bool, every_s: int) -> None:
    columns = (Column("target"), *(Column(each, right=True) for each in ("written", "repeated",
               "too_large")))  # fmt: skip
    while True:
        try:
            found, has_more = job.run_round()
        except StorageUnavailable as error:
            if once:
                raise
            click.echo(f"again in {every_s} s: {error.message}", err=True)
            found, has_more = [], False
        if found:
            out.rows(columns, [_row(each) for each in found])
        if has_more:
            continue
        if once:
            return
        time.sleep(every_s)


def _row(written: Any) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(written)
    del row["error"]
    return {**row, "target": written.target or "queues"}


def _applications(config: Config) -> dict[str, KafkaForwarderConfig]:
    """The forwarders of all applications, by name."""
    from perdure.forwarders.applications import every_forwarder

    return {
        name: settings
        for name, settings in every_forwarder(config).items()
        if isinstance(settings, KafkaForwarderConfig) and settings.application
    }


def _devices(file: Path, kind: str) -> list[Route]:
    """The routes of a file of subscriptions; those of groups and of QoS 0 have no queue."""
    from perdure.forwarders.route.targets import Route

    decoder = msgspec.json.Decoder(_Subscription)
    found = []
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                each = decoder.decode(line[:_LINE_BYTES_MAX])
            except ValueError as error:
                raise ConfigError(f"{file}, line {number}: {error}", path="subscriptions") from None
            if each.qos and not each.group and not each.filter.startswith("$share/"):
                found.append(Route(kind, each.client_id, each.filter, each.qos))
    return found


def _left_off(data: Path, database: str) -> int | None:
    """How far the job is; None = it has never run."""
    from perdure.storage.cursors import load_cursors

    cursors, broken = load_cursors(data)
    if NAME in broken:
        raise CommandFailed(
            f"{data}/pipelines: the cursor of {NAME} cannot be read",
            ExitCode.DATA,
            hint="remove it; what is routed is not routed twice",
        )
    return max(
        (each.offset for each in cursors if each.name == NAME and each.database == database),
        default=None,
    )
