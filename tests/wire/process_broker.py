"""A broker as a process on a free port of 127.0.0.1. Nothing here may import ``perdure``."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import final

from perdure.bench.ports import free_port
from tests import servers
from tests.support.bounds import HANG_S
from tests.wire.harness import Broker, Options
from tests.wire.peer import SUBJECT
from tests.wire.sockets import SocketTransport


@final
class ProcessBroker(Broker):
    """One broker process on its own data directory.

    Args:
        directory: for its data, its files and its log.
        options: how it is configured.

    Attributes:
        module: what is run, as ``python -m``.
    """

    def __init__(self, directory: Path, options: Options) -> None:
        super().__init__()
        self.directory = directory
        self.options = options
        self._settings = {**servers.settings(), **options.settings}
        self.port = 0
        self.module = "perdure"
        self.log = directory / "broker.log"
        self._log_checked = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the process and returns when it accepts connections."""
        if not self.port:
            self._write_files()
        for attempt in range(3):
            port = self.port or free_port()
            self._launch(port)
            if self._accepts(port):
                self.port = port
                return
            self._process.kill()
            self._process.wait()
            if attempt == 2 or self.port:
                break  # else the port was taken between the choice and the bind: take another
        raise AssertionError(f"the broker did not start:\n{self.log_tail()}")

    def spawn(self) -> None:
        """Starts the process and waits for nothing."""
        if not self.port:
            self._write_files()
            self.port = free_port()
        self._launch(self.port)

    def until_accepting(self) -> None:
        """Waits until a process that was spawned accepts connections."""
        if not self._accepts(self.port):
            raise AssertionError(f"the broker did not start:\n{self.log_tail()}")

    def wait(self) -> int:
        """Waits for the end of a process that ends by itself; returns its exit code."""
        assert self._process is not None
        return self._process.wait(HANG_S)

    def _launch(self, port: int) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(port), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def stop(self) -> int:
        """Ends the process with SIGTERM; returns its exit code."""
        self.terminate()
        for peer in self._peers:
            peer.wait_end()  # a client that is told to go closes too; else the broker waits
        return self.ended()

    def terminate(self) -> None:
        """Sends SIGTERM; ``ended`` must follow."""
        self._running().send_signal(signal.SIGTERM)

    def ended(self) -> int:
        """Waits for the end that ``terminate`` has asked for; returns the exit code."""
        process = self._process
        assert process is not None
        try:
            return process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError("the broker did not end on SIGTERM") from None

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

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

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
        deadline = time.monotonic() + HANG_S
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
        command = [sys.executable, "-m", self.module, "serve"]
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

    def elapse(self, seconds: float) -> None:
        """Lets real time pass: another process's clock cannot be moved."""
        time.sleep(seconds)

    def now_s(self) -> float:
        """Monotonic time of this machine."""
        return time.monotonic()

    def now_us(self) -> int:
        """Wall time of this machine: the broker runs on the same clock."""
        return time.time_ns() // 1000

    def _transport(self) -> SocketTransport:
        return SocketTransport(self.port)
