"""Applications on a real Kafka: declared by configuration, by an administrator and by a client, and
read by an ordinary consumer group, each publisher's messages by one member and in order."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from perdure.bench.ports import free_port
from perdure.mqtt.client_protocol import ClientProtocol
from perdure.mqtt.packets import Properties
from perdure.net.client import Client
from perdure.net.client_link import Endpoint
from tests import servers
from tests.contract.targets import read_topic
from tests.support.bounds import HANG_S
from tests.support.process import BrokerProcess, perdure_command
from tests.support.steady_clients import Collector, Post, publish_all

PUBLISHERS, EACH = 5, 60

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def read_as_group(bootstrap: str, topic: str, members: int, count: int) -> list[list[Any]]:
    """What each member of a consumer group has read when all is read."""
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": f"{topic}-desk",
        "auto.offset.reset": "earliest",
    }
    consumers = [Consumer(options) for _ in range(members)]
    found: list[list[Any]] = [[] for _ in consumers]
    try:
        for consumer in consumers:
            consumer.subscribe([topic])
        while sum(map(len, found)) < count:
            for consumer, records in zip(consumers, found, strict=True):
                records += [each for each in consumer.consume(500, 0.1) if each.error() is None]
    finally:
        for consumer in consumers:
            consumer.close()
    return found


async def test_a_consumer_and_the_mqtt_client_read_the_same(tmp_path: Path) -> None:
    bootstrap = (await asyncio.to_thread(servers.kafka)).servers
    prefix = f"{servers.kafka_topic()}.app."
    port, data = free_port(), tmp_path / "data"
    settings = {
        "bootstrap": bootstrap,
        "prefix": prefix,
        "partitions": "3",
        "declared": "[desk=$share/night/t/#]",
        "from_clients": "true",
    }
    sets = [f"applications.{name}={value}" for name, value in settings.items()]
    options = [part for each in sets for part in ("--set", each)]
    broker = BrokerProcess(perdure_command(data, port, *options), port=port, log=tmp_path / "log")
    await broker.start()

    async def applications(*arguments: str) -> str:
        command = [sys.executable, "-m", "perdure", "applications", *arguments, "--data", str(data)]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=True
        )
        return done.stdout

    pairs = (("perdure-application", ""), ("perdure-application-filter", "t/1"))
    protocol = ClientProtocol(
        client_id="site/7 pump", clean_start=True, properties=Properties(user_properties=pairs)
    )
    client = Client(protocol, Endpoint(host="127.0.0.1", port=port))
    mqtt = Collector(port, "t/#")
    try:
        await applications("add", "billing", "t/0")
        await client.connect()
        await mqtt.start()
        async with asyncio.timeout(HANG_S):
            while (await applications("list", "--json")).count("running") < 3:
                await asyncio.sleep(0.1)
        posts = [
            [Post(f"t/{i % 2}", b"%d-%d" % (publisher, i), 1) for i in range(EACH)]
            for publisher in range(PUBLISHERS)
        ]
        await asyncio.gather(
            *(publish_all(port, each, client_id=f"p{i}") for i, each in enumerate(posts))
        )
        await mqtt.until(PUBLISHERS * EACH)
        found = await asyncio.to_thread(
            read_as_group, bootstrap, f"{prefix}desk", 2, PUBLISHERS * EACH
        )
        everything = sorted(each.value() for member in found for each in member)
        assert everything == sorted(each.payload for each in mqtt.messages)
        readers: defaultdict[bytes, set[int]] = defaultdict(set)
        orders: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for number, member in enumerate(found):
            for record in member:
                readers[record.key()].add(number)
                orders[record.key()].append(record.value())
        assert {len(each) for each in readers.values()} == {1}
        assert [orders[b"p%d" % i] for i in range(PUBLISHERS)] == [
            [post.payload for post in each] for each in posts
        ]
        billing = await asyncio.to_thread(read_all, bootstrap, f"{prefix}billing")
        assert billing == {each.payload for each in mqtt.messages if each.topic == "t/0"}
        shown = await applications("show", "site/7 pump", "--json")
        assert f"{prefix}site-7-pump." in shown
        await applications("remove", "billing")
        assert "billing" not in await applications("list", "--json")
    finally:
        client.abort()
        await mqtt.stop()
        await broker.stop()


def read_all(bootstrap: str, topic: str) -> set[bytes]:
    """The payloads in all partitions."""
    return {value for number in range(3) for _, value in read_topic(bootstrap, topic, number)}
