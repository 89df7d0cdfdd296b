"""The topic: made as it must be, or checked.

One partition, for one order. Its time is the log's, since nodes must not depend on each other's
clocks. What has been acknowledged must be on more than one machine where there are more, and
nothing that was acknowledged may be thrown away by an election, by compaction, or (checked against
checkpoints elsewhere) by age.

Calls here block for as long as Kafka takes: they belong in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple, TypeVar, final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from perdure.errors import ConfigError, StorageError, StorageUnavailable
from perdure.observe.logs import get_logger
from perdure.storage.kafka.reasons import refused, unavailable
from perdure.storage.kafka.settings import OPEN_TIMEOUT_S, KafkaSettings

T = TypeVar("T")

log = get_logger("storage")

REQUEST_BYTES: Final = 1024
"""What a record takes in a request besides its value, at most."""

RETENTION_MS_MIN: Final = 3600 * 1000
"""Below this a topic is refused: a restart that takes longer would cost a node its state."""

RETENTION_MS_SHORT: Final = 24 * 3600 * 1000
"""Below this it is told that a node, or a backup, soon can't read on."""

RETENTION_BYTES_MIN: Final = 1024 * 1024 * 1024
"""Below this a topic is refused: an hour of many messages has more."""

RECORD_BYTES_MIN: Final = 64 * 1024
"""Below this a topic is refused: what a message brings with it must fit into one record."""

_CALL_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 2 * _CALL_TIMEOUT_S
"""By then librdkafka should have said that its call has timed out."""

_RETRY_S: Final = 0.2
_MESSAGE_BYTES: Final = "1048588"
"""What Kafka takes where nobody says otherwise."""

# A topic that was made a moment ago, brokers that just started or are about to go, and what
# librdkafka says of a request to one that it lets go: they go away by themselves.
_PASSING: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY_BROKER,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_CONTROLLER,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.INVALID_REPLICATION_FACTOR,
    }
)

# What a connection says, and what a call that only times out does not.
_LASTING: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._SSL,
        KafkaError._UNSUPPORTED_FEATURE,
    }
)


@final
class TopicFacts(NamedTuple):
    """What is known of a topic that is as it must be.

    Attributes:
        record_bytes_max: bytes of the largest record's value.
        request_bytes_max: ``max.message.bytes``.
        replicas: copies of it.
        acks_min: copies that have a record before it counts.
        retention_ms: how long it keeps records; -1 = for good.
    """

    record_bytes_max: int
    request_bytes_max: int
    replicas: int
    acks_min: int
    retention_ms: int


def _wanted(
    settings: KafkaSettings, options: Mapping[str, str], replicas: int, acks_min: int
) -> list[tuple[str, bool, str, str]]:
    """Options, whether each is as it must be, what it must be, and why."""
    return [
        (
            "cleanup.policy",
            options.get("cleanup.policy") == "delete",
            "delete",
            "compaction would take records out of the middle",
        ),
        (
            "message.timestamp.type",
            options.get("message.timestamp.type") == "LogAppendTime",
            "LogAppendTime",
            "nodes must agree on when a record entered",
        ),
        (
            "unclean.leader.election.enable",
            options.get("unclean.leader.election.enable") == "false",
            "false",
            "an election could take back what was acknowledged",
        ),
        (
            "min.insync.replicas",
            replicas == 1 or acks_min >= 2,
            "2",
            "what was acknowledged must be on two machines",
        ),
        (
            "retention.ms",
            _is_unbounded_or(options.get("retention.ms"), RETENTION_MS_MIN),
            str(settings.retention_ms),
            "a node that is away for longer than that, or joins later, could not read on",
        ),
        (
            "retention.bytes",
            _is_unbounded_or(options.get("retention.bytes"), RETENTION_BYTES_MIN),
            "-1",
            "records would be gone before a node that was away has read them",
        ),
        (
            "max.message.bytes",
            int(options.get("max.message.bytes", _MESSAGE_BYTES)) >= RECORD_BYTES_MIN,
            _MESSAGE_BYTES,
            "no message that is larger could enter the log",
        ),
        (
            "flush.messages",
            not settings.fsync or options.get("flush.messages") == "1",
            "1",
            "cluster.durability is fsync",
        ),
    ]


def _is_unbounded_or(text: str | None, least: int) -> bool:
    value = int(text or -1)
    return value < 0 or value >= least


def facts(settings: KafkaSettings, options: Mapping[str, str], replicas: int) -> TopicFacts:
    """Check what a topic is.

    Args:
        settings: what it is to be.
        options: its settings in Kafka, as texts.
        replicas: copies of its partition.

    Raises:
        ConfigError: it can't be the log of a cluster; the hint says what to change.
    """
    acks_min = int(options.get("min.insync.replicas", "1"))
    for name, is_right, value, reason in _wanted(settings, options, replicas, acks_min):
        if not is_right:
            raise ConfigError(
                f"topic {settings.topic}: {name} is {options.get(name)}, but {reason}",
                path="cluster.name",
                hint=f"kafka-configs.sh --bootstrap-server {settings.servers} --alter "
                f"--topic {settings.topic} --add-config {name}={value}",
            )
    if acks_min > replicas:
        raise ConfigError(
            f"topic {settings.topic}: min.insync.replicas is {acks_min}, but it has {replicas} "
            "replicas: no record would ever count",
            path="cluster.name",
            hint="add replicas, or lower min.insync.replicas",
        )
    request_bytes_max = int(options.get("max.message.bytes", _MESSAGE_BYTES))
    return TopicFacts(
        request_bytes_max - REQUEST_BYTES,
        request_bytes_max,
        replicas,
        acks_min,
        int(options.get("retention.ms", "-1")),
    )


def ensure(settings: KafkaSettings, *, timeout_s: float = OPEN_TIMEOUT_S) -> TopicFacts:
    """Make the topic if it is not there and ``settings.makes_topic``, and check it.

    Args:
        settings: where, and what.
        timeout_s: how long to wait for Kafka, seconds.

    Raises:
        ConfigError: it can't be the log of a cluster, or an option is unknown.
        StorageUnavailable: Kafka does not answer yet.
        StorageError: it does not let us.
    """
    settings.check()
    told: dict[int, KafkaError] = {}

    def hear(error: KafkaError) -> None:
        told[error.code()] = error

    try:
        admin = AdminClient({**settings.shared(), "error_cb": hear})  # type: ignore[dict-item]
    except KafkaException as error:
        raise ConfigError(
            f"librdkafka refuses the settings: {error.args[0].str()}",
            path="cluster.kafka_options",
            hint="a list of name=value, as librdkafka has them",
        ) from error
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            left_s = max(_RETRY_S, deadline - time.monotonic())
            return _ensure_once(admin, settings, min(left_s, _CALL_TIMEOUT_S))
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() not in _PASSING:
                raise refused(reason, settings.servers) from error
            if time.monotonic() > deadline:
                # Nobody is told before this is called.
                admin.poll(0)
                raise _explained(reason, told, settings) from error
            time.sleep(_RETRY_S)


def _explained(
    error: KafkaError, told: Mapping[int, KafkaError], settings: KafkaSettings
) -> StorageError:
    """What a call that has failed in time means, with what connections have said meanwhile."""
    for code, other in told.items():
        if code in _LASTING:
            return refused(other, settings.servers)
    for code in (KafkaError._RESOLVE, KafkaError._TRANSPORT):
        # The call says that it has failed, the connection why.
        if error.code() == KafkaError._TRANSPORT and code in told:
            return unavailable(told[code], settings.servers)
    if error.code() == KafkaError.INVALID_REPLICATION_FACTOR:
        return StorageUnavailable(f"{settings.servers}: too few brokers: {error.str()}")
    return unavailable(error, settings.servers)


def _ensure_once(admin: AdminClient, settings: KafkaSettings, wait_s: float) -> TopicFacts:
    # Of all topics: asking for one may make it.
    found = admin.list_topics(timeout=wait_s)
    topic = found.topics.get(settings.topic)
    if topic is None:
        if not settings.makes_topic:
            raise ConfigError(
                f"{settings.servers} has no topic {settings.topic}",
                path="cluster.name",
                hint="name the cluster, and its servers, as its nodes do",
            )
        _create(admin, settings, broker_count=len(found.brokers))
        # It is known everywhere a moment later.
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    if topic.error is not None:
        raise KafkaException(topic.error)
    if len(topic.partitions) != 1:
        raise ConfigError(
            f"topic {settings.topic} has {len(topic.partitions)} partitions; the log has one order",
            path="cluster.name",
            hint="choose another name, or make the topic with one partition",
        )
    resource = ConfigResource(ResourceType.TOPIC, settings.topic)
    described = admin.describe_configs([resource], request_timeout=_CALL_TIMEOUT_S)
    options = _answer(described[resource])
    texts = {name: str(entry.value) for name, entry in options.items()}
    found_facts = facts(settings, texts, len(topic.partitions[0].replicas))
    _warn(settings, found_facts, broker_count=len(found.brokers))
    return found_facts


def _warn(settings: KafkaSettings, found: TopicFacts, *, broker_count: int) -> None:
    """Tell what breaks no promise of a running node, and yet should be changed."""
    if found.replicas < min(settings.replicas, broker_count):
        log.warning(
            "kafka.topic_few_replicas",
            topic=settings.topic,
            replicas=found.replicas,
            wanted=min(settings.replicas, broker_count),
            hint="kafka-reassign-partitions.sh gives it more",
        )
    if 0 <= found.retention_ms < RETENTION_MS_SHORT:
        log.warning(
            "kafka.topic_short_retention",
            topic=settings.topic,
            hours=round(found.retention_ms / 3_600_000, 1),
            hint="a node that is away for longer must join again: raise retention.ms of the topic",
        )


def _answer(asked: Future[T]) -> T:
    """What Kafka answers; on a busy machine the time-out of the call comes late."""
    try:
        return asked.result(ANSWER_TIMEOUT_S)
    except TimeoutError as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error


def _create(admin: AdminClient, settings: KafkaSettings, *, broker_count: int) -> None:
    replicas = max(1, min(settings.replicas, broker_count))
    options = {
        "cleanup.policy": "delete",
        "message.timestamp.type": "LogAppendTime",
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": str(max(1, min(2, replicas))),
        "retention.ms": str(settings.retention_ms),
        "retention.bytes": "-1",
    }
    if settings.fsync:
        options["flush.messages"] = "1"
    topic = NewTopic(settings.topic, num_partitions=1, replication_factor=replicas, config=options)
    done = admin.create_topics([topic], request_timeout=_CALL_TIMEOUT_S)[settings.topic]
    try:
        _answer(done)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another node was first
            raise
        return
    if replicas < settings.replicas:
        log.warning(
            "kafka.topic_few_replicas",
            topic=settings.topic,
            replicas=replicas,
            wanted=settings.replicas,
        )
