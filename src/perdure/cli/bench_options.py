"""Options that the scenarios of ``perdure bench`` share, gathered into plain values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, final

import click
import msgspec

from perdure.bench.peers import PEERS
from perdure.bench.settings import WINDOW_MAX
from perdure.bench.stamp import PAYLOAD_SIZE_MIN

_F = TypeVar("_F", bound=Callable[..., Any])

VERSIONS: Final = {"3.1.1": 4, "311": 4, "4": 4, "5": 5, "5.0": 5, "50": 5}
COUNT: Final = click.IntRange(1)


@final
class TargetOptions(msgspec.Struct, frozen=True):
    """Whom to measure.

    Attributes:
        start: name of a peer to start; empty = one that runs at ``host`` and ``port``.
        program: its executable, instead of the installed one.
        node_pids: see ``bench.target``.
        node_metrics: addresses of the nodes' metrics, and ``metrics_token`` for them.
    """

    host: str
    port: int
    username: str | None
    password_file: Path | None
    pid: int | None
    start: str
    program: str | None
    node_pids: tuple[int, ...] = ()
    node_metrics: tuple[str, ...] = ()
    metrics_token: str = ""


@final
class ReportOptions(msgspec.Struct, frozen=True):
    """Where findings go.

    Attributes:
        expect: expectations, see ``bench.expectations``.
        html, save: files to write.
        progress: show it, on a terminal.
    """

    expect: str
    html: Path | None
    save: Path | None
    progress: bool


def target_options(command: _F) -> _F:
    """Add the options that name a broker; the command gets them as ``where``."""

    @click.option("-h", "--host", default="localhost", show_default=True, help="The broker.")
    @click.option("-p", "--port", type=click.IntRange(1, 65_535), default=1883, show_default=True)
    @click.option("-u", "--username", metavar="NAME", help="User name of every client.")
    @click.option("--password-file", type=click.Path(path_type=Path, exists=True), metavar="FILE",
                  help="Its password.")  # fmt: skip
    @click.option("--pid", type=COUNT, help="Process id of the broker, to measure CPU and memory.")
    @click.option("--start", type=click.Choice(list(PEERS)), default=None,
                  help="Start this broker for the run, on an empty directory.")  # fmt: skip
    @click.option("--program", metavar="PATH", help="With --start: which executable.")
    @functools.wraps(command)
    def with_target(
        *args: Any,
        host: str,
        port: int,
        username: str | None,
        password_file: Path | None,
        pid: int | None,
        start: str | None,
        program: str | None,
        **kwargs: Any,
    ) -> Any:
        if start and pid:
            raise click.UsageError("--pid names a broker that runs; --start starts one")
        if program and not start:
            raise click.UsageError("--program goes with --start")
        where = TargetOptions(host, port, username, password_file, pid, start or "", program)
        return command(*args, where=where, **kwargs)

    return with_target  # type: ignore[return-value]


def load_options(
    *, traffic: bool = False, publishes: bool = True, durable: bool = True, idle: bool = True
) -> Callable[[_F], _F]:
    """Add the options of the load; the command gets them as ``load``, a dict of settings.

    Args:
        traffic: messages flow for a time, so there is a rate and a duration.
        publishes: messages are published at all.
        durable: sessions may be durable or clean.
        idle: with ``traffic``: there may be idle company.
    """
    options: list[Callable[[_F], _F]] = [
        click.option("-V", "--mqtt-version", "version", type=click.Choice(list(VERSIONS)),
                     default="3.1.1", show_default=True, help="Protocol version."),
        click.option("-q", "--qos", type=click.IntRange(0, 2), default=1, show_default=True,
                     help="Of messages and subscriptions."),
        click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True,
                     help="Names clients and topics."),
    ]  # fmt: skip
    if durable:
        options.append(click.option("--clean", is_flag=True, help="Clean, not durable sessions."))
    if publishes:
        options += [
            click.option("--size", type=click.IntRange(PAYLOAD_SIZE_MIN), default=64,
                         show_default=True, help="Payload, bytes."),
            click.option("--window", type=click.IntRange(1, WINDOW_MAX), default=16,
                         show_default=True, help="Unacknowledged messages of a publisher."),
        ]  # fmt: skip
    if traffic:
        options += [
            click.option("--rate", type=click.FloatRange(0), default=0.0, metavar="N",
                         help="Open loop: messages per second of all publishers."),
            click.option("--duration", "duration_s", type=click.FloatRange(0, min_open=True),
                         default=10.0, show_default=True, metavar="SECONDS"),
            click.option("--warmup", "warmup_s", type=click.FloatRange(0), default=2.0,
                         show_default=True, metavar="SECONDS", help="Not measured."),
        ]  # fmt: skip
    if traffic and idle:
        options += [
            click.option("--with-offline", "offline", type=click.IntRange(0), default=0,
                         metavar="N", help="Beside N offline durable sessions on a wildcard."),
            click.option("--with-retained", "retained", type=click.IntRange(0), default=0,
                         metavar="N", help="Beside N retained messages."),
            click.option("--with-recorded", "recorded", type=click.IntRange(0), default=0,
                         metavar="N", help="Beside N recorded messages."),
        ]  # fmt: skip

    def decorate(command: _F) -> _F:
        @functools.wraps(command)
        def with_load(*args: Any, version: str, clean: bool = False, **kwargs: Any) -> Any:
            load = {"version": VERSIONS[version], "durable": not clean}
            for name in _LOAD_NAMES:
                if name in kwargs:
                    load[name] = kwargs.pop(name)
            return command(*args, load=load, **kwargs)

        decorated: Any = with_load
        for option in reversed(options):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


_LOAD_NAMES: Final = (
    "duration_s",
    "offline",
    "qos",
    "rate",
    "recorded",
    "retained",
    "seed",
    "size",
    "warmup_s",
    "window",
)


def report_options(command: _F) -> _F:
    """Add the options of the report; the command gets them as ``report``."""

    @click.option("--expect", default="", metavar="TEXT",
                  help="What must hold ('p99<50ms,lost=0'); exit 1 if it does not.")  # fmt: skip
    @click.option("--html", type=click.Path(path_type=Path), metavar="FILE",
                  help="Write a page with plots.")  # fmt: skip
    @click.option("--save", type=click.Path(path_type=Path), metavar="FILE",
                  help="Write the record (JSON), for perdure bench report.")  # fmt: skip
    @click.option("--no-progress", is_flag=True, help="Show no progress on the terminal.")
    @functools.wraps(command)
    def with_report(
        *args: Any,
        expect: str,
        html: Path | None,
        save: Path | None,
        no_progress: bool,
        **kwargs: Any,
    ) -> Any:
        report = ReportOptions(expect, html, save, not no_progress)
        return command(*args, report=report, **kwargs)

    return with_report  # type: ignore[return-value]
