"""Who publishes and subscribes to what."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

SITES, DEVICES = 10, 25
METRICS = ("temperature", "humidity", "pressure", "battery")
PAYLOAD_BYTES = 64
REPLAY_FILTER = "site/+/device/+/battery"


def all_topics(count: int) -> list[str]:
    """``site/{n}/device/{n}/{metric}``, so many of them."""
    everything = [
        f"site/{site}/device/{device}/{metric}"
        for device in range(max(DEVICES, -(-count // (SITES * len(METRICS)))))
        for site in range(SITES)
        for metric in METRICS
    ]
    return everything[:count]


@dataclass(frozen=True)
class Publishing:
    """One publisher: its client library, protocol version, QoS and share of the messages."""

    name: str
    library: str
    protocol: int
    qos: int


@dataclass(frozen=True)
class Subscribing:
    """One durable subscriber; ``online`` ones stay while the messages are published."""

    name: str
    library: str
    protocol: int
    qos: int
    filters: tuple[str, ...]
    online: bool = False

    @property
    def client(self) -> str:
        """Library and protocol version, for reports."""
        return f"{self.library} {'5.0' if self.protocol == 5 else '3.1.1'}"

    @property
    def wanted(self) -> dict[str, int]:
        """Each filter with its QoS."""
        return dict.fromkeys(self.filters, self.qos)


PUBLISHERS = (
    Publishing("pub-paho-1", "paho-mqtt", 4, 1),
    Publishing("pub-paho-2", "paho-mqtt", 5, 2),
    Publishing("pub-aio-1", "aiomqtt", 5, 1),
    Publishing("pub-aio-2", "aiomqtt", 4, 2),
)


def subscribers(topics: list[str], *, with_mosquitto: bool) -> list[Subscribing]:
    """The durable sessions: exact and wildcard filters, both protocols, QoS 1 and 2."""
    found = [
        Subscribing("everything", "paho-mqtt", 4, 2, ("site/#",)),
        Subscribing("temperatures", "aiomqtt", 5, 2, ("site/+/device/+/temperature",)),
        Subscribing("exact topics", "paho-mqtt", 5, 1, tuple(topics[::20])),
        Subscribing("one site", "aiomqtt", 4, 1, ("site/3/#",)),
        Subscribing("stays online", "paho-mqtt", 5, 2, ("site/0/device/+/+",), online=True),
    ]
    if with_mosquitto:
        found.append(Subscribing("one device", "mosquitto_sub", 4, 2, ("site/+/device/7/#",)))
    return found


def rounds(topics: list[str], count: int, seed: str) -> Iterator[str]:
    """``count`` topics: all of them in chance order, again and again."""
    chance = random.Random(seed)
    sent = 0
    while True:
        for topic in chance.sample(topics, len(topics)):
            if sent == count:
                return
            sent += 1
            yield topic
