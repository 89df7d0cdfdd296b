"""kill -9 of Perdure, Kafka, Redis and PostgreSQL at random points: what each target has in the end
is the log, once and in order."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import pytest

from perdure.bench.ports import free_port
from tests.contract.targets import read_topic
from tests.support.bounds import HANG_S
from tests.support.database_servers import PostgresServer, RedisServer
from tests.support.disk_log import logged
from tests.support.kafka import KafkaCluster
from tests.support.process import BrokerProcess, perdure_command
from tests.support.steady_clients import Post, publish_all

SEED = 20261123
COUNT = 2500
KILLS = 6

Row = tuple[int, bytes]

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.redis,
    pytest.mark.postgres,
    pytest.mark.slow,
    pytest.mark.timeout(180),
]


async def test_each_target_has_the_log_once_and_in_order(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with KafkaCluster() as kafka, RedisServer() as redis, PostgresServer() as postgres:
        port = free_port()
        data = tmp_path / "data"
        common = {"filter": "[t/#]", "timeout_s": "5", "retry_max_s": "1", "batch_messages": "50"}
        types = {
            "kafka": {"bootstrap": kafka.servers, "topic": "readings"},
            "redis": {"url": redis.url, "key": "readings"},
            "postgres": {"url": postgres.url, "table": "readings"},
        }
        sets = [
            f"forwarders.{kind}.{name}={value}"
            for kind, own in types.items()
            for name, value in {"type": kind, **common, **own}.items()
        ]
        options = [part for each in sets for part in ("--set", each)]
        broker = BrokerProcess(
            perdure_command(data, port, *options), port=port, log=tmp_path / "log"
        )
        await broker.start()
        posts = [Post(f"t/{i % 7}", b"%d" % i, 1 + i % 2) for i in range(COUNT)]
        publishing = asyncio.create_task(publish_all(port, posts))
        servers = [kafka.brokers[0], redis, postgres]
        victims = [None, *servers, *chance.choices([None, *servers], k=KILLS - 4)]
        chance.shuffle(victims)
        for victim in victims:
            await asyncio.sleep(chance.uniform(0.1, 0.5))  # the instant is the subject
            if victim is None:
                await broker.kill()
                await broker.start()
            else:
                await asyncio.to_thread(victim.kill)
                await asyncio.to_thread(victim.start)
        await publishing
        readers: dict[str, Callable[[], list[Row]]] = {
            "kafka": lambda: kafka_rows(kafka.servers),
            "redis": lambda: redis_rows(redis),
            "postgres": lambda: asyncio.run(postgres_rows(postgres.url)),
        }
        async with asyncio.timeout(HANG_S):
            for read in readers.values():
                while len({value for _, value in await asyncio.to_thread(read)}) < COUNT:
                    await asyncio.sleep(0.2)
        await broker.stop()
        found = {name: await asyncio.to_thread(read) for name, read in readers.items()}
        if find_spec("pyarrow") is not None:
            command = [sys.executable, "-m", "perdure", "pipeline", "audit", "--data", str(data)]
            await asyncio.to_thread(
                subprocess.run, [*command, *options, "--kafka", "kafka"], check=True
            )
        log = await logged(data, "t/#")
        wanted = [(message.offset, message.payload) for message in log]
        assert {name: rows == wanted for name, rows in found.items()} == dict.fromkeys(found, True)


def kafka_rows(servers: str) -> list[Row]:
    """What an ordinary consumer reads."""
    return [
        (int(headers["perdure.offset"]), value)
        for headers, value in read_topic(servers, "readings")
    ]


def redis_rows(redis: RedisServer) -> list[Row]:
    """The entries of the stream."""
    rows: list[Row] = []
    reply = redis.command("XRANGE", "readings", "-", "+")
    assert isinstance(reply, list)
    for name, pairs in reply:  # type: ignore[misc,union-attr]
        milliseconds, _, rest = name.decode().partition("-")  # type: ignore[union-attr]
        fields = dict(zip(pairs[::2], pairs[1::2], strict=True))  # type: ignore[index]
        rows.append((int(milliseconds) * 1000 + int(rest), fields[b"payload"]))  # type: ignore[index]
    return rows


async def postgres_rows(url: str) -> list[Row]:
    """The rows of the table, in the order in which they were inserted."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch('SELECT "offset", payload FROM readings ORDER BY ctid')
        return [(row[0], row[1]) for row in rows]
    except asyncpg.UndefinedTableError:
        return []
    finally:
        await connection.close()
