"""``perdure sub``: subscribes and prints messages, with mosquitto_sub's options.

Invariant: a message of a kept session is acknowledged only after it was written to standard
output, so a reader that dies loses nothing that the broker will not send again.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from dataclasses import dataclass
from typing import Any, BinaryIO, final

import click

from perdure.cli import message_format
from perdure.cli.exit_codes import ExitCode
from perdure.cli.message_format import BadPayload, Printer, compile_format, message_record
from perdure.cli.mqtt_options import (
    ClientOptions,
    MqttCommand,
    make_client,
    mqtt_options,
    resolve_url,
)
from perdure.cli.mqtt_session import Interrupted, connect, ends_on_signals, unavailable
from perdure.cli.mqtt_syntax import check_filter, check_replay_time
from perdure.cli.output import Output, encode, error_line, output_options
from perdure.cli.reconnect import PAUSE_FIRST_S, Backoff, is_final
from perdure.errors import MqttError
from perdure.mqtt import reason_codes
from perdure.mqtt.packets import EMPTY, SUBACK, Properties, Publish, SubscribeFilter
from perdure.mqtt.reason_codes import SESSION_TAKEN_OVER
from perdure.net.client import Client
from perdure.server import process
from perdure.topic.matching import matches


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to subscribe to and what to do with messages."""

    filters: tuple[str, ...]
    unsubscribe: tuple[str, ...]
    filter_out: tuple[str, ...]
    qos: int
    count: int
    timeout_s: float
    exit_after_subscribe: bool
    ignore_retained: bool
    retained_only: bool
    remove_retained: bool
    no_local: bool
    retain_as_published: bool
    replay_from: str
    reconnect: bool
    insist: bool
    newline: bytes
    print: Printer


@click.command(cls=MqttCommand, context_settings={"help_option_names": ["--help"]})
@mqtt_options
@click.option("-t", "--topic", "filters", multiple=True, metavar="FILTER",
              help="Topic filter; may be repeated.")  # fmt: skip
@click.option("-U", "--unsubscribe", multiple=True, metavar="FILTER", help="Unsubscribe first.")
@click.option("-T", "--filter-out", multiple=True, metavar="FILTER", help="Do not print these.")
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=0, help="QoS.")
@click.option("-C", "count", type=click.IntRange(1), metavar="N", help="Exit after N messages.")
@click.option("-W", "timeout_s", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
              help="Exit so long after subscribing; with -C and too few messages: exit code 1."
              )  # fmt: skip
@click.option("-E", "exit_after_subscribe", is_flag=True, help="Exit once subscribed.")
@click.option("-R", "ignore_retained", is_flag=True, help="Do not print retained messages.")
@click.option("--retained-only", is_flag=True, help="Exit at the first message not retained.")
@click.option("--remove-retained", is_flag=True, help="Clear the retained messages received.")
@click.option("--no-local", is_flag=True, help="Not what this client publishes (5.0).")
@click.option("--retain-as-published", is_flag=True, help="Keep the retain flag (5.0).")
@click.option("--replay-from", default="", metavar="TIME",
              help="Also what was recorded since TIME (RFC 3339, or microseconds)."
              )  # fmt: skip
@click.option("--no-reconnect", is_flag=True, help="Exit when the connection is lost.")
@click.option(
    "--insist",
    is_flag=True,
    help="Connect again when another client has taken the session over, too.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print the topic before the payload.")
@click.option("-F", "format_text", metavar="FORMAT", help="Print by a format: %t %p %j %I @H \\n.")
@click.option("-N", "no_newline", is_flag=True, help="No line end after a message.")
@output_options
def command(
    options: ClientOptions,
    out: Output,
    filters: tuple[str, ...],
    count: int | None,
    timeout_s: float | None,
    no_reconnect: bool,
    verbose: bool,
    format_text: str | None,
    no_newline: bool,
    **rest: Any,
) -> int:
    """Subscribe and print messages as they come.

    A lost connection is made again, after pauses of up to 30 s if it does not last. What would
    fail again is not tried again: credentials, a client identifier or a filter that the broker
    refuses, and a session that another client with the same identifier has taken over.

    With -c (and -i) the session is kept, and a message is acknowledged after it was printed. -F
    takes mosquitto_sub's sequences; --json prints one object for each message. -D PACKET PROPERTY
    VALUE sets an MQTT 5.0 property.

    \b
    Examples:
      perdure sub -t 'devices/+/temperature' -v
      perdure sub -t 'devices/#' -q 1 -i cellar -c -F '%I %t %p'
      perdure sub -t 'alarms/#' -C 1 -W 10 --json
      perdure sub -t 'devices/+/temperature' --replay-from 2026-01-31T00:00:00Z
    """
    options, url_topic = resolve_url(options)
    if url_topic:
        filters = (*filters, url_topic)
    if not filters and not rest["unsubscribe"]:
        raise click.UsageError("name a topic filter with -t")
    if (verbose or format_text is not None) and out.is_json:
        raise click.UsageError("take one of -v, -F and --json")
    if rest["ignore_retained"] and (rest["retained_only"] or rest["remove_retained"]):
        raise click.UsageError("-R does not go with --retained-only or --remove-retained")
    if not options.is_v5 and (rest["no_local"] or rest["retain_as_published"]):
        raise click.UsageError("--no-local and --retain-as-published need MQTT 5.0")
    for option, given in (("-t", filters), ("-U", rest["unsubscribe"]), ("-T", rest["filter_out"])):
        for topic_filter in given:
            check_filter(topic_filter, option)
    if rest["no_local"] and any(name.startswith("$share/") for name in filters):
        raise click.UsageError("--no-local does not go with a shared subscription")
    check_replay_time(rest["replay_from"])
    plan = Plan(
        filters=filters,
        count=count or 0,
        timeout_s=timeout_s or 0.0,
        reconnect=not no_reconnect,
        newline=b"" if no_newline and not out.is_json else b"\n",
        print=_printer(out, format_text, verbose=verbose),
        **rest,
    )
    client = make_client(options, manual_acks=_keeps_session(options))
    return process.run(Subscriber(client, options, plan, out, sys.stdout.buffer).run())


def _keeps_session(options: ClientOptions) -> bool:
    return options.keep_session or options.expiry_s > 0


def _printer(out: Output, format_text: str | None, *, verbose: bool) -> Printer:
    if format_text is not None:
        return compile_format(format_text)
    if verbose:
        return message_format.verbose
    if out.is_json:
        return lambda publish, at_ns: encode(message_record(publish, at_ns)).encode()
    return message_format.payload_only


@final
class Subscriber:
    """One run of the command."""

    def __init__(
        self, client: Client, options: ClientOptions, plan: Plan, out: Output, stdout: BinaryIO
    ) -> None:
        self._client = client
        self._options = options
        self._plan = plan
        self._out = out
        self._stdout = stdout
        self._printed = 0
        self._failed = False
        self._is_subscribed = False
        # No secret: it keeps clients apart.
        self._backoff = Backoff(random.Random(), first_s=PAUSE_FIRST_S)  # noqa: S311

    async def run(self) -> int:
        """Subscribe, print, and say how it ended."""
        try:
            async with ends_on_signals(), asyncio.timeout(None) as self._limit:
                await self._follow()
        except TimeoutError:
            if not self._limit.expired():
                raise
            if not self._is_subscribed:
                unanswered = TimeoutError("SUBSCRIBE was not answered")
                raise unavailable(self._client, self._out, unanswered) from None
            unmet = self._plan.count and self._printed < self._plan.count
            return ExitCode.EXPECTATION if unmet else ExitCode.OK
        except Interrupted as interrupted:
            return 128 + interrupted.number
        finally:
            await self._client.disconnect(properties=self._options.properties.disconnect)
        return ExitCode.UNAVAILABLE if self._failed else ExitCode.OK

    async def _follow(self) -> None:
        """Connect, subscribe and print, again after each loss."""
        connected = await connect(
            self._client, self._out, timeout_s=self._options.connect_timeout_s
        )
        if self._plan.timeout_s:
            self._end_in(max(self._plan.timeout_s, self._options.connect_timeout_s))
        resumed = False
        while True:
            begun_s = time.monotonic()
            try:
                if not (resumed and connected.session_present) and await self._subscribe():
                    return
                await self._print_messages()
                return
            except (MqttError, OSError) as error:
                self._give_up_if_final(error)
                self._backoff.connected(time.monotonic() - begun_s)
                lost = error
            if _keeps_session(self._options):
                self._client.forget_unacknowledged()
            connected = await self._reconnect(lost)
            resumed = True

    def _end_in(self, seconds: float) -> None:
        self._limit.reschedule(asyncio.get_running_loop().time() + seconds)

    def _give_up_if_final(self, error: MqttError | OSError) -> None:
        """End the command unless connecting again may help."""
        taken_over = isinstance(error, MqttError) and error.reason_code == SESSION_TAKEN_OVER
        if self._plan.reconnect:
            if taken_over and self._plan.insist:
                return
            if not is_final(error, self._options.version):
                return
        if taken_over:
            client_id = self._client.protocol.client_id
            self._notice(
                f"another client has connected with the client identifier {client_id!r} and has "
                "the session now; --insist connects again"
            )
        raise unavailable(self._client, self._out, error) from error

    async def _reconnect(self, lost: MqttError | OSError) -> Any:
        while True:
            pause_s = self._backoff.pause_s()
            self._notice(f"connection lost: {_reason(lost)}; connecting again in {pause_s:.1f} s")
            await self._client.wait_closed()
            await asyncio.sleep(pause_s)
            try:
                return await self._client.connect(timeout_s=self._options.connect_timeout_s)
            except (MqttError, OSError) as error:
                self._give_up_if_final(error)
                lost = error

    async def _subscribe(self) -> bool:
        """Subscribe; true if that was all there is to do."""
        plan, properties = self._plan, self._options.properties
        if plan.unsubscribe:
            await self._client.unsubscribe(list(plan.unsubscribe), properties.unsubscribe)
        granted = 0
        if plan.filters:
            answer = await self._client.subscribe(self._filters(), self._subscribe_properties())
            for topic_filter, code in zip(plan.filters, answer.reasons, strict=True):
                if code < reason_codes.UNSPECIFIED_ERROR:
                    granted += 1
                    continue
                name = reason_codes.name(code, SUBACK)
                if self._out.is_json:
                    self._out.record({"error": name, "reason_code": code, "filter": topic_filter})
                error_line(f"{topic_filter}: {name} (reason code {code:#04x})")
            self._failed = granted < len(plan.filters)
            if not granted:
                error_line("the broker has refused all filters")
        self._subscribed()
        return plan.exit_after_subscribe or not granted

    def _subscribed(self) -> None:
        """The broker has answered: the time of -W begins, once."""
        if self._plan.timeout_s and not self._is_subscribed:
            self._end_in(self._plan.timeout_s)
        self._is_subscribed = True

    def _filters(self) -> list[SubscribeFilter]:
        plan = self._plan
        prefix = ""
        if plan.replay_from and not self._options.is_v5:
            prefix = f"$replay/{plan.replay_from}/"
        return [
            SubscribeFilter(
                prefix + topic_filter, plan.qos, plan.no_local, plan.retain_as_published, 0
            )
            for topic_filter in plan.filters
        ]

    def _subscribe_properties(self) -> Properties:
        properties = self._options.properties.subscribe
        if not self._plan.replay_from or not self._options.is_v5:
            return properties
        properties = EMPTY.copy() if properties is EMPTY else properties.copy()
        pair = ("replay-from", self._plan.replay_from)
        properties.user_properties = (*properties.user_properties, pair)
        return properties

    async def _print_messages(self) -> None:
        """Print until the count is reached; what was printed is acknowledged."""
        while batch := await self._client.next_batch():
            at_ns = time.time_ns()
            done: list[Publish] = []
            finished = False
            for publish in batch:
                finished = self._take(publish, at_ns)
                if finished:
                    if not self._plan.retained_only or publish.retain:
                        done.append(publish)
                    break
                done.append(publish)
            self._stdout.flush()
            for publish in done:
                if publish.qos:
                    self._client.ack(publish)
            if finished:
                return

    def _take(self, publish: Publish, at_ns: int) -> bool:
        """Print one message; true if nothing more is wanted."""
        plan = self._plan
        if plan.retained_only and not publish.retain:
            return True
        if any(matches(topic_filter, publish.topic) for topic_filter in plan.filter_out):
            return False
        if publish.retain and plan.remove_retained:
            self._client.post(publish.topic, b"", plan.qos, True)
        if publish.retain and plan.ignore_retained:
            return False
        try:
            line = plan.print(publish, at_ns)
        except BadPayload as error:
            error_line(f"{publish.topic}: {error}")
            return False
        self._stdout.write(line + plan.newline)
        self._printed += 1
        return self._printed == plan.count

    def _notice(self, text: str) -> None:
        if not self._options.quiet:
            click.echo(f"perdure: {text}", err=True)


def _reason(error: MqttError | OSError) -> str:
    if isinstance(error, MqttError):
        return error.message or reason_codes.name(error.reason_code)
    return error.strerror or str(error)
