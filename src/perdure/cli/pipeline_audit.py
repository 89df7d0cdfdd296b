"""``perdure pipeline audit``: is everything there, once, and in order?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.pipeline_options import From, log_options, pipeline_installed, read_options
from perdure.cli.queue_open import extra
from perdure.cli.range_options import since_option, topic_option
from perdure.config.schema import Config, KafkaForwarderConfig

if TYPE_CHECKING:
    from perdure.pipeline.jobs.audit import Findings


@click.command()
@log_options
@topic_option()
@since_option
@click.option(
    "--catalog", metavar="DIR", help="Archive with what retention has dropped from the log."
)
@click.option(
    "--stamp",
    metavar="text|json:FIELD",
    help="How messages are numbered: payloads 'publisher number ...', or a number in a JSON field.",
)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="What publishers saw acknowledged: JSON lines with topic, publisher and number.",
)
@click.option(
    "--kafka",
    "targets",
    multiple=True,
    metavar="NAME",
    help="Also compare the topic of this Kafka forwarder (app-NAME of an application); repeatable.",
)
@output_options
def audit(
    log: From,
    filters: tuple[str, ...],
    since: str | None,
    catalog: str | None,
    stamp: str | None,
    ledger: Path | None,
    targets: tuple[str, ...],
    out: Output,
) -> int:
    """Look for messages that are missing, repeated or out of order; exit 1 if there are any.

    Reads the log, the sessions and the retained messages of a data directory, beside a running
    broker or without one; not over --url. Needs no Spark and no Java. With --kafka it also reads
    the Kafka topics of forwarders: all that was forwarded is there, once and in order.
    """
    if log.url:
        raise click.UsageError(
            "audit reads rows, index and sessions as they are on disk: run it where the data "
            "directory is, with --data"
        )
    options = read_options(log, filters, **{"from": since, "catalog": catalog})
    with pipeline_installed():
        from perdure.pipeline.jobs import audit as job
    if ledger is not None and stamp is None:
        raise click.UsageError("--ledger needs --stamp: how messages are numbered")
    found = job.audit(
        options,
        stamp=None if stamp is None else _numbered(job, stamp),
        ledger=() if ledger is None else job.read_ledger(ledger),
        progress=_progress,
    )
    findings = job.Findings(found.found, found.problems)
    compared = [
        _target(name, settings, log, since, catalog, findings)
        for name, settings in _forwarders(log.config, targets).items()
    ]
    if out.is_json:
        told = {"found": dict(findings.counts), "problems": findings.problems, "kafka": compared}
        out.record(msgspec.to_builtins({**msgspec.structs.asdict(found), **told}))
    else:
        columns = (Column("kind"), Column("subject"), Column("detail"))
        out.rows(columns, [msgspec.structs.asdict(each) for each in findings.problems])
    for each in compared:
        click.echo(
            f"{each['name']}: {each['records']} records in Kafka, {each['messages']} messages of "
            f"the log, {each['lag']} not forwarded yet",
            err=True,
        )
    count = sum(findings.counts.values())
    verdict = "nothing is wrong" if count == 0 else f"{count} findings"
    click.echo(
        f"{log.data}: {found.messages} messages ({found.stamped} numbered), {found.sessions} "
        f"sessions, {found.acknowledged} acknowledged ({found.older} older than the log): "
        f"{verdict}",
        err=True,
    )
    return ExitCode.EXPECTATION if count else ExitCode.OK


def _forwarders(config: Config, names: tuple[str, ...]) -> dict[str, KafkaForwarderConfig]:
    """The settings of the forwarders that were named."""
    if not names:
        return {}
    from perdure.forwarders.applications import every_forwarder

    known = every_forwarder(config)
    found = {}
    for name in names:
        settings = known.get(name)
        if not isinstance(settings, KafkaForwarderConfig):
            kafka = sorted(n for n, each in known.items() if isinstance(each, KafkaForwarderConfig))
            raise click.BadParameter(
                f"--kafka: {name!r} is no Kafka forwarder; there are {', '.join(kafka) or 'none'}"
            )
        found[name] = settings
    return found


def _target(
    name: str,
    settings: KafkaForwarderConfig,
    log: From,
    since: str | None,
    catalog: str | None,
    findings: Findings,
) -> dict[str, Any]:
    """Compare one topic."""
    with extra("kafka"):
        from perdure.forwarders.kafka.audit import COLUMNS, audit_topic
    from perdure.forwarders.origin import ORIGIN_FILE, origin_of
    from perdure.pipeline.here import read_here

    config = log.config
    if not config.cluster.kafka and not (Path(config.storage.path) / ORIGIN_FILE).exists():
        raise CommandFailed(f"no forwarder has run on {log.data} yet", ExitCode.NOT_FOUND)
    where = settings.where or None
    options = read_options(
        log, settings.filter, **{"from": since, "catalog": catalog, "where": where}
    )
    return audit_topic(
        name,
        settings,
        f"{origin_of(config)}/{name}",
        lambda: read_here(options, COLUMNS),
        findings.add,
    )._asdict()


def _numbered(job: Any, stamp: str) -> Any:
    """What ``--stamp`` names."""
    kind, _, field = stamp.partition(":")
    if stamp == "text":
        return job.text_stamp
    if kind == "json" and field:
        return job.json_stamp(field)
    raise click.BadParameter(f"--stamp: expected text or json:FIELD, got {stamp!r}")


def _progress(done: int, total: int) -> None:
    """How many parts of the log were read, if there are many."""
    if done and done < total and done % 10 == 0:
        click.echo(f"read {done} of {total} parts", err=True)
