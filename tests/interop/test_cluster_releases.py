"""Two releases side by side: nodes are upgraded one after the other, and may be taken back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from perdure.cli.exit_codes import ExitCode
from perdure.storage.ordered.record import Record, encode_record
from tests import servers
from tests.support.bounds import HANG_S
from tests.support.later_release import LATER, TODAY
from tests.wire.harness import Options
from tests.wire.packets import Kind
from tests.wire.peer import Peer
from tests.wire.process_broker import ProcessBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

NEW = "tests.support.later_release"
OLD = "perdure"


class Cluster:
    """Three nodes, each of a release, and what is published through all of them."""

    def __init__(self, directory: Path) -> None:
        self.name = servers.kafka_topic()
        self.nodes = []
        self.published = 0
        for name in ("n1", "n2", "n3"):
            (directory / name).mkdir()
            settings = {
                "node.name": name,
                "cluster.name": self.name,
                "cluster.kafka": servers.kafka().servers,
                "cluster.dead_after": "3s",
            }
            self.nodes.append(ProcessBroker(directory / name, Options(settings=settings)))

    def run(self, number: int, release: str) -> None:
        """Start a node that does not run."""
        self.nodes[number].module = release
        self.nodes[number].start()

    def upgrade(self, number: int) -> None:
        """End a node in order, and start it as the later release."""
        self.nodes[number].close_peers()
        assert self.nodes[number].stop() == 0
        self.run(number, NEW)

    def publish(self) -> None:
        """Through each node that runs, with a client that comes to one after the other."""
        for node in self.nodes:
            if node.is_running:
                publisher = node.connect("publisher", clean=False, expiry=600)
                publisher.publish("t", b"%d" % self.published, qos=2)
                self.published += 1
                publisher.disconnect()

    def versions(self) -> set[int]:
        """Of the records that the log has behind those that were looked at."""
        consumer = Consumer({"bootstrap.servers": servers.kafka().servers, "group.id": "x"})
        place = TopicPartition(f"perdure.{self.name}.log", 0)
        _, end = consumer.get_watermark_offsets(place, timeout=HANG_S)
        place.offset = getattr(self, "_seen", 0)
        self._seen = end
        consumer.assign([place])
        found: set[int] = set()
        count = end - place.offset
        while count > 0:
            for message in consumer.consume(count, 1.0):
                assert message.error() is None
                value = message.value()
                assert isinstance(value, bytes)
                if message.offset() < end:  # type: ignore[operator]
                    found.add(value[0])
                count -= 1
        consumer.close()
        return found

    def reader(self, number: int) -> Peer:
        """A client that has read nothing yet of what is published."""
        return self.nodes[number].connect("reader", clean=False, expiry=600)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    for node in made.nodes:
        node.close_peers()
        node.close()


def test_a_rolling_upgrade(cluster: Cluster) -> None:
    """The later version is written once every node reads it, also one that has died meanwhile."""
    for number in range(3):
        cluster.run(number, OLD)
    reader = cluster.reader(0)
    reader.subscribe(("t", 2))
    reader.disconnect()
    cluster.publish()
    for number in (0, 1):
        cluster.upgrade(number)
        cluster.publish()
    # Two of three are of the later release. The third dies, is expelled, and comes back as it was.
    cluster.nodes[2].kill9(start=False)
    for _ in range(50):
        cluster.publish()
        cluster.nodes[0].elapse(0.1)
    assert cluster.versions() == {TODAY}
    cluster.run(2, OLD)
    cluster.publish()
    # And one of the others is taken back.
    cluster.nodes[0].close_peers()
    assert cluster.nodes[0].stop() == 0
    cluster.run(0, OLD)
    cluster.publish()
    assert cluster.versions() == {TODAY}
    cluster.upgrade(0)
    cluster.upgrade(2)
    cluster.publish()
    assert LATER in cluster.versions()
    cluster.publish()
    assert cluster.versions() == {LATER}

    back = cluster.reader(2)
    for number in range(cluster.published):
        back.receive_publish("t", b"%d" % number, qos=2, dup=False)
    # From here on there is no way back.
    cluster.nodes[1].close_peers()
    assert cluster.nodes[1].stop() == 0
    cluster.nodes[1].module = OLD
    cluster.nodes[1].spawn()
    assert cluster.nodes[1].wait() == ExitCode.DATA
    assert "upgrade this node" in cluster.nodes[1].log_tail()
    cluster.run(1, NEW)
    for node in cluster.nodes:
        node.close_peers()
        node.close()
    place = ["--kafka", servers.kafka().servers, "--name", cluster.name]
    data = [str(node.directory / "data") for node in cluster.nodes]
    verified = subprocess.run(
        [sys.executable, "-m", NEW, "cluster", "verify", *place, *data],
        capture_output=True,
        check=False,
    )
    assert verified.returncode == ExitCode.OK, verified


@pytest.mark.parametrize("what", ["act", "operation", "batch"])
def test_what_a_later_release_says_in_a_known_version_ends_a_node(
    cluster: Cluster, what: str
) -> None:
    """It is not passed over, and not tried again and again as if the log were away."""
    node = cluster.nodes[0]
    node.start()
    client = node.connect("c")
    client.send(client.build.publish("t", b"x", qos=1, packet_id=1))
    client.expect_ack(Kind.PUBACK, 1)
    head = encode_record(Record("n9", 9, 1))[:-2]
    join, unknown = b"\1\0\0\0\1" + bytes([TODAY]), b"\x63\0\0\0\0"
    value = {
        "act": head + b"\0\2" + join + unknown,
        "operation": head + b"\0\1" + join + b"\1" + bytes(8) + unknown,
        "batch": head + b"\0\1" + join + b"\2" + bytes(8),
    }[what]
    producer = Producer({"bootstrap.servers": servers.kafka().servers})
    producer.produce(f"perdure.{cluster.name}.log", value)
    assert producer.flush(HANG_S) == 0
    assert node.wait() == ExitCode.DATA
    assert "upgrade this node" in node.log_tail()
