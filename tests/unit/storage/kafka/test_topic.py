"""A topic that can't be the log of a cluster is refused with what to change."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from perdure.bench.ports import free_port
from perdure.errors import ConfigError, StorageError, StorageUnavailable
from perdure.storage.kafka import topic
from perdure.storage.kafka.reasons import reason_of
from perdure.storage.kafka.settings import KafkaSettings
from perdure.storage.kafka.topic import REQUEST_BYTES, ensure, facts

SETTINGS = KafkaSettings("kafka:9092", "prod")
GOOD = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "LogAppendTime",
    "unclean.leader.election.enable": "false",
    "min.insync.replicas": "2",
    "max.message.bytes": "1048588",
    "retention.ms": "604800000",
    "flush.messages": "9223372036854775807",
}


def test_a_good_topic_tells_what_it_takes() -> None:
    found = facts(SETTINGS, GOOD, 3)
    assert found.record_bytes_max == 1048588 - REQUEST_BYTES
    assert found.request_bytes_max == 1048588
    assert (found.replicas, found.acks_min, found.retention_ms) == (3, 2, 604800000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("message.timestamp.type", "CreateTime"),
        ("unclean.leader.election.enable", "true"),
        ("min.insync.replicas", "1"),
        ("retention.ms", "3599999"),
        ("retention.bytes", "1073741823"),
        ("max.message.bytes", "65535"),
    ],
)
def test_what_breaks_a_promise_is_refused_with_the_command(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        facts(SETTINGS, {**GOOD, name: value}, 3)
    assert name in refused.value.message
    assert value in refused.value.message
    assert "kafka-configs.sh" in refused.value.hint
    assert f"--add-config {name}=" in refused.value.hint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", "3600000"),
        ("retention.bytes", "-1"),
        ("retention.bytes", "1073741824"),
        ("max.message.bytes", "65536"),
    ],
)
def test_what_breaks_none_is_taken(name: str, value: str) -> None:
    assert facts(SETTINGS, {**GOOD, name: value}, 3).replicas == 3


def test_a_single_copy_is_one_machine_and_says_so() -> None:
    assert facts(SETTINGS, {**GOOD, "min.insync.replicas": "1"}, 1).replicas == 1


def test_more_acks_than_copies_is_refused() -> None:
    with pytest.raises(ConfigError, match="no record would ever count"):
        facts(SETTINGS, {**GOOD, "min.insync.replicas": "3"}, 2)


def test_fsync_is_asked_of_the_topic() -> None:
    durable = KafkaSettings("kafka:9092", "prod", fsync=True)
    with pytest.raises(ConfigError, match=r"flush\.messages"):
        facts(durable, GOOD, 3)
    assert facts(durable, {**GOOD, "flush.messages": "1"}, 3).replicas == 3


def test_an_option_that_the_promises_rest_on_is_not_for_the_operator() -> None:
    for name in ("acks", "enable.idempotence", "auto.offset.reset", "bootstrap.servers"):
        with pytest.raises(ConfigError) as refused:
            KafkaSettings("kafka:9092", "prod", options={name: "0"}).check()
        assert refused.value.path == f"cluster.kafka_options.{name}"


def test_what_is_passed_on_is_passed_on_and_ours_wins() -> None:
    settings = KafkaSettings("kafka:9092", "prod", options={"security.protocol": "SSL"})
    settings.check()
    for told in (settings.producer(record_bytes_max=10_000), settings.consumer()):
        assert told["security.protocol"] == "SSL"
        assert told["bootstrap.servers"] == "kafka:9092"
    assert settings.producer(record_bytes_max=10_000)["acks"] == "all"


def test_an_option_that_nobody_knows_is_a_setting_to_correct() -> None:
    with pytest.raises(ConfigError, match="refuses the settings") as refused:
        ensure(KafkaSettings("127.0.0.1:1", "prod", options={"ssl.ca.loc": "x"}))
    assert refused.value.path == "cluster.kafka_options"


def test_nobody_there_is_said_within_the_time() -> None:
    servers = f"127.0.0.1:{free_port()}"
    with pytest.raises(StorageUnavailable) as refused:
        ensure(KafkaSettings(servers, "prod"), timeout_s=0)
    assert servers in refused.value.message
    assert "cluster.kafka" in refused.value.hint


def test_a_kafka_that_is_silent_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client says nothing in time either: the node waits as for any other outage."""

    class Silent:
        def __init__(self, options: dict[str, Any]) -> None:
            self.brokers = {1: "b"}
            self.topics: dict[str, Any] = {}

        def list_topics(self, timeout: float) -> Silent:
            return self

        def create_topics(self, topics: list[Any], **_: object) -> dict[str, Future[None]]:
            return {each.topic: Future() for each in topics}

        def poll(self, timeout: float) -> int:
            return 0

    monkeypatch.setattr(topic, "AdminClient", Silent)
    monkeypatch.setattr(topic, "ANSWER_TIMEOUT_S", 0.0)
    with pytest.raises(StorageUnavailable, match="in time"):
        ensure(SETTINGS, timeout_s=0)


@pytest.mark.parametrize(
    ("code", "is_lasting", "said"),
    [
        (KafkaError._AUTHENTICATION, True, "refuses the user"),
        (KafkaError._SSL, True, "TLS"),
        (KafkaError._RESOLVE, False, "cannot be resolved"),
        (KafkaError._TRANSPORT, False, "what librdkafka says"),
        (KafkaError._ALL_BROKERS_DOWN, False, "does not answer"),
    ],
)
def test_what_connections_say_explains_a_call_that_times_out(
    monkeypatch: pytest.MonkeyPatch, code: int, is_lasting: bool, said: str
) -> None:
    """librdkafka tells it only to who polls; a refused password would look like an outage."""

    class Refused:
        def __init__(self, options: dict[str, Any]) -> None:
            self._hear = options["error_cb"]

        def list_topics(self, timeout: float) -> None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

        def poll(self, timeout: float) -> int:
            self._hear(KafkaError(code, "what librdkafka says"))
            return 1

    monkeypatch.setattr(topic, "AdminClient", Refused)
    with pytest.raises(StorageError, match=said) as refused:
        ensure(SETTINGS, timeout_s=0)
    assert isinstance(refused.value, StorageUnavailable) != is_lasting
    assert refused.value.hint


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._DESTROY_BROKER,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN,
    ],
)
def test_a_kafka_broker_that_goes_meanwhile_ends_no_start(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """What a broker says that stops, or librdkafka of one that it lets go: another one answers."""

    class Going:
        def __init__(self, options: dict[str, Any]) -> None:
            pass

        def list_topics(self, timeout: float) -> None:
            raise KafkaException(KafkaError(code))

        def poll(self, timeout: float) -> int:
            return 0

    monkeypatch.setattr(topic, "AdminClient", Going)
    with pytest.raises(StorageUnavailable) as refused:
        ensure(SETTINGS, timeout_s=-1)
    assert refused.value.hint


def test_a_closed_connection_names_the_protocol() -> None:
    """A listener that wants TLS or SASL says nothing to who comes without."""
    said = "Disconnected: verify that security.protocol is correctly configured"
    reason = reason_of(KafkaError(KafkaError._TRANSPORT, said))
    assert "security.protocol" in reason.hint
    assert "network" in reason_of(KafkaError(KafkaError._TRANSPORT, "refused")).hint
