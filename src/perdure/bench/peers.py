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

from perdure.bench.client import KEEP_ALIVE_S
from perdure.bench.errors import BenchError
from perdure.bench.launches import (
    Launch,
    command_of,
    launch_mochi,
    launch_mosquitto,
    launch_nats,
    launch_perdure,
    launch_rabbitmq,
    launch_rumqttd,
    mochi_program,
    mochi_version,
    rumqttd_program,
)
from perdure.bench.process import BrokerProcess, free_port
from perdure.bench.result import Broker
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import Connect, Disconnect

_VERSION: Final = re.compile(r"(\d+\.\d+\.\d+)(?:, (compiled|pure))?")
"""Ours says how it was built, too."""
_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/sbin:/sbin"
_HELLO: Final = b"".join(
    encode(packet, 4) for packet in (Connect(4, True, KEEP_ALIVE_S, "bench-hello"), Disconnect())
)
"""A client that comes and goes, with a session that ends with it."""
_RABBITMQ_FOLDER: Final = "/usr/lib/rabbitmq/bin"


@final
class Peer:
    """A kind of broker.

    Args:
        name: what ``--start`` and ``--with`` call it.
        program: executable to look for.
        folder: where to look for it first: what the search path has may be a wrapper for the
            system's own service.
        version: arguments that make it print its version, or what tells it from the program's
            path.
        installed: where its own installer puts it, looked at last.
        durability: what its acknowledgement of a QoS 1 message means.
        launch: (program, directory, port) -> how to start it.
        speaks: protocol levels.
    """

    __slots__ = (
        "_folder",
        "_installed",
        "_launch",
        "_program",
        "_version",
        "durability",
        "name",
        "speaks",
    )

    def __init__(
        self,
        name: str,
        *,
        program: str,
        version: list[str] | Callable[[str], str],
        durability: str,
        launch: Callable[[str, Path, int], Launch],
        speaks: tuple[int, ...],
        folder: str = "",
        installed: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.name = name
        self.durability = durability
        self.speaks = speaks
        self._folder = folder
        self._program = program
        self._version = version
        self._installed = installed
        self._launch = launch

    def program(self) -> str | None:
        """Path of the executable; None if it is not installed."""
        for path in (self._folder, None, _SYSTEM_PATH):
            found = None if path == "" else shutil.which(self._program, path=path)
            if found:
                return found
        return self._installed()

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
            arguments = launch.command[len(command_of(program)) :]
            texts = [" ".join([self.name, *arguments])]
        configuration = "\n".join(texts).replace(str(directory), "DIR").replace(str(port), "PORT")
        if isinstance(self._version, list):
            version = _version_of([*command_of(program), *self._version], launch.environment)
        else:
            version = self._version(program)
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


def _version_in_path(program: str) -> str:
    """The installation folder is named after it."""
    named = _VERSION.search(str(Path(program).resolve()))
    return named[1] if named else ""


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


PEERS: Final[Mapping[str, Peer]] = {
    peer.name: peer
    for peer in (
        Peer(
            "perdure",
            program=sys.executable,
            version=["--version"],
            durability="PUBACK after fsync",
            launch=launch_perdure,
            speaks=(4, 5),
        ),
        Peer(
            "mosquitto",
            program="mosquitto",
            version=["-h"],
            durability="PUBACK from memory; snapshot each 1800 s",
            launch=launch_mosquitto,
            speaks=(4, 5),
        ),
        Peer(
            "nats",
            program="nats-server",
            version=["--version"],
            durability="PUBACK after JetStream stored it in a file; fsync each 2 minutes",
            launch=launch_nats,
            speaks=(4,),
        ),
        Peer(
            "rabbitmq",
            program="rabbitmq-server",
            # What is in the search path runs as another user, with the service's own files.
            folder=_RABBITMQ_FOLDER,
            version=_version_in_path,
            durability="PUBACK after fsync of the classic durable queue, in batches",
            launch=launch_rabbitmq,
            speaks=(4,),
        ),
        Peer(
            "rumqttd",
            program="rumqttd",
            installed=rumqttd_program,
            version=["--version"],
            durability="PUBACK from memory; keeps nothing on disk",
            launch=launch_rumqttd,
            # Version 5.0 has a listener of its own, on another port.
            speaks=(4,),
        ),
        Peer(
            "mochi",
            program="mochi",
            installed=mochi_program,
            version=mochi_version,
            durability="PUBACK from memory; keeps nothing on disk",
            launch=launch_mochi,
            speaks=(4, 5),
        ),
    )
}
"""Brokers by the name that ``--start`` takes."""
