"""Client objects with durable sessions, for 3.1.1 and 5.0.

No client tries to connect while the broker is down: when an attempt fails, paho-mqtt 2.2 (and
aiomqtt on top of it) forgets which QoS 2 messages are past their PUBREC, and sends them as new
messages after the next attempt. The broker cannot tell them from new ones, and they would count
as its repeats.
"""

from __future__ import annotations

import asyncio
import time

import aiomqtt
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from examples.demo.broker import Subject

WINDOW = 100
"""Messages that a publisher has under way at once."""
RETRY_S = 0.1


def now_us() -> int:
    """Wall time, the same clock as the broker's."""
    return time.time_ns() // 1000


def lasting_session() -> Properties:
    """CONNECT properties of a 5.0 session that never expires."""
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = 0xFFFF_FFFF
    return properties


class PahoConnection:
    """A paho client on its own thread, connected again whenever the connection is lost.

    Attributes:
        client: the client, for callbacks (but ``on_disconnect``) and calls.
    """

    def __init__(self, name: str, protocol: int, broker: Subject) -> None:
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=name,
            clean_session=False if protocol < 5 else None,
            protocol=MQTTProtocolVersion(protocol),
            reconnect_on_failure=False,
        )
        self.client.max_inflight_messages_set(2 * WINDOW)
        self.client.on_disconnect = self._on_disconnect
        self._protocol = protocol
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect, and stay connected."""
        self._task = asyncio.create_task(self._stay_connected())

    async def stop(self) -> None:
        """Disconnect."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.client.disconnect()
        await asyncio.to_thread(self.client.loop_stop)

    async def _stay_connected(self) -> None:
        while True:
            await self._broker.listening.wait()
            self._lost.clear()
            try:
                await asyncio.to_thread(self._connect)
            except OSError:
                await asyncio.sleep(RETRY_S)
                continue
            self.client.loop_start()
            await self._lost.wait()
            await asyncio.to_thread(self.client.loop_stop)

    def _connect(self) -> None:
        if self._protocol < 5:
            self.client.connect("127.0.0.1", self._broker.port)
        else:
            session = lasting_session()
            self.client.connect(
                "127.0.0.1", self._broker.port, clean_start=False, properties=session
            )

    def _on_disconnect(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._lost.set)


def aiomqtt_client(name: str, protocol: int, broker: Subject) -> aiomqtt.Client:
    """A client to be entered, and entered again after a lost connection."""
    client = aiomqtt.Client(
        "127.0.0.1",
        broker.port,
        identifier=name,
        protocol=aiomqtt.ProtocolVersion(protocol),
        clean_session=False if protocol < 5 else None,
        # The library takes the word for 5.0 alone, and insists on its default otherwise.
        clean_start=False if protocol == 5 else paho.MQTT_CLEAN_START_FIRST_ONLY,
        properties=lasting_session() if protocol == 5 else None,
        max_inflight_messages=2 * WINDOW,
    )
    client.pending_calls_threshold = 2 * WINDOW
    return client
