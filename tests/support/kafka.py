"""Kafka brokers of our own: one, or three that are a cluster; to be killed, stopped and started.

Each is a Java process in a temporary folder on free ports of the loopback address, a broker and a
controller in one. What formatting a directory comes to with voters that are known beforehand is one
file, which is written here. The jars come once through Maven (``tools/kafka/pom.xml``) into
``build/kafka``; ``PERDURE_KAFKA_JARS`` names another folder that has them.
"""

from __future__ import annotations

import base64
import fcntl
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, final

from perdure.bench.errors import BenchError
from perdure.bench.ports import free_port
from perdure.storebench.servers.server import Managed
from tests.support.database_servers import Pausable

_ROOT: Final = Path(__file__).parents[2]
_POM: Final = _ROOT / "tools" / "kafka" / "pom.xml"
_JARS: Final = Path(os.environ.get("PERDURE_KAFKA_JARS", _ROOT / "build" / "kafka"))
_FETCHES: Final = 3
"""So often Maven tries: networks fail for moments."""
QUICK_JVM: Final = (
    *("-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-Xshare:auto", "-Djava.awt.headless=true"),
)
"""Options of Java for machines that start quickly and die often: what they do is compiled once, by
the compiler that is done soon."""
SHIPPED_JVM: Final = (
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    *("-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
)
"""Those that Kafka's own start scripts give (4.x): what is measured with them is what operators
have, some minutes after a start."""
_LOGGING: Final = """\
status=error
appender.f.type=Console
appender.f.name=F
appender.f.layout.type=PatternLayout
appender.f.layout.pattern=%d{ABSOLUTE} %p %c{1} %m%n
rootLogger.level=warn
rootLogger.appenderRef.f.ref=F
"""


def why_not() -> str:
    """What this machine lacks for a Kafka; empty = nothing."""
    if shutil.which("java") is None:
        return "Java is not installed"
    if not (_JARS / "complete").exists() and shutil.which("mvn") is None:
        return "Maven is not installed, which fetches Kafka's jars"
    return ""


def jars() -> Path:
    """The folder with Kafka's classpath, fetched once.

    Raises:
        BenchError: Maven can't fetch it.
    """
    done = _JARS / "complete"
    if done.exists():
        return _JARS
    _JARS.mkdir(parents=True, exist_ok=True)
    # One at a time, of the tests that run side by side.
    with (_JARS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
            for left in reversed(range(_FETCHES)):
                fetched = subprocess.run(
                    ["mvn", "-q", "-B", "-f", str(_POM), *goal, f"-DoutputDirectory={_JARS}"],
                    capture_output=True,
                    check=False,
                    stdin=subprocess.DEVNULL,
                )
                if fetched.returncode == 0:
                    break
                if not left:
                    told = fetched.stdout.decode()[-2000:]
                    raise BenchError(f"Maven does not fetch Kafka: {told}")
            done.touch()
    return _JARS


def _identifier() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


@final
class KafkaBroker(Pausable):
    """One broker; made by ``KafkaCluster``.

    Args:
        node_id: its number, from 1.
        cluster_id: the same for all of a cluster.
        jvm: options of Java.

    Attributes:
        controller_port: where the controllers talk.
        options: its settings, complete once the cluster knows all ports.
    """

    NAME: ClassVar[str] = "Kafka"
    PORT_TAKEN: ClassVar[str] = "Address already in use"

    def __init__(self, node_id: int, cluster_id: str, jvm: Sequence[str]) -> None:
        super().__init__()
        self._jvm = tuple(jvm)
        self.port = free_port()  # known to the others before it runs
        self.node_id = node_id
        self.controller_port = free_port()
        self.options: dict[str, str] = {}
        data = self._directory / "data"
        data.mkdir()
        (data / "meta.properties").write_text(
            f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={_identifier()}\n"
        )
        (self._directory / "log4j2.properties").write_text(_LOGGING)

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether its process lives, standing still or not."""
        return self._process is not None and self._process.poll() is None

    def begin(self) -> None:
        """Start it; ``wait`` must follow."""
        self._spawn()

    def wait(self) -> None:
        """Wait until it takes connections.

        Raises:
            BenchError: it ended, or was not ready in time.
        """
        # The others know its port: another one at a second try would not help.
        self._has_run = True
        if not self._wait_ready(time.monotonic()):
            raise BenchError(f"Kafka broker {self.node_id} does not start: {self._tail()}")

    def _spawn(self) -> None:
        options = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "listeners": f"PLAINTEXT://{self.address},"
            f"CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._directory / "data"),
            **self.options,
        }
        lines = [f"{name}={value}\n" for name, value in options.items()]
        (self._directory / "server.properties").write_text("".join(lines))
        super()._spawn()

    def _command(self) -> Sequence[str]:
        logging = f"-Dlog4j2.configurationFile={self._directory}/log4j2.properties"
        properties = str(self._directory / "server.properties")
        return ("java", *self._jvm, logging, "-cp", f"{jars()}/*", "kafka.Kafka", properties)

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 0.2):
                return True
        except OSError:
            return False


@final
class KafkaCluster(Managed):
    """Kafka; a context manager.

    Args:
        count: 1 or 3 brokers.
        settings: server settings besides ours.
        jvm: options of Java.

    Attributes:
        brokers: in the order of their numbers.
    """

    def __init__(
        self,
        count: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = QUICK_JVM,
    ) -> None:
        jars()
        cluster_id = _identifier()
        self.brokers = [KafkaBroker(number, cluster_id, jvm) for number in range(1, count + 1)]
        copies = str(count)
        acks_min = str(max(1, count - 1))
        voters = [f"{broker.node_id}@127.0.0.1:{broker.controller_port}" for broker in self.brokers]
        self._options = {
            "controller.quorum.voters": ",".join(voters),
            "auto.create.topics.enable": "false",
            "default.replication.factor": copies,
            "min.insync.replicas": acks_min,
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": acks_min,
            "group.initial.rebalance.delay.ms": "0",
            "transaction.state.log.num.partitions": "1",
            # Small and quick: these machines die often.
            "num.network.threads": "2",
            "num.io.threads": "2",
            "log.cleaner.dedupe.buffer.size": str(8 << 20),
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "controller.quorum.election.timeout.ms": "500",
            "controller.quorum.fetch.timeout.ms": "1000",
            "replica.lag.time.max.ms": "5000",
            **(settings or {}),
        }
        for broker in self.brokers:
            broker.options = self._options

    @property
    def servers(self) -> str:
        """``host:port`` of all brokers, with commas between."""
        return ",".join(broker.address for broker in self.brokers)

    def start(self) -> float:
        begun = time.monotonic()
        for broker in self.brokers:
            # A broker takes connections only when the controllers have a majority.
            broker.begin()
        for broker in self.brokers:
            broker.wait()
        return time.monotonic() - begun

    def close(self) -> None:
        # At once: in order each would hand its partitions to the next one.
        for broker in self.brokers:
            if broker.is_running:
                broker.kill()
            broker.close()
