"""MQTT clients that come back: a publisher that gives up nothing, a collector that misses nothing.

For tests in which brokers are killed: both connect again until they have what they want.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import NamedTuple, final

from perdure.errors import MqttError
from perdure.mqtt.client_events import Published
from perdure.mqtt.client_protocol import ClientProtocol
from perdure.mqtt.packets import Properties, Publish, SubscribeFilter
from perdure.net.client import Client
from perdure.net.client_link import Endpoint
from tests.support.bounds import HANG_S

RETRY_S = 0.05
_KEPT = Properties(session_expiry_interval=3600)


@final
class Post(NamedTuple):
    """A message to publish."""

    topic: str
    payload: bytes
    qos: int


def _client(port: int, client_id: str, version: int) -> Client:
    protocol = ClientProtocol(
        client_id=client_id,
        version=version,
        clean_start=False,
        properties=_KEPT if version == 5 else Properties(),
    )
    return Client(protocol, Endpoint(host="127.0.0.1", port=port))


async def _connected(client: Client) -> None:
    while True:
        try:
            await client.connect(timeout_s=HANG_S)
        except (OSError, MqttError):
            await asyncio.sleep(RETRY_S)
        else:
            return


async def publish_all(
    port: int, posts: Sequence[Post], *, client_id: str = "publisher", at_once: int = 20
) -> None:
    """Publish messages in order until each is settled, through any number of connections."""
    client = _client(port, client_id, 5)
    settled = 0
    futures: list[asyncio.Future[Published]] = []
    while settled < len(posts):
        if not client.is_connected:
            await _connected(client)
        while len(futures) < len(posts) and len(futures) < settled + at_once:
            post = posts[len(futures)]
            with contextlib.suppress(OSError, MqttError):
                futures.append(client.post(*post))
        try:
            await client.until_lost(futures[settled])
        except (OSError, MqttError):
            await client.wait_closed()
            continue
        settled += 1
    await client.disconnect()


@final
class Collector:
    """A durable subscriber that takes all that it is sent, from one broker.

    Attributes:
        messages: what came, in order.
    """

    def __init__(
        self, port: int, topic_filter: str, *, client_id: str = "collector", version: int = 5
    ) -> None:
        self._client = _client(port, client_id, version)
        self._filter = topic_filter
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.messages: list[Publish] = []

    async def start(self) -> None:
        """Subscribe, and take from now on."""
        await _connected(self._client)
        await self._client.subscribe([SubscribeFilter(self._filter, 2)])
        self._task = asyncio.create_task(self._take())

    async def until(self, count: int) -> None:
        """Wait until so many different payloads have come.

        Raises:
            TimeoutError: they have not.
        """
        async with asyncio.timeout(HANG_S):
            while len({each.payload for each in self.messages}) < count:
                self._changed.clear()
                await self._changed.wait()

    async def stop(self) -> None:
        """Take nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._client.abort()
        await self._client.wait_closed()

    async def _take(self) -> None:
        while True:
            try:
                self.messages += await self._client.next_batch()
                self._changed.set()
            except (OSError, MqttError):
                await self._client.wait_closed()
                await _connected(self._client)
