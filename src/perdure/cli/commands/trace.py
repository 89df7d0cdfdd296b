"""``perdure trace``: what goes between the broker and one client, or about one topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from perdure.admin.records.trace import (
    SECONDS_MAX,
    ListTraces,
    ReadTrace,
    StartTrace,
    StopTrace,
    TraceEvent,
    TraceKind,
)
from perdure.cli.admin_client import AdminClient
from perdure.cli.data import data_options
from perdure.cli.output import Column, Output, encode, output_options
from perdure.cli.running_broker import running_broker
from perdure.observe.printable import printable

POLL_S: Final = 0.5
EVENT_COLUMNS: Final = (
    *("number", "at", "client_id", "event", "topic", "qos", "packet_id"),
    *("payload_bytes", "payload", "reason_code", "detail"),
)
_SAID: Final = ("number", "at", "at_us", "client_id", "event", "topic")


@click.group()
def command() -> None:
    """Watch what goes between the broker and one client, or about one topic.

    \b
    Examples:
      perdure trace client pump-7
      perdure trace topic 'plant/+/alarm' --seconds 300 --to alarm.jsonl
      perdure trace list
    """


def _options(function: Any) -> Any:
    function = data_options(function)
    function = click.option(
        "--to", type=click.Path(dir_okay=False, writable=True, path_type=Path),
        help="Also write the events to a file, a line of JSON each.",
    )(function)  # fmt: skip
    function = click.option("--payloads", is_flag=True, help="Show 256 bytes of each payload.")(
        function
    )
    return click.option(
        "--seconds", "-s", type=click.IntRange(1, SECONDS_MAX), default=60, show_default=True,
        help="How long; the trace ends by itself then, whatever happens to this command.",
    )(function)  # fmt: skip


@command.command()
@click.argument("client_id")
@_options
def client(client_id: str, data: Path, seconds: int, payloads: bool, to: Path | None) -> None:
    """Everything between the broker and one client, connected or not yet.

    \b
    Examples:
      perdure trace client pump-7 --seconds 30 --payloads
    """
    _follow("client", client_id, data, seconds=seconds, payloads=payloads, to=to)


@command.command()
@click.argument("topic_filter")
@_options
def topic(topic_filter: str, data: Path, seconds: int, payloads: bool, to: Path | None) -> None:
    """Messages on the topics of a filter: who publishes, who is sent them, who acknowledges.

    Listens to all connections, 1,000 at most; where there are more, trace a client.

    \b
    Examples:
      perdure trace topic 'plant/+/alarm'
    """
    _follow("topic", topic_filter, data, seconds=seconds, payloads=payloads, to=to)


@command.command("list")
@data_options
@output_options
def list_traces(data: Path, out: Output) -> None:
    """Traces that run, and the last ones that did.

    \b
    Examples:
      perdure trace list --json
    """
    with running_broker(data) as client:
        rows = [msgspec.to_builtins(row) for row in client.call(ListTraces()).items]
    columns = ("id", "kind", "value", "running", "events", "lost")
    out.rows([Column(name) for name in columns], rows)


@command.command("show")
@data_options
@click.argument("trace_id", metavar="ID")
@output_options
def show_trace(data: Path, trace_id: str, out: Output) -> None:
    """What a trace has seen so far: the last 10,000 events, oldest first.

    \b
    Examples:
      perdure trace show 1f2e3d4c
      perdure trace show 1f2e3d4c --output jsonl
    """
    with running_broker(data) as client:
        out.rows([Column(name) for name in EVENT_COLUMNS], _events(client, trace_id))


@command.command("stop")
@data_options
@click.argument("trace_id", metavar="ID")
def stop_trace(data: Path, trace_id: str) -> None:
    """End a trace that somebody has begun; what it has seen is kept.

    \b
    Examples:
      perdure trace stop 1f2e3d4c
    """
    with running_broker(data) as client:
        client.call(StopTrace(trace_id=trace_id))


def _events(client: AdminClient, trace_id: str) -> Iterator[dict[str, Any]]:
    """The events of a trace, a page at a time."""
    after = 0
    while (page := client.call(ReadTrace(trace_id=trace_id, after=after))).items:
        for event in page.items:
            yield msgspec.to_builtins(event)
        after = page.items[-1].number


def _follow(
    kind: TraceKind, value: str, data: Path, *, seconds: int, payloads: bool, to: Path | None
) -> None:
    with running_broker(data) as client:
        trace = client.call(StartTrace(kind=kind, value=value, seconds=seconds, payloads=payloads))
        after = 0
        file = to.open("w", encoding="utf-8") if to is not None else None
        try:
            while True:
                page = client.call(ReadTrace(trace_id=trace.id, after=after))
                for event in page.items:
                    click.echo(line(event))
                    if file is not None:
                        file.write(encode(event) + "\n")
                if page.items:
                    after = page.items[-1].number
                elif not page.trace.running:
                    return
                else:
                    time.sleep(POLL_S)
        except KeyboardInterrupt:
            client.call(StopTrace(trace_id=trace.id))
            raise
        finally:
            if file is not None:
                file.close()


def line(event: TraceEvent) -> str:
    """An event for people."""
    fields = msgspec.to_builtins(event)
    rest = " ".join(
        f"{name}={printable(str(value))}"
        for name, value in fields.items()
        if value is not None and name not in _SAID
    )
    where = f" {printable(event.topic)}" if event.topic else ""
    return f"{event.at} {printable(event.client_id)} {event.event}{where} {rest}".rstrip()
