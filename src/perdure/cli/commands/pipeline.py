"""``perdure pipeline``: the log in Spark, and into tables."""

from __future__ import annotations

import click

from perdure.cli.pipeline_archive import archive
from perdure.cli.pipeline_audit import audit
from perdure.cli.pipeline_jobs import jobs
from perdure.cli.pipeline_learn import learn
from perdure.cli.pipeline_maintain import maintain
from perdure.cli.pipeline_migrate import migrate
from perdure.cli.pipeline_registry import registry
from perdure.cli.pipeline_replay import replay
from perdure.cli.pipeline_route import route
from perdure.cli.pipeline_run import run
from perdure.cli.pipeline_stats import stats
from perdure.cli.pipeline_status import status


@click.group()
def command() -> None:
    """Read the log with Spark, beside a running broker. Needs perdure[spark] and Java 17.

    \b
    Examples:
      perdure pipeline stats --from 24h --html traffic.html
      perdure pipeline archive --once --to archive
      perdure pipeline archive --to archive --table 'rooms=rooms/{room}/{sensor}'
      perdure pipeline maintain --to archive --keep 1d
      perdure pipeline registry --url redis://localhost --html registry.html
      perdure pipeline replay --to archive --topic 'devices/7/#' --from 30d
      perdure pipeline route --once
      perdure pipeline run --config /etc/perdure/perdure.yaml
      perdure pipeline status
      perdure pipeline jobs
      perdure pipeline archive --url http://broker:18083 --token-file token --to archive
      perdure pipeline learn --write proposal.json
      perdure pipeline audit --stamp json:number --ledger acknowledged.jsonl
      perdure pipeline migrate --from postgresql://tbmq@db/tbmq --to data
    """


command.add_command(archive)
command.add_command(audit)
command.add_command(jobs)
command.add_command(learn)
command.add_command(maintain)
command.add_command(migrate)
command.add_command(registry)
command.add_command(replay)
command.add_command(route)
command.add_command(run)
command.add_command(status)
command.add_command(stats)
