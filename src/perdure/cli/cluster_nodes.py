"""``perdure cluster status``, ``expel``, ``forget``, ``verify``: the nodes, and what they hold."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import click
import msgspec

from perdure.admin.records.cluster import ExpelNode, ForgetNode
from perdure.admin.records.node import ListNodes
from perdure.cli.data import data_options, holds_database
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.running_broker import print_record, running_broker
from perdure.config.cluster_rules import log_problems
from perdure.config.schema.cluster import ClusterConfig

_NODES: Final = (
    Column("name"),
    Column("is_self"),
    Column("state"),
    Column("version"),
    Column("started_at", time=True),
    Column("connections", right=True),
    Column("rate_in", right=True, tenths=True),
    Column("rate_out", right=True, tenths=True),
    Column("messages_dropped", right=True),
    Column("storage"),
    Column("cluster_lag", right=True),
    Column("as_of", time=True),
)
_OPTION_OF: Final = {
    "cluster.kafka": "--kafka",
    "cluster.name": "--name",
    "cluster.kafka_options": "--option",
}
_DIGESTS: Final = (Column("directory"), Column("position"), Column("digest"))


@click.command("status")
@data_options
@output_options
def status(data: Path, out: Output) -> int:
    """List the nodes as the one on this machine knows them; exit 1 if one is no member.

    What other nodes count is as each has said it last (as_of), every ten seconds; all of it is in
    perdure status --node NAME.

    \b
    Examples:
      perdure cluster status --data /var/lib/perdure --json
    """
    with running_broker(data) as client:
        found = client.call(ListNodes()).items
    out.rows(_NODES, [msgspec.to_builtins(node) for node in found])
    return ExitCode.OK if all(node.state == "running" for node in found) else ExitCode.EXPECTATION


@click.command("expel")
@data_options
@click.argument("node")
@click.option("--force", is_flag=True, help="Also if it was heard of within cluster.dead_after.")
@output_options
def expel(data: Path, node: str, force: bool, out: Output) -> None:
    """End the membership of a node: others take over what it holds. If it runs it joins again.

    \b
    Examples:
      perdure cluster expel n3 --data /var/lib/perdure
    """
    print_record(data, ExpelNode(name=node, force=force), out)


@click.command("forget")
@data_options
@click.argument("node")
@click.option("--force", is_flag=True, help="Also if it is a member; it is expelled then.")
@output_options
def forget(data: Path, node: str, force: bool, out: Output) -> None:
    """Remove what is known of a node that will not come back.

    \b
    Examples:
      perdure cluster forget n3 --data /var/lib/perdure
    """
    print_record(data, ForgetNode(name=node, force=force), out)


@click.command("verify")
@click.option("--kafka", required=True, metavar="SERVERS", help="As cluster.kafka.")
@click.option("--name", required=True, metavar="NAME", help="As cluster.name.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="For librdkafka.")
@click.argument(
    "directories", nargs=-1, required=True, type=click.Path(path_type=Path, file_okay=False)
)
@output_options
def verify(
    kafka: str, name: str, options: tuple[str, ...], directories: tuple[Path, ...], out: Output
) -> int:
    """Compare the data directories of nodes; exit 1 if they differ.

    Each reads the log to its end first, as its node would, so that all stand at one position; then
    sessions, private streams, groups, retained messages and members are one number. What reads on
    is a checkpoint: nodes may run meanwhile, and nothing in the directories changes.

    \b
    Examples:
      perdure cluster verify --kafka k1:9092,k2:9092 --name prod n1 n2 n3
    """
    # Imported late: it needs what other commands do without.
    from perdure.server.cluster_verify import digests

    cluster = ClusterConfig(kafka=kafka, name=name, kafka_options=options)
    for problem in log_problems(cluster):
        raise click.BadParameter(
            f"{problem.message} ({problem.hint})", param_hint=_OPTION_OF[problem.path]
        )
    for directory in directories:
        if not holds_database(directory):
            raise CommandFailed(
                f"{directory} holds no database",
                ExitCode.NOT_FOUND,
                hint="name the data directories of nodes",
            )
    found = asyncio.run(digests(directories, cluster))
    out.rows(_DIGESTS, [msgspec.to_builtins(row) for row in found])
    return ExitCode.OK if len({row.digest for row in found}) == 1 else ExitCode.EXPECTATION
