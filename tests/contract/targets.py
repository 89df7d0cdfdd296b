"""The targets that every output is tried on: how to set one up, and what is in it."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple, final

import asyncpg
from confluent_kafka import Consumer, KafkaError, TopicPartition

from perdure.storebench.servers.postgres import find_postgres
from perdure.storebench.servers.redis import find_redis
from tests import servers
from tests.support import kafka as kafka_servers
from tests.support.failing_service import FailingService
from tests.support.needs import missing


class Told(NamedTuple):
    """A message as the target has it."""

    topic: str
    payload: bytes


class Target(ABC):
    """A target.

    Attributes:
        settings: of a forwarder to it.
        is_exact: what comes again is not there twice.
        refused: a payload that it never takes; None = it takes everything.
        can_be_away: it can be stopped and started.
        offsets: of what was read last.
    """

    is_exact: ClassVar[bool] = True
    can_be_away: ClassVar[bool] = False
    refused: bytes | None = None
    offsets: list[int]

    settings: dict[str, Any]

    @abstractmethod
    async def start(self) -> None: ...

    async def stop(self) -> None:  # noqa: B027 - most leave nothing
        """Nothing is left."""

    @abstractmethod
    async def read(self) -> list[Told]: ...

    async def go_away(self) -> None:
        raise NotImplementedError

    async def come_back(self) -> None:
        raise NotImplementedError


@final
class RedisTarget(Target):
    async def start(self) -> None:
        if find_redis() is None:
            missing("Redis is not installed")
        self._key = servers.redis_prefix()
        url = (await asyncio.to_thread(servers.redis)).url
        self.settings = {"type": "redis", "url": url, "key": self._key}

    async def read(self) -> list[Told]:
        reply = servers.redis().command("XRANGE", self._key, "-", "+")
        assert isinstance(reply, list)
        found = []
        self.offsets = []
        for entry in reply:
            assert isinstance(entry, list)
            name, pairs = entry
            assert isinstance(name, bytes)
            assert isinstance(pairs, list)
            milliseconds, _, rest = name.decode().partition("-")
            self.offsets.append(int(milliseconds) * 1000 + int(rest))
            fields: dict[Any, Any] = dict(zip(pairs[::2], pairs[1::2], strict=True))
            found.append(Told(fields[b"topic"].decode(), fields[b"payload"]))
        return found


@final
class PostgresTarget(Target):
    refused = b"no such thing"

    async def start(self) -> None:
        if find_postgres() is None:
            missing("PostgreSQL is not installed")
        # It makes a schema with a loop of its own.
        self._url = await asyncio.to_thread(servers.postgres_place)
        self.settings = {"type": "postgres", "url": self._url, "table": "told"}
        await self._ask(
            'CREATE TABLE told ("offset" bigint PRIMARY KEY, published_at timestamptz, topic text, '
            "payload bytea CHECK (payload <> 'no such thing'), qos smallint, retain boolean, "
            "publisher text, user_properties jsonb)"
        )

    async def read(self) -> list[Told]:
        rows = await self._ask('SELECT "offset", topic, payload FROM told ORDER BY "offset"')
        self.offsets = [row[0] for row in rows]
        return [Told(row[1], row[2]) for row in rows]

    async def _ask(self, statement: str) -> list[Any]:
        connection = await asyncpg.connect(self._url)
        try:
            return list(await connection.fetch(statement))
        finally:
            await connection.close()


@final
class KafkaTarget(Target):
    refused = b"x" * 1_200_000

    async def start(self) -> None:
        absent = kafka_servers.why_not()
        if absent:
            missing(absent)
        self._topic = servers.kafka_topic()
        self._bootstrap = (await asyncio.to_thread(servers.kafka)).servers
        self.settings = {
            "type": "kafka",
            "bootstrap": self._bootstrap,
            "topic": self._topic,
            "batch_bytes": "4MiB",
        }

    async def read(self) -> list[Told]:
        records = await asyncio.to_thread(read_topic, self._bootstrap, self._topic)
        self.offsets = [int(headers["perdure.offset"]) for headers, _ in records]
        return [Told(headers["mqtt.topic"].decode(), value) for headers, value in records]


def read_topic(
    bootstrap: str, topic: str, partition: int = 0
) -> list[tuple[Mapping[str, bytes], bytes]]:
    """All records of a partition, as an ordinary consumer sees them."""
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": "test",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(options)
    found: list[tuple[Mapping[str, bytes], bytes]] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            for record in consumer.consume(1000, timeout=1.0):
                error = record.error()
                if error is None:
                    headers: Any = dict(record.headers() or [])
                    found.append((headers, record.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
    finally:
        consumer.close()


@final
class WebhookTarget(Target):
    is_exact = False
    can_be_away = True
    refused = b"no such thing"

    async def start(self) -> None:
        self.service = FailingService(refused="no such thing")
        await self.service.start()
        self.settings = {
            "type": "webhook",
            "url": self.service.url,
            "secret": "key",
            "timeout_s": 1,
            "retry_max_s": 1,
        }

    async def stop(self) -> None:
        await self.service.stop()

    async def read(self) -> list[Told]:
        taken = [each for body in self.service.taken for each in json.loads(body)["messages"]]
        self.offsets = [each["offset"] for each in taken]
        return [Told(each["topic"], each["payload"].encode()) for each in taken]

    async def go_away(self) -> None:
        self.service.plan = ["close"] * 1000

    async def come_back(self) -> None:
        self.service.plan = []


TARGETS: Final[Mapping[str, Callable[[], Target]]] = {
    "kafka": KafkaTarget,
    "postgres": PostgresTarget,
    "redis": RedisTarget,
    "webhook": WebhookTarget,
}
