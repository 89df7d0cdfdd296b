"""kill -9 of Perdure and of Kafka at random points: what an ordinary consumer reads is the log,
once and in order."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from perdure.config.load import load
from perdure.server.stores import open_embedded
from perdure.storage.rocksdb.engine import Engine
from tests.contract.targets import read_topic
from tests.support.bounds import HANG_S
from tests.support.kafka import KafkaCluster
from tests.support.process import BrokerProcess, free_port, perdure_command
from tests.support.steady_clients import Post, publish_all

SEED = 20261123
COUNT = 2500

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


async def test_a_consumer_reads_the_log_once_and_in_order(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with KafkaCluster() as kafka:
        port = free_port()
        data = tmp_path / "data"
        settings = {
            "type": "kafka",
            "bootstrap": kafka.servers,
            "topic": "readings",
            "filter": "[t/#]",
            "timeout_s": "5",
            "retry_max_s": "1",
            "batch_messages": "50",
        }
        sets = [f"forwarders.kafka.{name}={value}" for name, value in settings.items()]
        options = [part for each in sets for part in ("--set", each)]
        broker = BrokerProcess(
            perdure_command(data, port, *options), port=port, log=tmp_path / "log"
        )
        await broker.start()
        posts = [Post(f"t/{i % 7}", b"%d" % i, 1 + i % 2) for i in range(COUNT)]
        publishing = asyncio.create_task(publish_all(port, posts))
        for _ in range(2):
            await asyncio.sleep(chance.uniform(0.1, 0.6))  # the instant is the subject
            await broker.kill()
            await broker.start()
            await asyncio.sleep(chance.uniform(0.1, 0.6))
            await asyncio.to_thread(kafka.brokers[0].kill)
            await asyncio.to_thread(kafka.brokers[0].start)
        await publishing

        def payloads() -> list[bytes]:
            return [value for _, value in read_topic(kafka.servers, "readings")]

        async with asyncio.timeout(HANG_S):
            while len(set(await asyncio.to_thread(payloads))) < COUNT:
                await asyncio.sleep(0.2)
        await broker.stop()
        found = await asyncio.to_thread(read_topic, kafka.servers, "readings")
        config = load(environ={}, sets=[f"storage.path={data}"]).config
        database = open_embedded(config, engine=Engine)
        try:
            log = await database.read(["t/#"], after_offset=0, until_offset=2**62, limit=10 * COUNT)
        finally:
            database.close()
        assert [(int(headers["perdure.offset"]), value) for headers, value in found] == [
            (message.offset, message.payload) for message in log.messages
        ]
