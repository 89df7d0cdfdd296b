"""``perdure bench cluster``: nodes beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from perdure.bench.settings import Settings
from perdure.cli.bench_options import COUNT, TargetOptions, load_options, report_options
from perdure.cli.bench_run import run_scenario
from perdure.cli.output import output_options
from perdure.cli.token_file import first_token

NODES_MAX: Final = 64


@click.command(context_settings={"help_option_names": ["--help"]})
@click.option("--url", "urls", multiple=True, required=True, metavar="HOST[:PORT]",
              help="A node; one for each, in any order.")  # fmt: skip
@click.option("--pairs", type=COUNT, default=50, show_default=True)
@click.option("-u", "--username", metavar="NAME", help="User name of every client.")
@click.option("--password-file", type=click.Path(path_type=Path, exists=True), metavar="FILE",
              help="Its password.")  # fmt: skip
@click.option("--pid", "pids", type=COUNT, multiple=True,
              help="Process id of a node on this machine, in the order of --url: its CPU is "
                   "measured.")  # fmt: skip
@click.option("--metrics", "metrics", multiple=True, metavar="URL",
              help="Metrics of a node, in the order of --url: what it costs to apply a message "
                   "there is asked.")  # fmt: skip
@click.option("--metrics-token-file", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              metavar="FILE", help="A token that the metrics want.")  # fmt: skip
@load_options(traffic=True, idle=False)
@report_options
@output_options
def cluster(
    urls: tuple[str, ...],
    pairs: int,
    username: str | None,
    password_file: Path | None,
    pids: tuple[int, ...],
    metrics: tuple[str, ...],
    metrics_token_file: Path | None,
    load: dict[str, Any],
    **rest: Any,
) -> int:
    """Nodes of a cluster, from outside: latencies, rates, moves.

    \b
    local     publishers and subscribers at the first node
    across    publishers at the first node, subscribers at the others
    takeover  a client that comes to the next node while its last connection is open: CONNECT to
              CONNACK

    With one --url only the first is measured. Nothing is started or ended. --metrics asks each
    node what applying a message costs it (node2_apply_us); --pid tells all CPU of its process.

    \b
    Examples:
      perdure bench cluster --url n1:1883 --url n2:1883 --url n3:1883 --rate 5000
      perdure bench cluster --url n1 --url n2 --expect 'local.ack_p99<50ms,takeover.p50<50ms,lost=0'
    """
    if len(urls) > NODES_MAX:
        raise click.BadParameter(f"at most {NODES_MAX}", param_hint="--url")
    if len(pids) > len(urls):
        raise click.BadParameter("more than there are nodes", param_hint="--pid")
    if len(metrics) > len(urls):
        raise click.BadParameter("more than there are nodes", param_hint="--metrics")
    nodes = [_address(url) for url in urls]
    host, port = nodes[0]
    settings = Settings(
        scenario="cluster",
        publishers=pairs,
        subscribers=pairs,
        nodes=tuple(f"{host}:{port}" for host, port in nodes),
        **load,
    )
    where = TargetOptions(
        host,
        port,
        username,
        password_file,
        None,
        "",
        None,
        node_pids=pids,
        node_metrics=metrics,
        metrics_token=first_token(metrics_token_file) if metrics_token_file else "",
    )
    return run_scenario(settings, where=where, **rest)


def _address(url: str) -> tuple[str, int]:
    """Host and port of ``host``, ``host:port`` or ``mqtt://host:port``."""
    try:
        parts = urlsplit(url if "://" in url else f"mqtt://{url}")
        host, port = parts.hostname, parts.port or 1883
    except ValueError as error:
        raise click.BadParameter(f"{url}: {error}", param_hint="--url") from error
    if parts.scheme != "mqtt" or not host or parts.path.strip("/"):
        raise click.BadParameter(
            f"{url} is not host:port (bench speaks MQTT over plain TCP)", param_hint="--url"
        )
    return (f"[{host}]" if ":" in host else host), port
