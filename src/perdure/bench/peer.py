"""A broker that the tool can start, with a stated configuration and what its PUBACK means.

A peer is started on a free port of the loopback address with an empty directory. Configurations
lift limits that would turn messages away (queue lengths, inflight windows); they do not tune.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final, final

from perdure.bench.client import KEEP_ALIVE_S
from perdure.bench.errors import BenchError
from perdure.bench.ports import free_port
from perdure.bench.process import BrokerProcess
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


@final
@dataclass(slots=True)
class Launch:
    """How to start a broker.

    Attributes:
        command: program and arguments.
        files: configuration files to write, by name.
        environment: variables.
    """

    command: list[str]
    _: KW_ONLY
    files: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


@final
@dataclass(slots=True)
class Peer:
    """A kind of broker.

    Attributes:
        name: what ``--start`` and ``--with`` call it.
        program_name: executable to look for.
        command: what is called of it, before its arguments.
        folder: where to look for it first: what the search path has may be a wrapper for the
            system's own service.
        version: arguments that make it print its version, or what tells it from the program's
            path.
        installed: where its own installer puts it, looked at last.
        durability: what its acknowledgement of a QoS 1 message means.
        launch: (program, directory, port) -> how to start it.
        speaks: protocol levels.
    """

    name: str
    _: KW_ONLY
    program_name: str
    version: list[str] | Callable[[str], str]
    durability: str
    launch: Callable[[str, Path, int], Launch]
    speaks: tuple[int, ...]
    command: Callable[[str], list[str]] = lambda program: [program]
    folder: str = ""
    installed: Callable[[], str | None] = lambda: None

    def program(self) -> str | None:
        """Path of the executable; None if it is not installed."""
        for path in (self.folder, None, _SYSTEM_PATH):
            found = None if path == "" else shutil.which(self.program_name, path=path)
            if found:
                return found
        return self.installed()

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
            raise BenchError(f"{self.name} is not installed: no {self.program_name} to be found")
        port = free_port()
        directory.mkdir(parents=True, exist_ok=True)
        launch = self.launch(program, directory, port)
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
            arguments = launch.command[len(self.command(program)) :]
            texts = [" ".join([self.name, *arguments])]
        configuration = "\n".join(texts).replace(str(directory), "DIR").replace(str(port), "PORT")
        if isinstance(self.version, list):
            version = _version_of([*self.command(program), *self.version], launch.environment)
        else:
            version = self.version(program)
        return Broker(
            name=self.name,
            version=version,
            durability=self.durability,
            configuration=configuration.strip(),
        )


@final
@dataclass(slots=True)
class StartedPeer:
    """A broker with its configuration written, to be started and ended.

    Attributes:
        peer: its kind.
        process: to start and stop.
        port: where it will listen.
        broker: what records say of it.
    """

    peer: Peer
    process: BrokerProcess
    port: int
    broker: Broker


def version_in_path(program: str) -> str:
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
