"""A node and a Kafka that is not there: at the start, for a while, and as it should not be."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from perdure.bench.ports import free_port
from perdure.cli.exit_codes import ExitCode
from tests import servers
from tests.support.bounds import HANG_S
from tests.support.kafka import KafkaCluster
from tests.wire.harness import Options
from tests.wire.packets import Kind, Reason
from tests.wire.process_broker import ProcessBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

OUTAGE_MAX_S = 4


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    """One broker of our own, which is taken away. Its topics are synced at each record."""
    with KafkaCluster(1) as running:
        yield running


def node(kafka: KafkaCluster, directory: Path, **settings: str) -> ProcessBroker:
    directory.mkdir()
    chosen = {
        "node.name": "n1",
        "cluster.name": servers.kafka_topic(),
        "cluster.kafka": kafka.servers,
        "http.bind": f"127.0.0.1:{free_port()}",
        "storage.outage_max": f"{OUTAGE_MAX_S}s",
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    return ProcessBroker(directory, Options(settings=chosen))


def readiness(broker: ProcessBroker) -> tuple[int, str]:
    """Status and body of ``/readyz``; 0 = nobody answers."""
    url = f"http://{broker.options.settings['http.bind']}/api/v1/readyz"
    try:
        with urllib.request.urlopen(url, timeout=HANG_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def until(holds: Callable[[], bool], *, timeout_s: float = HANG_S) -> None:
    end_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end_s, "it does not come"
        time.sleep(0.05)


def test_a_node_waits_for_kafka_and_serves_when_it_comes(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    kafka.brokers[0].kill()
    broker = node(kafka, tmp_path / "n1", cluster__durability="fsync")
    broker.spawn()
    until(lambda: "waits for Kafka" in readiness(broker)[1])
    status, body = readiness(broker)
    assert status == 503
    assert json.loads(body)["code"] == "not_ready"
    assert "no Kafka broker answers" in body or "does not answer" in body
    kafka.start()
    broker.until_accepting()
    until(lambda: readiness(broker)[0] == 200)
    assert "cluster.waiting" in broker.log.read_text()
    # fsync is a setting of the topic.
    name = broker.options.settings["cluster.name"]
    resource = ConfigResource(ResourceType.TOPIC, f"perdure.{name}.log")
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    found = admin.describe_configs([resource])[resource].result(HANG_S)
    assert found["flush.messages"].value == "1"
    try:
        _goes_through_an_outage(kafka, broker)
    finally:
        broker.close_peers()
        broker.close()


def _goes_through_an_outage(kafka: KafkaCluster, broker: ProcessBroker) -> None:
    reader = broker.connect("reader", expiry=600)
    reader.subscribe(("t", 2))
    publisher = broker.connect("publisher", expiry=600)
    publisher.publish("t", b"before", qos=1)
    reader.receive_publish("t", b"before", qos=1)
    kafka.brokers[0].kill()
    publisher.send(publisher.build.publish("t", b"waits", qos=2, packet_id=7))
    until(lambda: readiness(broker)[0] == 503)
    # Nobody is told what is not so; after a while clients are to look elsewhere.
    publisher.expect_refusal(Reason.SHUTTING_DOWN, timeout_s=HANG_S)
    kafka.start()
    until(lambda: readiness(broker)[0] == 200)
    again = broker.connect("publisher", clean=False, expiry=600, session_present=True)
    again.send(again.build.publish("t", b"waits", qos=2, packet_id=7, dup=True))
    again.expect_ack(Kind.PUBREC, 7)
    again.send(again.build.pubrel(7))
    again.expect_ack(Kind.PUBCOMP, 7)
    again.publish("t", b"after", qos=2)
    back = broker.connect("reader", clean=False, expiry=600, session_present=True)
    found = [back.take_publish()]
    while found[-1].payload != b"after":
        found.append(back.take_publish())
    assert [each.payload for each in found if each.qos == 2] == [b"waits", b"after"]


def test_a_name_that_is_given_twice_ends_the_first_with_a_word(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    """Not with a code after which a supervisor starts it again: the two would take turns."""
    first = node(kafka, tmp_path / "first")
    first.start()
    settings = first.options.settings
    again = {"cluster__name": settings["cluster.name"], "node__name": settings["node.name"]}
    second = node(kafka, tmp_path / "second", **again)
    second.start()
    assert first.wait() == ExitCode.CONFIG
    assert "another process has joined the cluster as node" in first.log_tail()
    assert "node.name" in first.log_tail()
    second.ensure_running()
    second.close()


def test_a_refused_user_is_told_and_not_waited_for(tmp_path: Path) -> None:
    """Kafka closes the connection; to who only asks for topics it looks as if it were away."""
    kafka = KafkaCluster(1)
    (broker,) = kafka.brokers
    port = free_port()
    plain, guarded = f"PLAINTEXT://{broker.address}", f"GUARDED://127.0.0.1:{port}"
    broker.options = {
        **broker.options,
        "listeners": f"{plain},CONTROLLER://127.0.0.1:{broker.controller_port},{guarded}",
        "advertised.listeners": f"{plain},{guarded}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "GUARDED:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.guarded.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain."
        'PlainLoginModule required user_ada="right";',
    }
    with kafka:
        for password, code in (("right", ExitCode.OK), ("wrong", ExitCode.UNAVAILABLE)):
            options = "security.protocol=SASL_PLAINTEXT,sasl.mechanism=PLAIN"
            asks = node(
                kafka,
                tmp_path / password,
                cluster__kafka=f"127.0.0.1:{port}",
                cluster__kafka_options=f"[{options},sasl.username=ada,sasl.password={password}]",
            )
            if code == ExitCode.OK:
                asks.start()
                assert asks.stop() == code
                continue
            asks.spawn()
            assert asks.wait() == code
            assert "Kafka refuses the user" in asks.log_tail()
            assert "cluster.kafka_options" in asks.log_tail()


def test_a_start_that_gives_up_and_one_that_cannot_help_itself(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    away = node(
        kafka,
        tmp_path / "away",
        cluster__kafka=f"127.0.0.1:{free_port()}",
        cluster__start_timeout_s="1",
    )
    away.spawn()
    assert away.wait() != 0
    assert "waited" in away.log_tail()
    # A topic that somebody has made so that it breaks a promise is told with the command.
    made = node(kafka, tmp_path / "made")
    made.start()
    made.close()
    name = made.options.settings["cluster.name"]
    wrong = node(kafka, tmp_path / "wrong", cluster__name=name, cluster__durability="fsync")
    wrong.spawn()
    assert wrong.wait() != 0
    assert "flush.messages" in wrong.log_tail()
    assert "kafka-configs.sh" in wrong.log_tail()
