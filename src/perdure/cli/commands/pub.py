"""``perdure pub``: publishes messages, with mosquitto_pub's options."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import click

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.mqtt_options import (
    ClientOptions,
    MqttCommand,
    make_client,
    mqtt_options,
    resolve_url,
)
from perdure.cli.mqtt_session import Interrupted, connect, ends_on_signals, unavailable
from perdure.cli.mqtt_syntax import check_topic
from perdure.cli.output import Output, error_line, output_options
from perdure.errors import MqttError
from perdure.mqtt import reason_codes
from perdure.mqtt.client_events import Published
from perdure.mqtt.packets import PUBACK
from perdure.net.client import Client
from perdure.server import process

READ_BYTES = 1 << 16
BURST = 256
"""Messages between two looks at the socket."""


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What to publish."""

    topic: str
    qos: int
    retain: bool
    payload: bytes | None
    """None: each line of standard input."""
    repeat: int
    repeat_delay_s: float


@click.command(cls=MqttCommand, context_settings={"help_option_names": ["--help"]})
@mqtt_options
@click.option("-t", "--topic", default="", metavar="TOPIC", help="Topic to publish to.")
@click.option("-m", "--message", metavar="TEXT", help="Payload.")
@click.option("-f", "--file", type=click.Path(path_type=Path), help="Send the content of a file.")
@click.option("-l", "--stdin-line", "lines", is_flag=True, help="Send each line of stdin.")
@click.option("-s", "--stdin-file", "stdin", is_flag=True, help="Send all of stdin.")
@click.option("-n", "--null-message", "null", is_flag=True, help="Send an empty payload.")
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=0, help="QoS.")
@click.option("-r", "--retain", is_flag=True, help="Retain the message.")
@click.option("--repeat", type=click.IntRange(1), default=1, metavar="N", help="Send it N times.")
@click.option("--repeat-delay", "repeat_delay_s", type=click.FloatRange(0), default=0.0,
              metavar="SECONDS", help="Pause between repeats.")  # fmt: skip
@output_options
def command(
    options: ClientOptions,
    out: Output,
    topic: str,
    message: str | None,
    file: Path | None,
    lines: bool,
    stdin: bool,
    null: bool,
    qos: int,
    retain: bool,
    repeat: int,
    repeat_delay_s: float,
) -> int:
    """Publish to a broker and wait until it has what was sent.

    -D PACKET PROPERTY VALUE sets an MQTT 5.0 property (-D publish user-property KEY VALUE).
    Exit code 69 means that the broker is not there or refused something; --json says why.

    \b
    Examples:
      perdure pub -t devices/7/temperature -m 21.5 -q 1
      perdure pub -t line -l -q 1 < measurements
      perdure pub -L mqtts://ada@broker/a/b --cafile ca.pem --password-file pw -f picture.jpg
      perdure pub -t a -m x -D publish message-expiry-interval 60
    """
    if sum([message is not None, file is not None, lines, stdin, null]) != 1:
        raise click.UsageError("take one of -m, -f, -l, -s and -n")
    if lines and repeat > 1:
        raise click.UsageError("--repeat goes with -m, -f, -s or -n")
    if (lines or stdin) and str(options.password_file) == "-":
        raise click.UsageError("standard input cannot be both password and message")
    options, url_topic = resolve_url(options)
    topic = topic or url_topic
    if not topic:
        raise click.UsageError("name a topic with -t")
    check_topic(topic, "-t")
    payload = None if lines else _payload(message, file, stdin)
    plan = Plan(topic, qos, retain, payload, repeat, repeat_delay_s)
    client = make_client(options)
    return process.run(_publish(client, options, plan, out))


def _payload(message: str | None, file: Path | None, stdin: bool) -> bytes:
    if message is not None:
        return os.fsencode(message)
    if stdin:
        return sys.stdin.buffer.read()
    if file is None:
        return b""
    try:
        return file.read_bytes()
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}", ExitCode.DATA) from error


async def _publish(client: Client, options: ClientOptions, plan: Plan, out: Output) -> int:
    await connect(client, out, timeout_s=options.connect_timeout_s)
    tally = Tally()
    try:
        async with ends_on_signals():
            await _send_all(client, options, plan, tally)
    except (MqttError, OSError) as error:
        raise unavailable(client, out, error) from error
    except Interrupted as interrupted:
        return 128 + interrupted.number
    finally:
        await client.disconnect(properties=options.properties.disconnect)
    if out.is_json:
        out.record(tally.record(client, plan))
    for code, count in sorted(tally.refused.items()):
        name = reason_codes.name(code, PUBACK)
        error_line(f"{count} not accepted: {name} (reason code {code:#04x})")
    return ExitCode.UNAVAILABLE if tally.refused else ExitCode.OK


async def _send_all(client: Client, options: ClientOptions, plan: Plan, tally: Tally) -> None:
    """Post every message, with a bounded number unsettled, and wait for the last."""
    settled = asyncio.Event()

    def count(future: asyncio.Future[Published]) -> None:
        if not future.cancelled():
            tally.settle(future.result())
        settled.set()

    async for payload in _payloads(plan):
        try:
            future = client.post(
                plan.topic, payload, plan.qos, plan.retain, options.properties.publish
            )
        except MqttError as error:
            tally.refuse(error.reason_code)
            continue
        tally.sent += 1
        future.add_done_callback(count)
        if tally.sent % BURST == 0 or plan.repeat_delay_s:
            await client.drain()
        await _settle(client, tally, settled, unsettled_max=2 * options.inflight_max)
    await client.drain()
    client.check_connected()
    await _settle(client, tally, settled, unsettled_max=0)


async def _settle(
    client: Client, tally: Tally, settled: asyncio.Event, *, unsettled_max: int
) -> None:
    """Wait until no more than ``unsettled_max`` messages are open."""
    while tally.unsettled > unsettled_max:
        settled.clear()
        waiting = asyncio.ensure_future(settled.wait())
        try:
            await client.until_lost(waiting)
        finally:
            waiting.cancel()


async def _payloads(plan: Plan) -> AsyncIterator[bytes]:
    if plan.payload is None:
        async for line in stdin_lines():
            yield line
        return
    for number in range(plan.repeat):
        if number and plan.repeat_delay_s:
            await asyncio.sleep(plan.repeat_delay_s)
        yield plan.payload


async def stdin_lines() -> AsyncIterator[bytes]:
    """The lines of standard input, without their ends, as they come.

    A thread reads: the connection must be kept alive while nobody types. It is a daemon, since
    nothing can wake it from a terminal when the connection is lost.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    taken = threading.Semaphore(8)

    def read() -> None:
        try:
            descriptor = sys.stdin.fileno()
        except (OSError, ValueError):
            descriptor = -1
        while True:
            taken.acquire()
            if descriptor >= 0:
                # Not through the buffered reader, whose lock would be held at exit.
                chunk = os.read(descriptor, READ_BYTES)
            else:
                chunk = sys.stdin.buffer.read(READ_BYTES)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            if not chunk:
                return

    threading.Thread(target=read, daemon=True, name="stdin").start()
    rest = b""
    while chunk := await chunks.get():
        taken.release()
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


@final
class Tally:
    """What became of the messages."""

    def __init__(self) -> None:
        self.sent = 0
        self.refused: Counter[int] = Counter()
        self.reasons: Counter[int] = Counter()
        self._settled = 0

    @property
    def unsettled(self) -> int:
        """Messages posted and not yet settled."""
        return self.sent - self._settled

    def settle(self, published: Published) -> None:
        """Count one outcome."""
        self._settled += 1
        self.reasons[published.reason] += 1
        if published.reason >= reason_codes.UNSPECIFIED_ERROR:
            self.refused[published.reason] += 1

    def refuse(self, code: int) -> None:
        """Count a message that the server is known not to take."""
        self.reasons[code] += 1
        self.refused[code] += 1

    def record(self, client: Client, plan: Plan) -> dict[str, Any]:
        """The outcome as JSON has it."""
        return {
            "client_id": client.protocol.client_id,
            "topic": plan.topic,
            "qos": plan.qos,
            "sent": self.sent,
            "refused": sum(self.refused.values()),
            "reason_codes": {str(code): count for code, count in sorted(self.reasons.items())},
        }
