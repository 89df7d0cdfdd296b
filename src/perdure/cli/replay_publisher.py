"""Publishes what a replay gives, in its order, and waits until the broker has it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Final, final

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.mqtt_options import ClientOptions, make_client
from perdure.cli.mqtt_session import connect, reason_name, unavailable
from perdure.cli.output import Output, error_line
from perdure.cli.reconnect import Backoff, is_final
from perdure.config.units import format_time
from perdure.errors import MqttError
from perdure.model import Message
from perdure.mqtt.encode import forward_properties, properties_from_forward
from perdure.mqtt.packets import Properties
from perdure.mqtt.reason_codes import NO_MATCHING_SUBSCRIBERS, UNSPECIFIED_ERROR
from perdure.net.client import Client

OFFSET_PROPERTY: Final = "perdure-offset"
TIME_PROPERTY: Final = "perdure-published-at"
PUBLISHER_PROPERTY: Final = "perdure-client-id"
"""User properties that tell what a message was: its offset is its identity."""

BATCH: Final = 1_024
"""Messages that are sent before the broker must have acknowledged all of them."""
_RATE_STEPS: Final = 10
"""Batches in a second, where a rate is asked for."""


@final
class Publisher:
    """A client that comes again when its connection is lost.

    Args:
        options: of the client.
        out: for what goes wrong.
        prefix: before the topics.
        qos_max: highest QoS.
        rate: most messages a second; 0 = as fast as the broker takes them.
    """

    def __init__(
        self, options: ClientOptions, out: Output, *, prefix: str, qos_max: int, rate: int
    ) -> None:
        self._options = options
        self._out = out
        self._prefix = prefix
        self._qos_max = qos_max
        self._rate = rate
        self._client: Client | None = None
        self._backoff = Backoff(random.Random())  # noqa: S311
        self._connected_s = 0.0
        self._next_s = 0.0
        self.sent = 0
        self.bytes = 0
        self.unheard = 0
        """Messages that nobody had subscribed to."""

    @property
    def batch_messages(self) -> int:
        """Messages that ``publish`` takes best."""
        return min(max(self._rate // _RATE_STEPS, 1), BATCH) if self._rate else BATCH

    async def open(self) -> None:
        """Connect, or end the command.

        Raises:
            CommandFailed: the broker is not there, or refuses.
        """
        client = make_client(self._options)
        await connect(client, self._out, timeout_s=self._options.connect_timeout_s)
        self._client, self._connected_s = client, time.monotonic()

    async def publish(self, messages: Sequence[Message]) -> None:
        """Publish messages; when this returns, the broker has them.

        A connection that breaks is made again, and all of ``messages`` sent again.

        Raises:
            CommandFailed: the broker refuses a message, or us.
        """
        await self._wait_for_rate(len(messages))
        while True:
            try:
                if self._client is None:
                    client = make_client(self._options)
                    await client.connect(timeout_s=self._options.connect_timeout_s)
                    self._client, self._connected_s = client, time.monotonic()
                await self._send(self._client, messages)
            except (MqttError, OSError) as error:
                await self._lost(error)
                continue
            self.sent += len(messages)
            self.bytes += sum(len(message.payload) for message in messages)
            return

    async def close(self) -> None:
        """Say goodbye."""
        if self._client is not None:
            await self._client.disconnect(properties=self._options.properties.disconnect)

    async def _lost(self, error: MqttError | OSError) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.abort()
            await client.wait_closed()
            self._backoff.connected(time.monotonic() - self._connected_s)
        if is_final(error, self._options.version):
            raise unavailable(client or make_client(self._options), self._out, error) from error
        pause_s = self._backoff.pause_s()
        if not self._options.quiet:
            error_line(f"the connection is lost ({error}); again in {pause_s:.1f} s")
        await asyncio.sleep(pause_s)

    async def _wait_for_rate(self, count: int) -> None:
        if not self._rate:
            return
        now_s = time.monotonic()
        await asyncio.sleep(max(self._next_s - now_s, 0.0))
        self._next_s = max(self._next_s, now_s) + count / self._rate

    async def _send(self, client: Client, messages: Sequence[Message]) -> None:
        settled = []
        for message in messages:
            qos = min(message.qos, self._qos_max)
            properties = _properties(message)
            settled.append(
                client.post(
                    self._prefix + message.topic, message.payload, qos, properties=properties
                )
            )
        await client.drain()
        published = await client.until_lost(asyncio.gather(*settled))
        client.check_connected()
        for message, each in zip(messages, published, strict=True):
            if each.reason >= UNSPECIFIED_ERROR:
                raise CommandFailed(
                    f"the broker refuses {self._prefix}{message.topic}: "
                    f"{reason_name(client, each.reason)} (reason code {each.reason:#04x})",
                    ExitCode.UNAVAILABLE,
                )
            self.unheard += each.reason == NO_MATCHING_SUBSCRIBERS


def _properties(message: Message) -> Properties:
    """Its own, and what it was."""
    told = [(OFFSET_PROPERTY, str(message.offset))]
    if published_at := format_time(message.published_at_us):
        told.append((TIME_PROPERTY, published_at))
    told.append((PUBLISHER_PROPERTY, message.publisher))
    return properties_from_forward(
        message.properties + forward_properties(Properties(user_properties=tuple(told)))
    )
