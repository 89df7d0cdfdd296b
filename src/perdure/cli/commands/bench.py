"""``perdure bench``: measures a broker, this one or another, from outside."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.bench import expectations
from perdure.bench.errors import BenchError
from perdure.bench.measure import measure
from perdure.bench.peers import PEERS
from perdure.bench.result import Broker, Result
from perdure.bench.runner import Progress, Target
from perdure.bench.settings import Settings
from perdure.cli.bench_options import (
    COUNT,
    ReportOptions,
    TargetOptions,
    load_options,
    report_options,
    target_options,
)
from perdure.cli.bench_screen import progress, show
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Output, output_options
from perdure.errors import UsageError

_HELP = {"help_option_names": ["--help"]}


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
    """


@command.command(context_settings=_HELP)
@click.option("--clients", type=COUNT, default=1000, show_default=True)
@target_options
@load_options(publishes=False)
@report_options
@output_options
def conn(clients: int, load: dict[str, Any], **rest: Any) -> int:
    """Connects, subscriptions and resumes per second."""
    return _run(Settings(scenario="conn", subscribers=clients, **load), **rest)


@command.command(context_settings=_HELP)
@click.option("--pairs", type=COUNT, default=100, show_default=True)
@target_options
@load_options(traffic=True)
@report_options
@output_options
def p2p(pairs: int, load: dict[str, Any], **rest: Any) -> int:
    """Pairs with topics of their own."""
    return _run(Settings(scenario="p2p", publishers=pairs, subscribers=pairs, **load), **rest)


@command.command(context_settings=_HELP)
@click.option("--publishers", type=COUNT, default=100, show_default=True)
@click.option("--subscribers", type=COUNT, default=1, show_default=True)
@target_options
@load_options(traffic=True)
@report_options
@output_options
def fanin(publishers: int, subscribers: int, load: dict[str, Any], **rest: Any) -> int:
    """Many publishers to one subscriber with a wildcard."""
    settings = Settings(scenario="fanin", publishers=publishers, subscribers=subscribers, **load)
    return _run(settings, **rest)


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
    return _run(settings, **rest)


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
    return _run(settings, **rest)


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
    return _run(settings, **rest)


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
    return _run(settings, **rest)


def _run(settings: Settings, *, where: TargetOptions, report: ReportOptions, out: Output) -> int:
    """Measure once, print, write the files, and judge."""
    try:
        expected = expectations.parse(report.expect)
    except UsageError as error:
        raise click.UsageError(f"--expect: {error.message}; {error.hint}") from error
    try:
        with progress(wanted=report.progress) as tell:
            result = _measured(settings, where, tell)
    except BenchError as error:
        raise CommandFailed(error.message, ExitCode.UNAVAILABLE, hint=error.hint) from error
    verdicts = expectations.judge(expected, result)
    show(out, result, verdicts)
    if report.save is not None:
        _write(report.save, msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    return ExitCode.OK if all(verdict.is_met for verdict in verdicts) else ExitCode.EXPECTATION


def _measured(settings: Settings, where: TargetOptions, tell: Progress | None) -> Result:
    with _target(where) as (target, broker, directory):
        return measure(settings, target, broker=broker, directory=directory, progress=tell)


@contextmanager
def _target(where: TargetOptions) -> Iterator[tuple[Target, Broker, Path]]:
    """The broker to measure; one that was started ends afterwards."""
    password = where.password_file.read_bytes().rstrip(b"\r\n") if where.password_file else None
    if not where.start:
        target = Target(
            where.host,
            where.port,
            pid=where.pid,
            username=where.username,
            password=password,
        )
        yield target, Broker(name=f"{where.host}:{where.port}"), Path.cwd()
        return
    peer = PEERS[where.start]
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as directory:
        started = peer.prepare(Path(directory), program=where.program)
        started.process.start()
        try:
            target = Target("127.0.0.1", started.port, process=started.process)
            yield target, started.broker, Path(directory)
        finally:
            started.process.stop()


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error.strerror}", ExitCode.DATA) from error
