"""The writer of ``pipeline route`` on librdkafka's own mock of a cluster.

It leaves out what the end of the topic has, and what the topic does not take.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from perdure.config.schema import KafkaForwarderConfig
from perdure.forwarders.kafka import producer
from perdure.forwarders.kafka.topic import Topic
from perdure.forwarders.route.kafka_writer import KafkaWriter
from perdure.model import Message
from tests.contract.targets import read_topic
from tests.support.bounds import HANG_S

PARTITIONS = 4
"""Of a topic that the mock makes."""
BYTES_MAX = 100_000


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A mock of a cluster; it has no settings of topics."""
    # It lives as long as this client.
    owner = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    [broker] = owner.list_topics(timeout=HANG_S).brokers.values()
    owner.list_topics("billing", timeout=HANG_S)
    known = Topic(PARTITIONS, BYTES_MAX)
    monkeypatch.setattr(producer, "ensure", lambda *_, **__: known)
    yield f"{broker.host}:{broker.port}"
    owner.flush(0)


def test_what_is_in_the_topic_is_not_written_again(bootstrap: str) -> None:
    settings = KafkaForwarderConfig(
        bootstrap=bootstrap, topic="billing", key="publisher", batch_messages=40, timeout_s=HANG_S
    )
    messages = [
        Message("t", b"%d" % i, 1, publisher=f"p{i % 9}", published_at_us=10**15, offset=100 + i)
        for i in range(300)
    ]
    large = Message("t", b"x" * BYTES_MAX, 1, publisher="p", offset=1000)
    expired = Message("t", b"late", 1, publisher="p", expires_at_us=4, offset=1001)

    def write(some: list[Message]) -> KafkaWriter:
        writer = KafkaWriter("app-billing", settings, origin="origin")
        for each in some:
            writer.put(each, granted=2, now_us=5)
        writer.close()
        return writer

    first = write([*messages[:150], large, expired])
    assert (first.written, first.repeated, first.too_large) == (150, 0, [1000])
    second = write(messages)
    assert (second.written, second.repeated, second.too_large) == (150, 150, [])
    found = [
        row for number in range(PARTITIONS) for row in read_topic(bootstrap, "billing", number)
    ]
    assert sorted((int(headers["perdure.offset"]), value) for headers, value in found) == [
        (each.offset, each.payload) for each in messages
    ]
    assert {headers["perdure.forwarder"] for headers, _ in found} == {b"origin/app-billing"}
