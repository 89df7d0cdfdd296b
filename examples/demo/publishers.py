"""Publishers on paho-mqtt and aiomqtt that go on after the broker died.

The client library keeps what is not acknowledged and sends it again after the reconnect. A
publisher sends nothing new until the library has done so: a new message sent in between would
overtake the old ones, and the disorder would be the client's.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Iterator
from typing import Protocol

import aiomqtt
import paho.mqtt.client as paho
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from examples.demo.broker import Subject
from examples.demo.clients import (
    WINDOW,
    PahoConnection,
    aiomqtt_client,
    now_us,
)
from examples.demo.plan import PAYLOAD_BYTES, Publishing
from tests.support.delivery import Ledger, Stamp

NOWHERE = "demo/nowhere"
IDENTIFIER_NOT_FOUND = 0x92


class Publisher(Protocol):
    """What the demo needs of each."""

    refused: list[str]

    @property
    def done(self) -> bool:
        """Everything was sent and answered."""
        ...

    async def start(self) -> None:
        """Begin to publish in the background."""
        ...

    async def stop(self) -> None:
        """Disconnect."""
        ...


class PahoPublisher:
    """Publishes from paho's network thread: each acknowledgement makes room for a message."""

    def __init__(
        self, plan: Publishing, topics: Iterator[str], ledger: Ledger, broker: Subject
    ) -> None:
        self.refused: list[str] = []
        self._plan = plan
        self._topics = topics
        self._ledger = ledger
        self._under_way: dict[int, tuple[str, Stamp]] = {}
        self._exhausted = False
        self._settling = False
        self._connection = PahoConnection(plan.name, plan.protocol, broker)
        self._client = self._connection.client
        self._client.on_connect = self._on_connect
        self._client.on_publish = self._on_publish

    @property
    def done(self) -> bool:
        """Everything was sent and answered."""
        return self._exhausted and not self._under_way

    async def start(self) -> None:
        """Connect; the callbacks do the rest."""
        self._connection.start()

    async def stop(self) -> None:
        """Disconnect."""
        await self._connection.stop()

    def _on_connect(
        self,
        client: paho.Client,
        userdata: object,
        flags: paho.ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        # This runs before paho sends again what is under way.
        self._settling = bool(self._under_way)
        if not self._settling:
            self._fill()

    def _on_publish(
        self,
        client: paho.Client,
        userdata: object,
        packet_id: int,
        reason: ReasonCode,
        properties: Properties,
    ) -> None:
        topic, stamp = self._under_way.pop(packet_id)
        # The end of a QoS 2 exchange that the broker had ended before the kill: no error.
        is_ended = self._plan.qos == 2 and reason.value == IDENTIFIER_NOT_FOUND
        if reason.is_failure and not is_ended:
            self.refused.append(f"{self._plan.name}: {topic}: {reason}")
        else:
            self._ledger.acknowledge(topic, stamp, at_us=now_us())
        if self._settling and self._under_way:
            return
        self._settling = False
        self._fill()

    def _fill(self) -> None:
        while len(self._under_way) < WINDOW:
            topic = next(self._topics, None)
            if topic is None:
                self._exhausted = True
                return
            name, qos = self._plan.name, self._plan.qos
            stamp = self._ledger.send(name, topic, qos=qos, at_us=now_us())
            sent = self._client.publish(topic, stamp.encode(PAYLOAD_BYTES), qos=qos)
            self._under_way[sent.mid] = (topic, stamp)


class AiomqttPublisher:
    """Publishes with one task for each message under way."""

    def __init__(
        self, plan: Publishing, topics: Iterator[str], ledger: Ledger, broker: Subject
    ) -> None:
        self.refused: list[str] = []
        self._plan = plan
        self._topics = topics
        self._ledger = ledger
        self._broker = broker
        self._under_way: set[asyncio.Task[None]] = set()
        self._exhausted = False
        self._is_cut = False
        self._returned: deque[str] = deque()
        self._changed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    @property
    def done(self) -> bool:
        """Everything was sent and answered."""
        return self._exhausted and not self._under_way and not self._returned

    async def start(self) -> None:
        """Begin to publish in the background."""
        self._running = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Disconnect, and end what hangs."""
        tasks = [task for task in (self._running, *self._under_way) if task is not None]
        if not self.done:
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        client = aiomqtt_client(self._plan.name, self._plan.protocol, self._broker)
        while not self.done:
            await self._broker.listening.wait()
            # After a lost connection the same client comes back: it holds what is under way, and
            # its publish() calls still wait for their acknowledgements.
            with contextlib.suppress(aiomqtt.MqttError):
                async with client:
                    await self._publish(client)

    async def _publish(self, client: aiomqtt.Client) -> None:
        cut = asyncio.create_task(self._wait_for_cut(client))
        cut.add_done_callback(lambda _: self._changed.set())
        try:
            # An answer to anything says that CONNACK came and that the library has sent again
            # what was under way; entering a client for the second time does not wait for it.
            await client.unsubscribe(NOWHERE)
            self._is_cut = False
            while not self.done and not cut.done():
                self._changed.clear()
                self._fill(client)
                if not self.done:
                    await self._changed.wait()
            if cut.done():
                cut.result()
        finally:
            cut.cancel()

    async def _wait_for_cut(self, client: aiomqtt.Client) -> None:
        async for _ in client.messages:
            pass

    def _fill(self, client: aiomqtt.Client) -> None:
        while len(self._under_way) < WINDOW and not self._is_cut:
            topic = self._returned.popleft() if self._returned else next(self._topics, None)
            if topic is None:
                self._exhausted = True
                return
            # Tasks begin in the order in which they are made, and aiomqtt hands the packet to the
            # socket before it first waits: the order of the numbers is the order on the wire.
            task = asyncio.create_task(self._send(client, topic))
            self._under_way.add(task)
            task.add_done_callback(self._finished)

    async def _send(self, client: aiomqtt.Client, topic: str) -> None:
        if self._is_cut:
            self._returned.append(topic)
            return
        name, qos = self._plan.name, self._plan.qos
        stamp = self._ledger.send(name, topic, qos=qos, at_us=now_us())
        try:
            await client.publish(topic, stamp.encode(PAYLOAD_BYTES), qos=qos, timeout=math.inf)
        except aiomqtt.MqttError:
            # The connection was gone already. The library has kept the message and will send it,
            # but does not say when it is acknowledged: it counts as not acknowledged. The tasks
            # behind this one give their topics back.
            self._is_cut = True
            return
        self._ledger.acknowledge(topic, stamp, at_us=now_us())

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self.refused.append(f"{self._plan.name}: {error!r}")


def make_publisher(
    plan: Publishing, topics: Iterator[str], ledger: Ledger, broker: Subject
) -> Publisher:
    """The publisher for the library that the plan names."""
    if plan.library == "aiomqtt":
        return AiomqttPublisher(plan, topics, ledger, broker)
    return PahoPublisher(plan, topics, ledger, broker)
