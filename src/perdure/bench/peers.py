"""Brokers that the tool can start, each with a stated configuration and what its PUBACK means.

A peer is started on a free port of the loopback address with an empty directory. Configurations
lift limits that would turn messages away (queue lengths, inflight windows); they do not tune.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, final

import perdure
from perdure.bench.errors import BenchError
from perdure.bench.process import BrokerProcess, free_port
from perdure.bench.result import Broker
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import Connect, Disconnect

_VERSION: Final = re.compile(r"(\d+\.\d+\.\d+)(?:, (compiled|pure))?")
"""Ours says how it was built, too."""
_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/sbin:/sbin"
_HELLO: Final = b"".join(
    encode(packet, 4) for packet in (Connect(4, True, 0, "bench-hello"), Disconnect())
)
"""A client that comes and goes, with a session that ends with it."""
_RABBITMQ_FOLDER: Final = "/usr/lib/rabbitmq/bin"


@final
class Launch:
    """How to start a broker.

    Attributes:
        command: program and arguments.
        files: configuration files to write, by name.
        environment: variables.
    """

    __slots__ = ("command", "environment", "files")

    def __init__(
        self,
        command: list[str],
        *,
        files: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.command = command
        self.files = dict(files or {})
        self.environment = dict(environment or {})


@final
class Peer:
    """A kind of broker.

    Args:
        name: what ``--start`` and ``--with`` call it.
        program: executable to look for.
        folder: where to look for it first: what the search path has may be a wrapper for the
            system's own service.
        version_args: make it print its version; None = its installation folder is named after it.
        durability: what its acknowledgement of a QoS 1 message means.
        launch: (program, directory, port) -> how to start it.
        speaks: protocol levels.
    """

    __slots__ = (
        "_folder",
        "_launch",
        "_program",
        "_version_args",
        "durability",
        "name",
        "speaks",
    )

    def __init__(
        self,
        name: str,
        *,
        program: str,
        version_args: list[str] | None,
        durability: str,
        launch: Callable[[str, Path, int], Launch],
        speaks: tuple[int, ...],
        folder: str = "",
    ) -> None:
        self.name = name
        self.durability = durability
        self.speaks = speaks
        self._folder = folder
        self._program = program
        self._version_args = version_args
        self._launch = launch

    def program(self) -> str | None:
        """Path of the executable; None if it is not installed."""
        for path in (self._folder, None, _SYSTEM_PATH):
            found = None if path == "" else shutil.which(self._program, path=path)
            if found:
                return found
        return None

    def prepare(
        self,
        directory: Path,
        *,
        program: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> StartedPeer:
        """Write its configuration into a directory; starts nothing yet.

        Args:
            directory: is made if it is not there.
            program: executable, instead of the one that is found.
            environment: variables besides those that it wants.

        Raises:
            BenchError: it is not installed.
        """
        program = program or self.program()
        if program is None:
            raise BenchError(f"{self.name} is not installed: no {self._program} to be found")
        port = free_port()
        directory.mkdir(parents=True, exist_ok=True)
        launch = self._launch(program, directory, port)
        launch.environment.update(environment or {})
        for name, text in launch.files.items():
            (directory / name).write_text(text, encoding="utf-8")
        process = BrokerProcess(
            launch.command,
            host="127.0.0.1",
            port=port,
            directory=directory,
            environment=launch.environment,
            greeting=_HELLO,
        )
        return StartedPeer(self, process, port, self._describe(program, launch, directory, port))

    def _describe(self, program: str, launch: Launch, directory: Path, port: int) -> Broker:
        texts = list(launch.files.values())
        if not texts:
            arguments = launch.command[len(_command(program)) :]
            texts = [" ".join([self.name, *arguments])]
        configuration = "\n".join(texts).replace(str(directory), "DIR").replace(str(port), "PORT")
        if self._version_args is None:
            named = _VERSION.search(str(Path(program).resolve()))
            version = named[1] if named else ""
        else:
            version = _version_of([*_command(program), *self._version_args], launch.environment)
        return Broker(
            name=self.name,
            version=version,
            durability=self.durability,
            configuration=configuration.strip(),
        )


@final
class StartedPeer:
    """A broker with its configuration written, to be started and ended.

    Attributes:
        peer: its kind.
        process: to start and stop.
        port: where it will listen.
        broker: what records say of it.
    """

    __slots__ = ("broker", "peer", "port", "process")

    def __init__(self, peer: Peer, process: BrokerProcess, port: int, broker: Broker) -> None:
        self.peer = peer
        self.process = process
        self.port = port
        self.broker = broker


def _perdure(program: str, directory: Path, port: int) -> Launch:
    serve = ["serve", "--data", str(directory / "data"), "--bind", f"127.0.0.1:{port}"]
    # The child runs the code that runs here, wherever it was imported from.
    environment = {"PYTHONPATH": str(Path(perdure.__file__).parents[1])}
    return Launch(
        [*_command(program), *serve],
        environment=environment if program == sys.executable else None,
    )


def _mosquitto(program: str, directory: Path, port: int) -> Launch:
    text = (
        f"listener {port} 127.0.0.1\n"
        "allow_anonymous true\n"
        "max_inflight_messages 1000\n"
        "max_queued_messages 0\n"
        "persistence true\n"
        f"persistence_location {directory}/\n"
    )
    # Started by root, it would become a user that cannot write into the directory.
    text += "user root\n"
    return Launch(
        [program, "-c", str(directory / "mosquitto.conf")], files={"mosquitto.conf": text}
    )


def _nats(program: str, directory: Path, port: int) -> Launch:
    text = (
        "server_name: bench\n"
        "listen: 127.0.0.1:-1\n"
        f'jetstream {{ store_dir: "{directory}/jetstream" }}\n'
        f"mqtt {{ listen: 127.0.0.1:{port}, max_ack_pending: 1000 }}\n"
    )
    return Launch([program, "-c", str(directory / "nats.conf")], files={"nats.conf": text})


def _rabbitmq(program: str, directory: Path, port: int) -> Launch:
    text = (
        f"listeners.tcp = none\nmqtt.listeners.tcp.1 = 127.0.0.1:{port}\n"
        "mqtt.allow_anonymous = true\nmqtt.default_user = guest\nmqtt.default_pass = guest\n"
        "mqtt.prefetch = 1000\nmqtt.subscription_ttl = 86400000\n"
    )
    epmd_port = str(free_port())
    environment = {
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        # Of the system's own service: user, paths, limits.
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": epmd_port,
        # The cookie that the node and its tools share is made there.
        "HOME": str(directory),
    }
    # Erlang would start the port mapper as a daemon that outlives the broker; started here, it
    # belongs to the broker's group of processes and ends with it.
    command = ["/bin/sh", "-c", 'epmd -port "$1" & exec "$0"', program, epmd_port]
    files = {"rabbitmq.conf": text, "enabled_plugins": "[rabbitmq_mqtt].\n"}
    return Launch(command, files=files, environment=environment)


def _version_of(command: list[str], environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - a program that was found by its name
            command,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, **environment},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = _VERSION.search(done.stdout + done.stderr)
    return " ".join(part for part in match.groups() if part) if match else ""


def _command(program: str) -> list[str]:
    """A program as a command: our own interpreter stands for the package that runs in it."""
    return [program, "-m", "perdure"] if program == sys.executable else [program]


PEERS: Final[Mapping[str, Peer]] = {
    peer.name: peer
    for peer in (
        Peer(
            "perdure",
            program=sys.executable,
            version_args=["--version"],
            durability="PUBACK after fsync",
            launch=_perdure,
            speaks=(4, 5),
        ),
        Peer(
            "mosquitto",
            program="mosquitto",
            version_args=["-h"],
            durability="PUBACK from memory; snapshot each 1800 s",
            launch=_mosquitto,
            speaks=(4, 5),
        ),
        Peer(
            "nats",
            program="nats-server",
            version_args=["--version"],
            durability="PUBACK after JetStream stored it in a file; fsync each 2 minutes",
            launch=_nats,
            speaks=(4,),
        ),
        Peer(
            "rabbitmq",
            program="rabbitmq-server",
            # What is in the search path runs as another user, with the service's own files.
            folder=_RABBITMQ_FOLDER,
            version_args=None,
            durability="PUBACK after fsync of the classic durable queue, in batches",
            launch=_rabbitmq,
            speaks=(4,),
        ),
    )
}
"""Brokers by the name that ``--start`` takes."""
