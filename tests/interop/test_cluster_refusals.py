"""A start of a node that is refused leaves its directory as it was: an empty one is empty."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from perdure.bench.ports import free_port
from perdure.cli.exit_codes import ExitCode
from tests import servers
from tests.support.bounds import HANG_S
from tests.wire.harness import Options
from tests.wire.process_broker import ProcessBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def node(directory: Path, **settings: str) -> ProcessBroker:
    """One that is not started yet."""
    directory.mkdir(exist_ok=True)
    chosen = {
        "node.name": directory.name,
        "cluster.name": servers.kafka_topic(),
        "cluster.kafka": servers.kafka().servers,
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    return ProcessBroker(directory, Options(settings=chosen))


def single(directory: Path) -> ProcessBroker:
    """A broker without a cluster, which is ended and has retained a message."""
    directory.mkdir()
    broker = ProcessBroker(directory, Options())
    broker.start()
    broker.connect("publisher").publish("kept", b"retained", qos=1, retain=True)
    broker.close_peers()
    assert broker.stop() == 0
    return broker


def left(broker: ProcessBroker) -> list[str]:
    """What is in its data directory, but for the lock that every process makes."""
    data = broker.directory / "data"
    found = [each.name for each in data.iterdir()] if data.exists() else []
    return [name for name in found if name != "perdure.lock"]


def without_kafka(tmp_path: Path) -> tuple[ProcessBroker, int, str]:
    kafka = f"127.0.0.1:{free_port()}"
    broker = node(tmp_path / "n1", cluster__kafka=kafka, cluster__start_timeout_s="1")
    return broker, ExitCode.UNAVAILABLE, "a Kafka broker does not answer"


def with_a_wrong_topic(tmp_path: Path) -> tuple[ProcessBroker, int, str]:
    name = servers.kafka_topic()
    admin = AdminClient({"bootstrap.servers": servers.kafka().servers})
    topic = NewTopic(f"perdure.{name}.log", 2, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([topic])[topic.topic].result(HANG_S)
    return node(tmp_path / "n1", cluster__name=name), ExitCode.CONFIG, "partition"


def beside_another_state(tmp_path: Path) -> tuple[ProcessBroker, int, str]:
    """The cluster began with the directory of a single broker."""
    name = servers.kafka_topic()
    single(tmp_path / "n1")
    first = node(tmp_path / "n1", cluster__name=name)
    first.start()
    first.close()
    broker = node(tmp_path / "n2", cluster__name=name)
    return broker, ExitCode.UNAVAILABLE, "began with the state of another directory"


@pytest.mark.parametrize("refusal", [without_kafka, with_a_wrong_topic, beside_another_state])
def test_an_empty_directory_stays_empty(
    refusal: Callable[[Path], tuple[ProcessBroker, int, str]], tmp_path: Path
) -> None:
    broker, code, said = refusal(tmp_path)
    broker.spawn()
    assert broker.wait() == code
    assert said in broker.log_tail()
    assert left(broker) == []


def test_nothing_is_made_while_a_node_waits_for_kafka(tmp_path: Path) -> None:
    """Whoever gives up waiting, by whatever signal, may do something else with the directory."""
    kafka = f"127.0.0.1:{free_port()}"
    broker = node(tmp_path / "n1", cluster__kafka=kafka)
    broker.spawn()
    end_s = time.monotonic() + HANG_S
    while "cluster.waiting" not in broker.log_tail():
        assert time.monotonic() < end_s, broker.log_tail()
        time.sleep(0.02)
    assert left(broker) == []
    broker.kill9(start=False)


def test_what_a_directory_had_stays(tmp_path: Path) -> None:
    """A start that is refused removes nothing that was there."""
    name = servers.kafka_topic()
    begun = node(tmp_path / "n1", cluster__name=name)
    begun.start()
    alone = single(tmp_path / "n2")
    late = node(tmp_path / "n2", cluster__name=name)
    late.spawn()
    assert late.wait() == ExitCode.UNAVAILABLE
    begun.close()
    alone.start()
    reader = alone.connect("reader")
    reader.subscribe(("kept", 1))
    reader.receive_publish("kept", b"retained", qos=1, retain=True)
    alone.close_peers()
    alone.close()
