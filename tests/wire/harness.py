"""One broker process for byte-level cases.

``Broker`` owns one real process on a free port of 127.0.0.1 and hands out its clients, which it
closes when the case ends. Nothing here may import ``perdure``.

``PERDURE_WIRE_BROKER=mosquitto`` runs the same cases on Mosquitto, which checks the cases
themselves: there a close without a reason code passes, and a case that still fails cites the
clause that Mosquitto breaks. ``PERDURE_TEST_BACKEND`` puts the broker's state into a server.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from tests import servers
from tests.wire.packets import Prop, Properties, Will
from tests.wire.peer import SUBJECT, TIMEOUT_S, Peer

START_TIMEOUT_S: Final = 20.0


def elapse(seconds: float) -> None:
    """Lets real time pass, for the cases whose subject is an interval of the specification.

    The intervals of the protocol are whole seconds of the broker's own clock, which another
    process cannot move. Such cases are marked ``slow``.
    """
    time.sleep(seconds)


@final
@dataclass(frozen=True, kw_only=True)
class Options:
    """How a module wants its broker configured; a module states it as ``BROKER_OPTIONS``.

    Attributes:
        settings: ``--set`` settings of Perdure; ``{directory}`` stands for the broker's own.
        mosquitto: lines that give Mosquitto the same behaviour; ``{directory}`` as above.
        users: names and passwords that go into the file ``users`` of the directory.
        files: names and contents of further files there.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    mosquitto: tuple[str, ...] = ()
    users: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@final
class Broker:
    """One broker process on its own data directory."""

    def __init__(self, directory: Path, options: Options) -> None:
        self.directory = directory
        self.options = options
        self._settings = {**servers.settings(), **options.settings}
        self.port = 0
        self.log = directory / "broker.log"
        self._log_checked = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._peers: list[Peer] = []

    # --- process ------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the process and returns when it accepts connections."""
        if not self.port:
            self._write_files()
        for attempt in range(3):
            port = self.port or _free_port()
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command(port), stdout=log, stderr=log, stdin=subprocess.DEVNULL
                )
            if self._accepts(port):
                self.port = port
                return
            if attempt == 2 or self.port:
                break  # else the port was taken between the choice and the bind: take another
        raise AssertionError(f"the broker did not start:\n{self.log_tail()}")

    def stop(self) -> int:
        """Ends the process with SIGTERM; returns its exit code."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        for peer in self._peers:
            peer.wait_end()  # a client that is told to go closes too; else the broker waits
        try:
            return process.wait(TIMEOUT_S * 2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError("the broker did not end on SIGTERM") from None

    def restart(self) -> None:
        """Stops in order and starts again on the same data and port."""
        self.stop()
        self.start()

    def kill9(self, *, start: bool = True) -> None:
        """Kills the process with SIGKILL and starts it again on the same data and port."""
        process = self._running()
        process.kill()
        process.wait()
        if start:
            self.start()

    def ensure_running(self) -> None:
        """Starts the process again if a case before has lost it."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def close(self) -> None:
        """Ends the process if it runs."""
        if self._process is not None and self._process.poll() is None:
            self.stop()

    def check_health(self) -> None:
        """Fails if the process died or logged an unhandled exception since the last check."""
        self._running()
        with self.log.open("rb") as log:
            log.seek(self._log_checked)
            fresh = log.read()
        self._log_checked += len(fresh)
        if b"Traceback (most recent call last)" in fresh:
            raise AssertionError(f"unhandled exception:\n{fresh.decode(errors='replace')}")

    def log_tail(self, lines: int = 40) -> str:
        """The end of what the process printed."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _running(self) -> subprocess.Popen[bytes]:
        process = self._process
        if process is None or process.poll() is not None:
            code = None if process is None else process.returncode
            raise AssertionError(f"the broker is not running (exit {code}):\n{self.log_tail()}")
        return process

    def _accepts(self, port: int) -> bool:
        deadline = time.monotonic() + START_TIMEOUT_S
        process = self._running()
        while process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                time.sleep(0.01)
            else:
                return True
        return False

    def _command(self, port: int) -> list[str]:
        if SUBJECT == "mosquitto":
            return self._mosquitto(port)
        command = [sys.executable, "-m", "perdure", "serve"]
        command += ["--data", str(self.directory / "data"), "--bind", f"127.0.0.1:{port}"]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value.format(directory=self.directory)}"]
        return command

    def _write_files(self) -> None:
        for name, content in self.options.files.items():
            (self.directory / name).write_text(content)
        users = self.directory / "users"
        for user, password in self.options.users.items():
            if SUBJECT == "mosquitto":
                create = [] if users.exists() else ["-c"]
                command = ["mosquitto_passwd", *create, "-b", str(users), user, password]
            else:
                command = [sys.executable, "-m", "perdure", "passwd", str(users), user]
                command += ["--scram", "--stdin"]
            subprocess.run(command, input=password.encode(), check=True, capture_output=True)

    def _mosquitto(self, port: int) -> list[str]:
        binary = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        lines = [
            f"listener {port} 127.0.0.1",
            "user root",
            "persistence true",
            f"persistence_location {data}/",
            "autosave_interval 1",
            "autosave_on_changes true",
            "sys_interval 1",
            "log_dest stderr",
            "log_type error",
        ]
        if not any(line.startswith("allow_anonymous") for line in self.options.mosquitto):
            lines.append("allow_anonymous true")
        config = self.directory / "mosquitto.conf"
        lines += (line.format(directory=self.directory) for line in self.options.mosquitto)
        config.write_text("\n".join(lines) + "\n")
        return [binary, "-c", str(config)]

    # --- clients ------------------------------------------------------------------------

    def peer(self, version: int = 5) -> Peer:
        """A TCP connection on which nothing was sent."""
        peer = Peer(self.port, version)
        self._peers.append(peer)
        return peer

    def close_peers(self) -> None:
        """Closes all connections handed out so far, without DISCONNECT."""
        for peer in self._peers:
            peer.close()
        self._peers.clear()

    def connect(
        self,
        client_id: str,
        *,
        version: int = 5,
        clean: bool = True,
        keep_alive: int = 60,
        will: Will | None = None,
        username: str | None = None,
        password: str | bytes | None = None,
        properties: Properties = (),
        expiry: int | None = None,
        session_present: bool | None = None,
    ) -> Peer:
        """A connected client; its CONNACK is kept in ``connack``.

        Args:
            client_id: the client identifier.
            version: 4 for MQTT 3.1.1, 5 for MQTT 5.0.
            clean: Clean Session (3.1.1) or Clean Start (5.0).
            keep_alive: seconds.
            will: the will, if any.
            username: the user name, if any.
            password: the password, if any.
            properties: CONNECT properties (5.0).
            expiry: Session Expiry Interval, put before the other properties (5.0).
            session_present: what the CONNACK has to say, if the case depends on it.
        """
        if expiry is not None:
            if isinstance(properties, bytes):
                raise TypeError("expiry goes with a list of properties")
            properties = [(Prop.SESSION_EXPIRY, expiry), *properties]
        peer = self.peer(version)
        connect = peer.build.connect(
            client_id,
            clean=clean,
            keep_alive=keep_alive,
            will=will,
            username=username,
            password=password,
            properties=properties,
        )
        peer.send(connect)
        peer.expect_connack(0, session_present=session_present)
        return peer


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
