"""Durable subscribers on paho-mqtt, aiomqtt and mosquitto_sub.

Each subscribes, goes offline, and comes back as a new client with the same identifier.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from datetime import UTC, datetime
from typing import Protocol

import aiomqtt
import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from examples.demo.broker import Subject
from examples.demo.clients import PahoConnection, aiomqtt_client
from examples.demo.plan import Subscribing
from tests.support.delivery import Receipts

SUBACK_TIMEOUT_S = 15.0


class Subscriber(Protocol):
    """What the demo needs of each."""

    plan: Subscribing
    receipts: Receipts

    async def subscribe(self) -> None:
        """Connect and subscribe; stay connected only if the plan says so."""
        ...

    async def come_back(self) -> None:
        """Connect again and take what waits, in the background."""
        ...

    async def stop(self) -> None:
        """Disconnect."""
        ...


class PahoSubscriber:
    """A subscriber on paho-mqtt's own thread."""

    def __init__(self, plan: Subscribing, broker: Subject, *, since_us: int = 0) -> None:
        self.plan = plan
        self.receipts = Receipts(plan.name, plan.wanted, since_us=since_us)
        self._broker = broker
        self._connection: PahoConnection | None = None
        self._subscribed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def subscribe(self) -> None:
        """Connect and subscribe; stay connected only if the plan says so."""
        self._connect(subscribing=True)
        await asyncio.wait_for(self._subscribed.wait(), SUBACK_TIMEOUT_S)
        if not self.plan.online:
            await self.stop()

    async def come_back(self) -> None:
        """Connect again; paho takes what waits."""
        if self._connection is None:
            self._connect(subscribing=False)

    async def stop(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            await self._connection.stop()
            self._connection = None

    def _connect(self, *, subscribing: bool) -> None:
        name = f"sub {self.plan.name}"
        self._connection = PahoConnection(name, self.plan.protocol, self._broker)
        client = self._connection.client
        client.on_message = self._on_message
        client.on_subscribe = self._on_subscribe
        if subscribing:
            client.on_connect = self._on_first_connect
        self._connection.start()

    def _on_first_connect(
        self,
        client: paho.Client,
        userdata: object,
        flags: paho.ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        client.on_connect = None
        if self.plan.protocol < 5:
            client.subscribe([(name, self.plan.qos) for name in self.plan.filters])
            return
        options = SubscribeOptions(qos=self.plan.qos)
        asked = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
        if self.receipts.since_us:
            # How an MQTT 5.0 client asks Perdure for the past.
            since = datetime.fromtimestamp(self.receipts.since_us / 1_000_000, UTC)
            asked.UserProperty = ("replay-from", since.isoformat())
        client.subscribe([(name, options) for name in self.plan.filters], properties=asked)

    def _on_subscribe(
        self,
        client: paho.Client,
        userdata: object,
        packet_id: int,
        reasons: list[ReasonCode],
        properties: Properties | None,
    ) -> None:
        if not any(reason.is_failure for reason in reasons):
            self._loop.call_soon_threadsafe(self._subscribed.set)

    def _on_message(self, client: paho.Client, userdata: object, message: paho.MQTTMessage) -> None:
        self.receipts.take(message.topic, bytes(message.payload), qos=message.qos)


class AiomqttSubscriber:
    """A subscriber on aiomqtt."""

    def __init__(self, plan: Subscribing, broker: Subject) -> None:
        self.plan = plan
        self.receipts = Receipts(plan.name, plan.wanted)
        self._broker = broker
        self._taking: asyncio.Task[None] | None = None

    async def subscribe(self) -> None:
        """Subscribe and disconnect."""
        async with self._make_client() as client:
            await client.subscribe([(name, self.plan.qos) for name in self.plan.filters])

    async def come_back(self) -> None:
        """Take what waits, in the background."""
        self._taking = asyncio.create_task(self._take())

    async def stop(self) -> None:
        """Disconnect."""
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)

    def _make_client(self) -> aiomqtt.Client:
        return aiomqtt_client(f"sub {self.plan.name}", self.plan.protocol, self._broker)

    async def _take(self) -> None:
        client = self._make_client()
        while True:
            await self._broker.listening.wait()
            # After a lost connection the same client comes back: it holds half-done exchanges.
            with contextlib.suppress(aiomqtt.MqttError):
                async with client:
                    async for message in client.messages:
                        payload = message.payload
                        assert isinstance(payload, bytes)
                        self.receipts.take(message.topic.value, payload, qos=message.qos)


class MosquittoSubscriber:
    """A subscriber on the mosquitto_sub program, which reconnects by itself."""

    program = shutil.which("mosquitto_sub")

    def __init__(self, plan: Subscribing, broker: Subject) -> None:
        self.plan = plan
        self.receipts = Receipts(plan.name, plan.wanted)
        self._broker = broker
        self._process: asyncio.subprocess.Process | None = None
        self._taking: asyncio.Task[None] | None = None

    async def subscribe(self) -> None:
        """Subscribe; ``-E`` ends the program after the SUBACK."""
        process = await self._run("-E")
        await asyncio.wait_for(process.wait(), SUBACK_TIMEOUT_S)

    async def come_back(self) -> None:
        """Take what waits, in the background."""
        self._process = await self._run("-F", "%q %t %p")
        self._taking = asyncio.create_task(self._take(self._process))

    async def stop(self) -> None:
        """End the program."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
        if self._taking is not None:
            await self._taking

    async def _run(self, *options: str) -> asyncio.subprocess.Process:
        assert self.program is not None
        filters = [part for name in self.plan.filters for part in ("-t", name)]
        return await asyncio.create_subprocess_exec(
            self.program,
            *("-h", "127.0.0.1", "-p", str(self._broker.port), "-q", str(self.plan.qos)),
            *("-c", "-i", f"sub {self.plan.name}"),
            *filters,
            *options,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def _take(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            qos, topic, payload = line.rstrip(b"\n").split(b" ", 2)
            self.receipts.take(topic.decode(), payload, qos=int(qos))


def make_subscriber(plan: Subscribing, broker: Subject) -> Subscriber:
    """The subscriber for the library that the plan names."""
    if plan.library == "aiomqtt":
        return AiomqttSubscriber(plan, broker)
    if plan.library == "mosquitto_sub":
        return MosquittoSubscriber(plan, broker)
    return PahoSubscriber(plan, broker)
