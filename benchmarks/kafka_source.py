"""The messages of a log in a real Kafka, and Spark's source for them (``spark_read``)."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from perdure.errors import StorageUnavailable
from perdure.pipeline.here import read_here
from perdure.pipeline.options import ReadOptions
from tests.support.kafka import KafkaCluster

TOPIC: Final = "messages"
PARTITIONS: Final = 2
_ROOT: Final = Path(__file__).parents[1]
_POM: Final = _ROOT / "tools" / "kafka" / "spark-pom.xml"
_JARS: Final = Path(os.environ.get("PERDURE_SPARK_KAFKA_JARS", _ROOT / "build" / "spark-kafka"))
_SPARKS_OWN: Final = ("hadoop-", "scala-", "slf4j-", "jsr305", "lz4-", "snappy-", "spark-tags")


def settings() -> Mapping[str, str]:
    """Of a session that knows the source; its jars come once through Maven."""
    if not _JARS.exists():
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        command = ["mvn", "-q", "-B", "-f", str(_POM), *goal, f"-DoutputDirectory={_JARS}"]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    jars = [str(jar) for jar in _JARS.glob("*.jar") if not jar.name.startswith(_SPARKS_OWN)]
    return {"spark.jars": ",".join(jars)}


@contextlib.contextmanager
def filled(path: Path) -> Iterator[str]:
    """A Kafka with the messages of a log: topics as keys, times of the log; its address."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    with contextlib.closing(KafkaCluster()) as cluster:
        cluster.start()
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        for future in admin.create_topics(
            [NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1"})]
        ).values():
            future.result()
        producer = Producer(
            {"bootstrap.servers": cluster.servers, "queue.buffering.max.kbytes": 262_144}
        )
        number = 0
        for batch in read_here(ReadOptions(str(path)), ["topic", "payload", "offset"]):
            columns = batch.to_pydict()
            for topic, payload, offset in zip(*columns.values(), strict=True):
                producer.produce(
                    TOPIC,
                    key=topic.encode(),
                    value=payload,
                    partition=number % PARTITIONS,
                    timestamp=offset // 1000,
                )
                number += 1
                if not number % 10_000:
                    producer.flush()
        if producer.flush(60):
            raise StorageUnavailable("Kafka does not take the messages")
        yield cluster.servers


def queries(spark: Any, servers: str, first_us: int, count: int) -> dict[str, Callable[[], Any]]:
    """All; one per cent by what are topics, which it cannot look up; one per cent by time."""

    def read(**options: str) -> Any:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
        return reader.option("subscribe", TOPIC).options(**options).load()

    devices = [f"devices/{number * 97}/" for number in range(100)]
    wanted = " or ".join(f"startswith(cast(key as string), '{each}')" for each in devices)

    def moments(at_us: int) -> str:
        return json.dumps({TOPIC: {str(each): at_us // 1000 for each in range(PARTITIONS)}})

    window = {
        "startingOffsetsByTimestamp": moments(first_us),
        "endingOffsetsByTimestamp": moments(first_us + count * 10),
    }
    return {
        "kafka_full": read,
        "kafka_one_percent_by_filter": lambda: read().where(wanted),
        "kafka_one_percent_by_time": lambda: read(**window),
    }
