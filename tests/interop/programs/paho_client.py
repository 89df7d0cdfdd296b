"""paho-mqtt for the interoperability tests; the arguments are those of every client here.

subscribe PORT PROTOCOL ID FILTER
publish   PORT PROTOCOL ID TOPIC QOS COUNT WORD
collect   PORT PROTOCOL ID COUNT
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

TIMEOUT_S = 100.0


def connect(client: paho.Client, port: int, protocol: int) -> None:
    """Connect with a durable session and wait for CONNACK."""
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    if protocol == 5:
        session = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        session.SessionExpiryInterval = 0xFFFF_FFFF
        client.connect("127.0.0.1", port, clean_start=False, properties=session)
    else:
        client.connect("127.0.0.1", port)
    client.loop_start()
    assert connected.wait(TIMEOUT_S)


def main(job: str, port: str, protocol: str, client_id: str, *rest: str) -> None:
    """Do one job."""
    client = paho.Client(
        CallbackAPIVersion.VERSION2,
        client_id,
        clean_session=False if protocol == "4" else None,
        protocol=MQTTProtocolVersion(int(protocol)),
    )
    done = threading.Event()
    missing = int(rest[0]) if job == "collect" else -1

    def on_message(client: paho.Client, userdata: Any, message: paho.MQTTMessage) -> None:
        nonlocal missing
        print(f"{message.qos} {message.topic} {bytes(message.payload).decode()}")
        missing -= 1
        if missing == 0:
            done.set()

    client.on_message = on_message
    client.on_subscribe = lambda *_: done.set()
    connect(client, int(port), int(protocol))
    if job == "publish":
        topic, qos, count, word = rest
        for number in range(1, int(count) + 1):
            sent = client.publish(topic, f"{word} {number}", qos=int(qos))
        sent.wait_for_publish(TIMEOUT_S)
        assert sent.is_published()
    else:
        if job == "subscribe":
            client.subscribe(rest[0], qos=2)
        assert done.wait(TIMEOUT_S)
    client.disconnect()
    client.loop_stop()


main(*sys.argv[1:])
