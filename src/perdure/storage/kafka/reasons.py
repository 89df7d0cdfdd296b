"""What librdkafka says, for somebody who may never have seen Kafka's codes."""

from __future__ import annotations

from typing import Final, NamedTuple, final

from confluent_kafka import KafkaError

from perdure.errors import StorageError, StorageUnavailable

_UNREACHABLE: Final = "no Kafka broker answers"
_GONE: Final = "the topic does not exist any more"
_GONE_HINT: Final = "it was deleted, or cluster.kafka names another Kafka than before"
_LOGS_HINT: Final = "see the logs of the Kafka brokers"
_PROTOCOL: Final = "security.protocol"
_RIGHTS: Final = "Kafka does not let this user"

_REASONS: Final[dict[int, tuple[str, str]]] = {
    KafkaError._ALL_BROKERS_DOWN: (_UNREACHABLE, "check cluster.kafka and the network"),
    KafkaError._TRANSPORT: (
        "a Kafka broker does not answer",
        "check cluster.kafka and the network",
    ),
    KafkaError._DESTROY_BROKER: (
        "a Kafka broker has gone while it was asked",
        "check cluster.kafka and the network",
    ),
    KafkaError._TIMED_OUT: (
        "Kafka does not answer in time",
        "check cluster.kafka and the network",
    ),
    KafkaError.REQUEST_TIMED_OUT: (
        "Kafka has not confirmed a record in time",
        "check that enough replicas of the topic are in sync",
    ),
    KafkaError.NOT_ENOUGH_REPLICAS: (
        "too few replicas of the topic are in sync",
        "start the Kafka brokers that are missing",
    ),
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "too few replicas of the topic are in sync",
        "start the Kafka brokers that are missing",
    ),
    KafkaError._AUTO_OFFSET_RESET: (
        "a Kafka broker does not have what this node has read",
        "the node asks again: a broker that stood still says so for a moment when it wakes",
    ),
    KafkaError.LEADER_NOT_AVAILABLE: (
        "the topic has no leader",
        "start the Kafka brokers that are missing",
    ),
    KafkaError._RESOLVE: ("a name in cluster.kafka cannot be resolved", "check cluster.kafka"),
    KafkaError._SSL: (
        "TLS with Kafka fails",
        "check ssl.ca.location and security.protocol in cluster.kafka_options",
    ),
    KafkaError._AUTHENTICATION: (
        "Kafka refuses the user",
        "check the sasl settings in cluster.kafka_options",
    ),
    KafkaError.SASL_AUTHENTICATION_FAILED: (
        "Kafka refuses the user",
        "check the sasl settings in cluster.kafka_options",
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        f"{_RIGHTS} use the topic",
        "allow Read, Write, Describe, DescribeConfigs and Create on it",
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (
        f"{_RIGHTS} write",
        "allow IdempotentWrite on the cluster",
    ),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (
        f"{_RIGHTS} read",
        "allow Read on the group 'perdure'",
    ),
    KafkaError.UNKNOWN_TOPIC_OR_PART: (_GONE, _GONE_HINT),
    KafkaError._UNKNOWN_TOPIC: (_GONE, _GONE_HINT),
    KafkaError._UNKNOWN_PARTITION: (_GONE, _GONE_HINT),
    # What waits for a partition that goes away is answered with this one, now and then.
    KafkaError._DESTROY: (_GONE, _GONE_HINT),
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "Kafka refuses a record for its size",
        "the topic's max.message.bytes was lowered: raise it again, and restart the node",
    ),
    KafkaError.UNSUPPORTED_VERSION: (
        "this Kafka is too old",
        "Perdure needs idempotent producers: Apache Kafka 0.11 or newer",
    ),
}


@final
class Reason(NamedTuple):
    """Why something does not work.

    Attributes:
        text: what is wrong.
        hint: what to do about it; empty = nobody knows.
        detail: what librdkafka says.
    """

    text: str
    hint: str
    detail: str

    def __str__(self) -> str:
        return f"{self.text} ({self.detail})"


def reason_of(error: KafkaError) -> Reason:
    """A sentence and a hint for an error.

    Args:
        error: as librdkafka reports it.
    """
    text, hint = _REASONS.get(error.code(), ("Kafka reports an error", _LOGS_HINT))
    if _PROTOCOL in error.str():
        # librdkafka's guess where a broker closes a connection that has just begun.
        hint = f"check {_PROTOCOL} in cluster.kafka_options: the listener may want TLS or SASL"
    return Reason(text, hint, error.str())


def refused(error: KafkaError, servers: str) -> StorageError:
    """The error to raise where waiting does not help: somebody has to change something.

    Args:
        error: as librdkafka reports it.
        servers: where the log is.
    """
    reason = reason_of(error)
    return StorageError(f"{servers}: {reason}", hint=reason.hint)


def unavailable(error: KafkaError, servers: str) -> StorageError:
    """The error to raise for one of Kafka's.

    Args:
        error: as librdkafka reports it.
        servers: where the log is.
    """
    reason = reason_of(error)
    return StorageUnavailable(f"{servers}: {reason}", hint=reason.hint)
