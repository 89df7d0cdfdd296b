"""A broker process whose data directory nobody else sees, and a publisher."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from perdure.bench.ports import free_port
from tests.support.bounds import HANG_S

TOKEN: Final = "a-token-for-tests-that-is-long-enough"
HIDE: Final = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def can_hide() -> bool:
    """Whether a process may have mounts of its own here."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    made = subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True)
    return made.returncode == 0


class Broker:
    """``perdure serve`` with HTTP; a context manager.

    Where the machine lets us, its data directory is a mount that only it has: to all others the
    directory of that name is empty.
    """

    def __init__(
        self, home: Path, *, hides: bool = True, settings: Mapping[str, str] | None = None
    ) -> None:
        self.data = home / "db"
        self.token_file = home / "token"
        self.token_file.write_text(f"{TOKEN}\n")
        self.port, self.http_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.http_port}"
        self.log = home / "broker.log"
        hidden = home / "hidden"
        for each in (self.data, hidden):
            each.mkdir()
        self.is_hidden = hides and can_hide()
        prefix = ["unshare", "-m", "sh", "-c", HIDE, "sh", str(hidden), str(self.data)]
        self._command = [
            *(prefix if self.is_hidden else []),
            *(sys.executable, "-m", "perdure", "serve", "--data", str(self.data)),
            *("--bind", f"127.0.0.1:{self.port}"),
            *("--set", f"http.bind=127.0.0.1:{self.http_port}"),
            *("--set", f"http.token_file={self.token_file}"),
            # What it begins meanwhile must not matter to a reader.
            *("--set", "storage.rocksdb.learn_thresholds=[4,4]"),
            *(f"--set={name}={value}" for name, value in (settings or {}).items()),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it and wait until it is ready."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + HANG_S
        while not self._is_ready():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/readyz", timeout=HANG_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class Publisher(threading.Thread):
    """Publishes numbered messages with QoS 1, again after each restart of the broker.

    Attributes:
        acknowledged: numbers that the broker has taken.
    """

    def __init__(self, port: int, *, pause_s: float = 0.0, burst: int = 20) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._pause_s = pause_s
        self._burst = burst
        self._stopping = threading.Event()
        self.acknowledged: set[int] = set()

    def run(self) -> None:
        """Until stopped."""
        while not self._stopping.is_set():
            try:
                with socket.create_connection(
                    ("127.0.0.1", self._port), timeout=HANG_S
                ) as connected:
                    self._publish(connected)
            except OSError:
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop, and wait until it has."""
        self._stopping.set()
        self.join()

    def _publish(self, connected: socket.socket) -> None:
        connect = b"\x00\x04MQTT\x04\x02\x00\x3c\x00\x03pub"
        connected.sendall(bytes([0x10, len(connect)]) + connect)
        if self._exactly(connected, 4)[3] != 0:
            return
        while not self._stopping.is_set():
            first = len(self.acknowledged)
            numbers = range(first, first + self._burst)
            connected.sendall(b"".join(self._packet(number) for number in numbers))
            for number in numbers:
                # Acknowledgements come in order [MQTT-4.6.0-2].
                self._exactly(connected, 4)
                self.acknowledged.add(number)
            time.sleep(self._pause_s)

    @staticmethod
    def _packet(number: int) -> bytes:
        topic = f"plant/{number % 7}/metric/{number % 3}".encode()
        body = len(topic).to_bytes(2, "big") + topic
        body += (number % 65_535 + 1).to_bytes(2, "big") + b'{"number":%d}' % number
        return bytes([0x32, len(body)]) + body

    @staticmethod
    def _exactly(connected: socket.socket, count: int) -> bytes:
        found = b""
        while len(found) < count:
            data = connected.recv(count - len(found))
            if not data:
                raise ConnectionError("the broker has closed the connection")
            found += data
        return found


def publish(port: int, count: int) -> int:
    """Publish messages and wait until they are taken; returns how many there are."""
    publisher = Publisher(port)
    publisher.start()
    deadline = time.monotonic() + HANG_S
    while len(publisher.acknowledged) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    publisher.stop()
    return len(publisher.acknowledged)
