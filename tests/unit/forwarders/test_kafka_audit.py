"""What is wrong in a topic is found, and what is not is no finding; on librdkafka's own mock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.bounds import HANG_S

pytest.importorskip("pyarrow")
import pyarrow as pa
from confluent_kafka import Producer

from perdure.config.schema import KafkaForwarderConfig
from perdure.errors import TargetUnavailable
from perdure.forwarders.kafka.audit import TopicAudit, audit_topic
from perdure.model import Message
from perdure.pipeline.schema import arrow_schema

PARTITIONS = 4
"""Of a topic that the mock makes."""
WRITER = "origin/out"
COUNT = 300


@pytest.fixture
def settings() -> Iterator[KafkaForwarderConfig]:
    """Of a forwarder on a mock of a cluster; it has no settings of topics."""
    owner = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    [broker] = owner.list_topics(timeout=HANG_S).brokers.values()
    owner.list_topics("billing", timeout=HANG_S)
    yield KafkaForwarderConfig(
        bootstrap=f"{broker.host}:{broker.port}",
        topic="billing",
        timeout_s=HANG_S,
        start="earliest",
    )
    owner.flush(0)


def messages(count: int = COUNT) -> list[Message]:
    return [
        Message("t", b"%d" % n, 1, publisher=f"p{n % 9}", published_at_us=10**15, offset=100 + n)
        for n in range(count)
    ]


def forward(settings: KafkaForwarderConfig, some: list[Message]) -> None:
    """What a forwarder writes, without its transactions."""
    producer = Producer({"bootstrap.servers": settings.bootstrap})
    for each in some:
        put(producer, each.offset)
    assert producer.flush(10) == 0


def put(producer: Producer, offset: int, *, writer: str = WRITER) -> None:
    headers = [("perdure.offset", b"%d" % offset), ("perdure.forwarder", writer.encode())]
    producer.produce("billing", b"x", partition=offset % PARTITIONS, headers=headers)


def log(some: list[Message], *, qos: int = 1, expires: bool = False) -> Any:
    rows = [
        {"offset": each.offset, "qos": qos, "expires_at": 5 if expires else None} for each in some
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(["offset", "qos", "expires_at"]))


def audit(settings: KafkaForwarderConfig, *batches: Any) -> tuple[TopicAudit, list[Any]]:
    found: list[Any] = []
    told = audit_topic("out", settings, WRITER, lambda: batches, lambda *each: found.append(each))
    return told, found


def test_what_was_forwarded_is_there_once_and_the_rest_is_lag(
    settings: KafkaForwarderConfig,
) -> None:
    every = messages()
    assert audit(settings, log(every)) == (TopicAudit("out", 0, 0, COUNT), [])
    forward(settings, every[:200])
    producer = Producer({"bootstrap.servers": settings.bootstrap})
    put(producer, 7, writer="origin/another")
    assert producer.flush(10) == 0
    assert audit(settings, log(every[:50]), log(every[50:])) == (
        TopicAudit("out", 200, 200, 100),
        [],
    )
    # What retention has dropped from the log is not compared.
    assert audit(settings, log(every[150:]))[1] == []


def test_what_is_missing_repeated_out_of_order_or_unknown_is_found(
    settings: KafkaForwarderConfig,
) -> None:
    every = messages()
    forward(settings, [each for each in every if each.offset not in (100, 150, 170)])
    forward(settings, [Message("t", b"", offset=offset) for offset in (160, 5000)])
    told, found = audit(settings, log(every))
    assert told.records == COUNT - 1
    assert {(kind, detail.partition("offset ")[2].split()[0]) for kind, _, detail in found} == {
        ("kafka.missing", "100"),
        ("kafka.missing", "150"),
        ("kafka.missing", "170"),
        ("kafka.repeated", "160"),
        ("kafka.order", "160"),
        ("kafka.unknown", "5000"),
    }
    # One that began in the middle of the log owes nothing from before.
    from_now = KafkaForwarderConfig(bootstrap=settings.bootstrap, topic="billing")
    owed = [detail for kind, _, detail in audit(from_now, log(every))[1] if "missing" in kind]
    assert [detail.split()[1] for detail in owed] == ["150", "170"]


def test_qos_0_and_what_may_have_expired_may_be_missing(settings: KafkaForwarderConfig) -> None:
    every = messages()
    forward(settings, [each for each in every if each.offset not in (150, 170)])
    rest = [each for each in every if each.offset not in (150, 170)]
    late, unassured = [every[50]], [every[70]]
    batches = (log(rest), log(late, expires=True), log(unassured, qos=0))
    assert audit(settings, *batches)[1] == []
    with_qos_0 = KafkaForwarderConfig(
        bootstrap=settings.bootstrap, topic="billing", qos0=True, timeout_s=HANG_S
    )
    assert [each[0] for each in audit(with_qos_0, *batches)[1]] == ["kafka.missing"]


def test_a_kafka_that_is_away() -> None:
    away = KafkaForwarderConfig(bootstrap="127.0.0.1:1", topic="billing", timeout_s=1)
    with pytest.raises(TargetUnavailable):
        audit(away, log([]))
