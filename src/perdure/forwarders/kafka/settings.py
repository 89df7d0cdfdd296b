"""What a Kafka forwarder says to librdkafka, and what nobody may say otherwise."""

from __future__ import annotations

from typing import Final

from perdure.config.schema.forwarders import KafkaForwarderConfig
from perdure.errors import ConfigError

_SHARED: Final[dict[str, str | int | bool]] = {
    "client.id": "perdure-forwarder",
    "socket.keepalive.enable": True,
    "socket.nagle.disable": True,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "log_level": 0,
}
_OURS: Final = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.idempotence",
        "group.id",
        "isolation.level",
        "message.timeout.ms",
        "metadata.broker.list",
        "request.required.acks",
        "transactional.id",
        "transaction.timeout.ms",
    }
)

Options = dict[str, str | int | bool]


def shared_options(settings: KafkaForwarderConfig, setting: str) -> Options:
    """What every connection is told.

    Raises:
        ConfigError: an option is not for the operator to set.
    """
    path = f"{setting}.options"
    given: Options = {}
    for each in settings.options:
        name, equals, value = each.partition("=")
        if not equals:
            raise ConfigError(f"{name!r}: expected name=value", path=path)
        if name in _OURS:
            raise ConfigError(f"{name} is set by Perdure itself", path=path, hint="remove it")
        given[name] = value
    return {**_SHARED, **given, "bootstrap.servers": settings.bootstrap}


def producer_options(
    shared: Options, *, transactional_id: str, timeout_s: int, bytes_max: int
) -> Options:
    """What the producer is told.

    Args:
        transactional_id: whoever uses it last is the one writer.
        timeout_s: for one batch.
        bytes_max: of a record, as the topic takes it.
    """
    return {
        "compression.type": "lz4",
        **shared,
        "acks": "all",
        "enable.idempotence": True,
        "transactional.id": transactional_id,
        "message.timeout.ms": timeout_s * 1000,
        "transaction.timeout.ms": max(10_000, timeout_s * 1000),
        "message.max.bytes": bytes_max,
        "linger.ms": 2,
        "delivery.report.only.error": True,
    }


def consumer_options(shared: Options) -> Options:
    """What the reader of the topic's end is told."""
    return {
        **shared,
        "group.id": "perdure-forwarder",  # it has to have one; nothing is committed under it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
    }
