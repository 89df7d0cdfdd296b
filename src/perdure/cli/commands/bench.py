"""``perdure bench``: measures a broker, this one or another, from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from perdure.bench.peers import PEERS
from perdure.bench.settings import Settings
from perdure.cli.bench_cluster import cluster
from perdure.cli.bench_options import COUNT, load_options, report_options, target_options
from perdure.cli.bench_persistence import persistence
from perdure.cli.bench_run import ComparePlan, report_on, run_scenario
from perdure.cli.bench_sessions import sessions
from perdure.cli.output import Output, output_options

_HELP: Final = {"help_option_names": ["--help"]}


@click.group(context_settings=_HELP)
def command() -> None:
    """Measure a broker: throughput, latency, loss, CPU and memory.

    Any MQTT broker at host:port; --start NAME starts one on an empty directory, and then its CPU
    and memory are measured too (or with --pid). Every message carries its number and the time at
    which it was sent, so that what is lost, repeated or out of order is counted.

    \b
    Examples:
      perdure bench p2p --pairs 1000 --start perdure
      perdure bench p2p --pairs 1000 --rate 10000 --expect 'p99<10ms,lost=0'
      perdure bench offline --sessions 1000 --messages 100 --start perdure --restart
      perdure bench compare --with mosquitto p2p --pairs 100
      perdure bench persistence --start
      perdure bench sessions --count 1000000
      perdure bench cluster --url n1:1883 --url n2:1883
    """


command.add_command(cluster)
command.add_command(persistence)
command.add_command(sessions)


@command.command(context_settings=_HELP)
@click.option("--clients", type=COUNT, default=1000, show_default=True)
@target_options
@load_options(publishes=False)
@report_options
@output_options
def conn(clients: int, load: dict[str, Any], **rest: Any) -> int:
    """Connects, subscriptions and resumes per second."""
    return run_scenario(Settings(scenario="conn", subscribers=clients, **load), **rest)


@command.command(context_settings=_HELP)
@click.option("--pairs", type=COUNT, default=100, show_default=True)
@target_options
@load_options(traffic=True)
@report_options
@output_options
def p2p(pairs: int, load: dict[str, Any], **rest: Any) -> int:
    """Pairs with topics of their own."""
    return run_scenario(
        Settings(scenario="p2p", publishers=pairs, subscribers=pairs, **load), **rest
    )


@command.command(context_settings=_HELP)
@click.option("--publishers", type=COUNT, default=100, show_default=True)
@click.option("--subscribers", type=COUNT, default=1, show_default=True)
@click.option("--shared", is_flag=True, help="The subscribers share one subscription.")
@target_options
@load_options(traffic=True)
@report_options
@output_options
def fanin(
    publishers: int, subscribers: int, shared: bool, load: dict[str, Any], **rest: Any
) -> int:
    """Many publishers to one subscriber with a wildcard, to several, or to a shared group."""
    settings = Settings(
        scenario="fanin", publishers=publishers, subscribers=subscribers, shared=shared, **load
    )
    return run_scenario(settings, **rest)


@command.command(context_settings=_HELP)
@click.option("--publishers", type=COUNT, default=1, show_default=True)
@click.option("--subscribers", type=COUNT, default=100, show_default=True)
@target_options
@load_options(traffic=True)
@report_options
@output_options
def fanout(publishers: int, subscribers: int, load: dict[str, Any], **rest: Any) -> int:
    """One publisher to many subscribers."""
    settings = Settings(scenario="fanout", publishers=publishers, subscribers=subscribers, **load)
    return run_scenario(settings, **rest)


@command.command(context_settings=_HELP)
@click.option("--sessions", type=COUNT, default=1000, show_default=True)
@click.option("--messages", type=COUNT, default=100, show_default=True, help="For each session.")
@click.option("--publishers", type=COUNT, default=100, show_default=True)
@click.option("--restart", is_flag=True, help="With --start: kill -9 and start before draining.")
@target_options
@load_options(durable=False)
@report_options
@output_options
def offline(
    sessions: int, messages: int, publishers: int, restart: bool, load: dict[str, Any], **rest: Any
) -> int:
    """Durable sessions go away, are sent messages, and come back for them."""
    settings = Settings(
        scenario="offline",
        subscribers=sessions,
        messages=messages,
        publishers=publishers,
        restart=restart,
        **load,
    )
    return run_scenario(settings, **rest)


@command.command(context_settings=_HELP)
@click.option("--devices", type=COUNT, default=1000, show_default=True, help="Each has 4 metrics.")
@click.option("--messages", type=COUNT, default=10, show_default=True, help="For each metric.")
@click.option("--publishers", type=COUNT, default=50, show_default=True)
@target_options
@load_options(durable=False)
@report_options
@output_options
def replay(devices: int, messages: int, publishers: int, load: dict[str, Any], **rest: Any) -> int:
    """A late client asks for one metric of a whole fleet (Perdure only)."""
    settings = Settings(
        scenario="replay", subscribers=devices, messages=messages, publishers=publishers, **load
    )
    return run_scenario(settings, **rest)


@command.command(context_settings=_HELP)
@click.option("--connections", type=COUNT, default=10_000, show_default=True)
@click.option("--restart", is_flag=True, help="With --start: also after kill -9 and a start.")
@click.option("--settle", "settle_s", type=click.FloatRange(0), default=2.0, show_default=True,
              metavar="SECONDS", help="Before memory is read.")  # fmt: skip
@target_options
@load_options(publishes=False)
@report_options
@output_options
def idle(
    connections: int, restart: bool, settle_s: float, load: dict[str, Any], **rest: Any
) -> int:
    """Memory of connections that do nothing, and of sessions that are offline."""
    settings = Settings(
        scenario="idle", subscribers=connections, restart=restart, settle_s=settle_s, **load
    )
    return run_scenario(settings, **rest)


@command.command(context_settings=_HELP)
@click.argument("records", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write a page.")
@output_options
def report(records: tuple[Path, ...], html: Path | None, out: Output) -> int:
    """Show saved runs (--save), or put several side by side on one page."""
    return report_on(records, html, out)


@command.group(context_settings=_HELP)
@click.option("--with", "names", multiple=True, type=click.Choice(list(PEERS)),
              help="A broker to compare with; may be repeated. Default, without --vary: "
                   "all.")  # fmt: skip
@click.option("--vary", "variations", multiple=True, metavar="NAME=VALUE,...",
              help="Perdure with something changed; may be repeated.")  # fmt: skip
@click.option("--keep", is_flag=True,
              help="Brokers go on from round to round; for p2p, fanin and fanout.")  # fmt: skip
@click.option("--rounds", type=COUNT, default=3, show_default=True, help="Runs of each broker.")
@click.option("--name", metavar="NAME", help="Of the record; the scenario if not given.")
@click.option("--records", "directory", type=click.Path(path_type=Path, file_okay=False),
              default=Path("benchmarks/records"), show_default=True,
              help="Where it is written.")  # fmt: skip
@click.option("--perdure", "program", metavar="PATH", help="Which perdure to start.")
@click.pass_context
def compare(
    context: click.Context,
    names: tuple[str, ...],
    variations: tuple[str, ...],
    keep: bool,
    rounds: int,
    name: str | None,
    directory: Path,
    program: str | None,
) -> None:
    """Let Perdure and other brokers take turns at one scenario, and record the ratios.

    Each run has a freshly started broker on an empty directory; the configuration is in the
    record. Options of the scenario follow its name. A variation is Perdure again with other
    settings of the run (qos, version, offline, retained, recorded, restart, size, window, ...),
    build=pure or program=PATH.

    \b
    Examples:
      perdure bench compare --with mosquitto p2p --pairs 1000
      perdure bench compare --rounds 5 --name sparse p2p --pairs 1000 --rate 10000
      perdure bench compare --vary qos=2 --vary version=5 --vary build=pure p2p --pairs 1000
      perdure bench compare --keep --vary offline=100000 --vary retained=1000000 p2p
    """
    others = names if names or variations else tuple(peer for peer in PEERS if peer != "perdure")
    context.obj = ComparePlan(
        tuple(dict.fromkeys(("perdure", *others))),
        tuple(dict.fromkeys(variations)),
        keep,
        rounds,
        name or "",
        directory,
        program,
    )


for _scenario in (conn, p2p, fanin, fanout, offline, replay, idle):
    compare.add_command(_scenario)
