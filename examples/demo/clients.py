"""Client objects with durable sessions, for 3.1.1 and 5.0."""

from __future__ import annotations

import time

import aiomqtt
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

WINDOW = 100
"""Messages that a publisher has under way at once."""
RECONNECT_S = 0.3


def now_us() -> int:
    """Wall time, the same clock as the broker's."""
    return time.time_ns() // 1000


def lasting_session() -> Properties:
    """CONNECT properties of a 5.0 session that never expires."""
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = 0xFFFF_FFFF
    return properties


def paho_client(name: str, protocol: int, port: int) -> paho.Client:
    """A client that reconnects by itself once its loop is started."""
    client = paho.Client(
        CallbackAPIVersion.VERSION2,
        client_id=name,
        clean_session=False if protocol < 5 else None,
        protocol=MQTTProtocolVersion(protocol),
    )
    client.reconnect_delay_set(min_delay=1, max_delay=1)
    client.max_inflight_messages_set(2 * WINDOW)
    if protocol < 5:
        client.connect_async("127.0.0.1", port)
    else:
        client.connect_async("127.0.0.1", port, clean_start=False, properties=lasting_session())
    return client


def aiomqtt_client(name: str, protocol: int, port: int) -> aiomqtt.Client:
    """A client to be entered, and entered again after a lost connection."""
    client = aiomqtt.Client(
        "127.0.0.1",
        port,
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
