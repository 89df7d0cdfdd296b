"""An HTTP process on a data directory, as the broker starts one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from perdure.web.settings import WebSettings
from tests.support.bounds import HANG_S
from tests.unit.web.asgi import TOKEN


class WebProcess:
    """A context manager; ``url`` is where it listens."""

    def __init__(self, data: Path, **settings: Any) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._data = data
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> WebProcess:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
        self._listening.close()

    def start(self) -> None:
        """Start it and wait until it listens."""
        token_file = self._data.parent / "tokens"
        token_file.write_text(f"# for tests\n{TOKEN}\n")
        settings = WebSettings(
            data=str(self._data),
            token_file=str(token_file),
            sockets=(self._listening.fileno(),),
            version="1.2.3",
            **self._settings,
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "perdure.web"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=settings.sockets,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.say(msgspec.json.encode(settings))
        assert self.events(1)[0]["event"] == "http.ready"

    def say(self, line: bytes) -> None:
        """Write a line to its standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def events(self, count: int) -> list[dict[str, Any]]:
        """The next things that it told."""
        assert self._process is not None
        assert self._process.stdout is not None
        return [msgspec.json.decode(self._process.stdout.readline()) for _ in range(count)]

    def rest(self) -> list[dict[str, Any]]:
        """All that it told until its end."""
        assert self._process is not None
        assert self._process.stdout is not None
        return [msgspec.json.decode(line) for line in self._process.stdout]

    def forsake(self) -> int:
        """Close its standard input, as the death of the broker does; its exit code."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(HANG_S)

    def wait(self) -> int:
        """Its exit code."""
        assert self._process is not None
        return self._process.wait(HANG_S)

    def niceness(self) -> int:
        """How much it gives way to others."""
        assert self._process is not None
        return os.getpriority(os.PRIO_PROCESS, self._process.pid)

    def policy(self) -> int:
        """How the system schedules it."""
        assert self._process is not None
        return os.sched_getscheduler(self._process.pid)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once."""
        process = self._process
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            if not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
