"""gmqtt for the interoperability tests; the arguments are those of every client here.

subscribe PORT PROTOCOL ID FILTER
publish   PORT PROTOCOL ID TOPIC QOS COUNT WORD
collect   PORT PROTOCOL ID COUNT
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import gmqtt
from gmqtt.storage import PersistentStorage


async def main(job: str, port: str, protocol: str, client_id: str, *rest: str) -> None:
    """Do one job."""
    storage = PersistentStorage()
    session = {"session_expiry_interval": 0xFFFF_FFFF} if protocol == "5" else {}
    client = gmqtt.Client(client_id, clean_session=False, persistent_storage=storage, **session)
    subscribed = asyncio.Event()
    collected = asyncio.Event()
    missing = int(rest[0]) if job == "collect" else -1

    def on_message(
        client: gmqtt.Client, topic: str, payload: bytes, qos: int, properties: dict[str, Any]
    ) -> int:
        nonlocal missing
        print(f"{qos} {topic} {payload.decode()}")
        missing -= 1
        if missing == 0:
            collected.set()
        return 0

    def on_subscribe(
        client: gmqtt.Client, packet_id: int, granted: tuple[int, ...], properties: Any
    ) -> None:
        assert granted == (2,), granted
        subscribed.set()

    client.on_message = on_message
    client.on_subscribe = on_subscribe
    await client.connect("127.0.0.1", int(port), version=int(protocol))
    if job == "subscribe":
        client.subscribe(rest[0], qos=2)
        await subscribed.wait()
    elif job == "publish":
        topic, qos, count, word = rest
        for number in range(1, int(count) + 1):
            client.publish(topic, f"{word} {number}", qos=int(qos))
        await storage.wait_empty()
    else:
        await collected.wait()
        # The last exchange ends after its message was handed over.
        await asyncio.sleep(0.1)
    await client.disconnect()


asyncio.run(main(*sys.argv[1:]))
