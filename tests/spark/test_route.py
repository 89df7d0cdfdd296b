"""``pipeline route`` with kill -9 of its driver, of Kafka and of Redis.

Each application's topic and each device's queue has what the log has for it, once and in order; a
forwarder goes on where the job was.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")
from confluent_kafka import Consumer, TopicPartition

from perdure.bench.ports import free_port
from perdure.errors import ConfigError
from perdure.forwarders.applications import topic_name
from perdure.pipeline import session
from perdure.storage.redis import Command, RedisClient, parse_url
from perdure.storage.redis.open import open_device_queue
from perdure.topic.matching import matches
from tests.contract.targets import read_topic
from tests.support.bounds import HANG_S
from tests.support.database_servers import RedisServer
from tests.support.kafka import KafkaCluster, why_not
from tests.support.needs import missing
from tests.support.process import BrokerProcess, perdure_command
from tests.support.steady_clients import Post, publish_all

SEED = 20261123
COUNT = 3000
APPLICATIONS = {"billing": ["m/+/a"], "site 7": ["m/1/#", "m/2/b"], "all": ["#"]}
DEVICES = {"d1": [("m/1/a", 1)], "d {2}": [("m/#", 2), ("m/2/+", 1)]}

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.redis,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),
]


async def route(
    home: Path, options: list[str], *, until: Callable[[], Awaitable[None]] | None = None
) -> int | None:
    """Run the job to its end, or until a moment, then kill it with Java and all."""
    with (home / "route.log").open("ab") as log:
        driver = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perdure", "pipeline", "route", "--once", *options),
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
            start_new_session=True,
        )
    ended = asyncio.create_task(driver.wait())
    if until is not None:
        moment = asyncio.create_task(until())
        await asyncio.wait({moment, ended}, return_when=asyncio.FIRST_COMPLETED)
        moment.cancel()
        if not ended.done():
            os.killpg(driver.pid, signal.SIGKILL)
    return await ended


@pytest.mark.parametrize("master", ["none", "local[2]"])
async def test_each_target_has_its_part_once_and_in_order(master: str, tmp_path: Path) -> None:
    """Kills come when a run has begun to write, and a little later."""
    try:
        session.check_java()
    except ConfigError as error:
        missing(error.message)
    if why_not():
        missing(why_not())
    chance = random.Random(SEED)
    with KafkaCluster() as kafka, RedisServer() as redis:
        data, port = tmp_path / "data", free_port()
        config = tmp_path / "perdure.yaml"
        declared = [f"{name}={' '.join(each)}" for name, each in APPLICATIONS.items()]
        config.write_text(
            json.dumps(
                {
                    "storage": {"path": str(data)},
                    "applications": {
                        "bootstrap": kafka.servers, "partitions": 2, "declared": declared,
                    },
                }
            )
        )  # fmt: skip
        subscriptions = tmp_path / "devices.jsonl"
        subscriptions.write_text(
            "".join(
                json.dumps({"client_id": name, "filter": each, "qos": qos}) + "\n"
                for name, filters in DEVICES.items()
                for each, qos in filters
            )
        )
        options = ["--config", str(config), "--master", master, "--memory", "768m"]
        options += ["--subscriptions", str(subscriptions), "--queues-to", redis.url]
        plain = BrokerProcess(perdure_command(data, port), port=port, log=tmp_path / "log")
        await plain.start()
        posts = [Post(f"m/{i % 3}/{'ab'[i // 3 % 2]}", b"%d" % i, 1 + i % 2) for i in range(COUNT)]
        await publish_all(port, posts[: COUNT // 2], client_id="p1")

        async def writing() -> None:
            """Until a target has something new; then an instant, which is the subject."""
            before = await written(kafka.servers, redis.url)
            while await written(kafka.servers, redis.url) == before:
                await asyncio.sleep(0.01)
            await asyncio.sleep(chance.uniform(0, 0.3))

        assert await route(tmp_path, options, until=writing) == -signal.SIGKILL
        await publish_all(port, posts[COUNT // 2 : -100], client_id="p2")
        begun = asyncio.create_task(writing())
        routing = asyncio.create_task(route(tmp_path, options))
        await asyncio.wait({begun, routing}, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        for server in (kafka.brokers[0], redis):
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await routing
        assert await route(tmp_path, options) == 0, (tmp_path / "route.log").read_text()
        assert await queues(redis.url) == {
            name: [(post.payload, min(post.qos, qos)) for post in posts[:-100]
                   if (qos := granted(filters, post.topic))]
            for name, filters in DEVICES.items()
        }  # fmt: skip
        # A forwarder for each application goes on where the job was.
        await plain.stop()
        broker = BrokerProcess(
            perdure_command(data, port, "--config", str(config)), port=port, log=tmp_path / "log"
        )
        await broker.start()
        await publish_all(port, posts[-100:], client_id="p3")
        wanted = {
            name: [post.payload for post in posts if any(matches(f, post.topic) for f in filters)]
            for name, filters in APPLICATIONS.items()
        }
        async with asyncio.timeout(HANG_S):
            for name, payloads in wanted.items():
                while len(await asyncio.to_thread(told, kafka.servers, name)) < len(payloads):
                    await asyncio.sleep(0.2)
        await broker.stop()
        found = {name: await asyncio.to_thread(told, kafka.servers, name) for name in APPLICATIONS}
        assert {name: found[name] == payloads for name, payloads in wanted.items()} == (
            dict.fromkeys(wanted, True)
        )


async def written(servers: str, url: str) -> tuple[int, int]:
    """How much the targets have: records and their marks of all topics, and keys."""
    redis = await RedisClient.connect(parse_url(url))
    keys = await redis.call(Command(("DBSIZE",)))
    await redis.close()
    assert isinstance(keys, int)
    return await asyncio.to_thread(ends, servers), keys


def ends(servers: str) -> int:
    """The sum of the ends of all partitions of applications' topics."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "ends", "log_level": 0})
    try:
        topics = consumer.list_topics(timeout=HANG_S).topics
        parts = [
            TopicPartition(name, number)
            for name, topic in topics.items()
            if name.startswith("perdure.app.")
            for number in topic.partitions
        ]
        return sum(consumer.get_watermark_offsets(each, timeout=HANG_S)[1] for each in parts)
    finally:
        consumer.close()


def granted(filters: list[tuple[str, int]], topic: str) -> int:
    """The QoS of a device's subscriptions that match; 0 = none does."""
    return max((qos for each, qos in filters if matches(each, topic)), default=0)


def told(servers: str, name: str) -> list[bytes]:
    """What consumers read, in the order of the log; each partition has it in that order."""
    rows: list[tuple[int, bytes]] = []
    for number in range(2):
        part = [
            (int(headers["perdure.offset"]), value)
            for headers, value in read_topic(servers, topic_name("perdure.app.", name), number)
        ]
        assert part == sorted(part)
        rows += part
    return [value for _, value in sorted(rows)]


async def queues(url: str) -> dict[str, list[tuple[bytes, int]]]:
    """Payload and QoS of what each device's queue has, in order."""
    queue = await open_device_queue(url, layout="tbmq")
    try:
        pages = {
            name: await queue.read(
                name, after_serial=0, limit=2 * COUNT, bytes_max=1 << 24, now_us=1
            )
            for name in DEVICES
        }
    finally:
        await queue.close()
    return {
        name: [(each.message.payload, each.qos) for each in page.entries]
        for name, page in pages.items()
    }
