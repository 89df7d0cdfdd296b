"""What a node says to librdkafka, and what nobody may say otherwise.

The names are librdkafka's. What decides whether the log is one order without holes is fixed here;
everything else (TLS, SASL, addresses) passes through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

from perdure.errors import ConfigError

RETENTION_MS: Final = 7 * 24 * 3600 * 1000
"""How long a topic of ours keeps records: a node, or a backup, that is older can't read on."""

REPLICAS: Final = 3
"""Copies of the topic, if the cluster has so many brokers."""

OPEN_TIMEOUT_S: Final = 30.0
"""How long an opening waits for Kafka, seconds."""

_SHARED: Final[dict[str, str | int | bool]] = {
    "client.id": "perdure",
    # A broker that stands still is left for another one well before nodes take each other for dead.
    "socket.timeout.ms": 3000,
    "socket.keepalive.enable": True,
    "socket.nagle.disable": True,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 500,
    "topic.metadata.refresh.fast.interval.ms": 50,
    # The topic is there when a log is opened; that it has gone is believed after so long.
    "topic.metadata.propagation.max.ms": 10_000,
    # What it would write to standard error it also reports, and then it is in the log.
    "log_level": 0,
}
_PRODUCER: Final[dict[str, str | int | bool]] = {
    "enable.idempotence": True,
    "acks": "all",
    # What was submitted is tried for good: giving up on one record would leave a hole before the
    # next. How long clients wait for that is the broker's matter.
    "message.timeout.ms": 0,
    "request.timeout.ms": 3000,
    "linger.ms": 0,
    "delivery.report.only.error": True,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 256 * 1024,
}
_CONSUMER: Final[dict[str, str | int | bool]] = {
    # It has to have a name; nothing is ever committed under it.
    "group.id": "perdure",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
    "check.crcs": True,
    "fetch.wait.max.ms": 500,
    "fetch.min.bytes": 1,
    "fetch.error.backoff.ms": 20,
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 1000,
    "queued.max.messages.kbytes": 32 * 1024,
}
_OURS: Final = frozenset({*_PRODUCER, *_CONSUMER, "bootstrap.servers", "metadata.broker.list"})


@final
@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Where the log is.

    Attributes:
        servers: ``host:port`` of some of its brokers, with commas between.
        topic: its name.
        fsync: each record is on the disks of its replicas before it counts.
        retention_ms: how long a topic that is made here keeps records, milliseconds.
        replicas: copies of a topic that is made here, at most.
        makes_topic: a topic that is not there is made; else it is an error.
        options: passed on to librdkafka: TLS, SASL, ``client.rack``.
    """

    servers: str
    topic: str
    fsync: bool = False
    retention_ms: int = RETENTION_MS
    replicas: int = REPLICAS
    makes_topic: bool = True
    options: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse options that would break the log's promises.

        Raises:
            ConfigError: one is not for the operator to set.
        """
        for name in self.options:
            if name in _OURS:
                raise ConfigError(
                    f"{name} is set by Perdure itself",
                    path=f"cluster.kafka_options.{name}",
                    hint="remove it: the promises of the log rest on it",
                )

    def shared(self) -> dict[str, str | int | bool]:
        """What every connection is told."""
        return {**_SHARED, **self.options, "bootstrap.servers": self.servers}

    def producer(self, *, record_bytes_max: int) -> dict[str, str | int | bool]:
        """What a producer is told.

        Args:
            record_bytes_max: what the topic takes in one request.
        """
        return {
            **self.shared(),
            **_PRODUCER,
            "message.max.bytes": record_bytes_max,
            "batch.size": record_bytes_max,
        }

    def consumer(self) -> dict[str, str | int | bool]:
        """What a consumer is told."""
        return {**self.shared(), **_CONSUMER}
