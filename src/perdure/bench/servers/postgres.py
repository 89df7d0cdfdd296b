"""A PostgreSQL server of our own: folder, port and password; to be killed and started again.

It runs the ``postgres`` of this machine (in PATH or where Debian puts it) on the loopback address
alone, with a password that nobody else knows. PostgreSQL refuses to run as root; there it runs as
the user ``postgres``, or as ``nobody``. Everything is gone after ``close``.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypedDict, final

from perdure.bench.errors import BenchError
from perdure.bench.process import free_port

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
USER: Final = "perdure"
"""The superuser of the server."""
DATABASE: Final = "postgres"
"""The database that ``url`` names; initdb makes it."""

_POLL_S: Final = 0.005
_PORT_ATTEMPTS: Final = 5
_LOG_LINES: Final = 10
_PROC: Final = Path("/proc")
_DEBIAN: Final = Path("/usr/lib/postgresql")
_UNPRIVILEGED: Final = ("postgres", "nobody")
# postmaster.pid, where pg_ctl looks too: the eighth line says whether connections are taken.
_STATUS_LINE: Final = 7
_PORT_TAKEN: Final = "could not bind IPv4 address"


class _Identity(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def find_postgres() -> Path | None:
    """The folder with ``initdb`` and ``postgres``; None = not installed here."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    versions = [path for path in _DEBIAN.glob("*/bin") if path.parent.name.isdigit()]
    folders += sorted(versions, key=lambda path: int(path.parent.name), reverse=True)
    for folder in folders:
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            return folder
    return None


@final
class PostgresServer:
    """One PostgreSQL server in a temporary folder; a context manager.

    Args:
        settings: server settings besides ours (``{"synchronous_commit": "off"}``).
        durable: False = ``fsync=off``, for tests that need no crash of the machine.

    Raises:
        BenchError: PostgreSQL is not installed, or its folder could not be made.
    """

    def __init__(self, *, settings: Mapping[str, str] | None = None, durable: bool = True) -> None:
        programs = find_postgres()
        if programs is None:
            raise BenchError("PostgreSQL is not installed", hint="apt-get install postgresql")
        self._programs = programs
        self._account = _account()
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "on" if durable else "off",
            **(settings or {}),
        }
        self._password = secrets.token_urlsafe(24)
        self._folder = Path(tempfile.mkdtemp(prefix="perdure-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        try:
            self._own(self._folder)
            self._initialise()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    @property
    def url(self) -> str:
        """``postgresql://`` with user, password, port and database."""
        return self.database_url(DATABASE)

    @property
    def pid(self) -> int:
        """Process id of the postmaster, whose children are the server's other processes."""
        assert self._process is not None
        return self._process.pid

    @property
    def data(self) -> Path:
        """The data directory."""
        return self._folder / "data"

    def database_url(self, database: str) -> str:
        """As ``url``, for another database of this server."""
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> float:
        """Start it and wait until it takes connections; returns the seconds that took.

        Raises:
            BenchError: it ended, or was not ready in time.
        """
        begun = time.monotonic()
        for attempt in range(_PORT_ATTEMPTS):
            log_start = self._log.stat().st_size if self._log.exists() else 0
            self._spawn()
            if self._wait_ready(begun):
                return time.monotonic() - begun
            with self._log.open("rb") as log:
                log.seek(log_start)
                taken = _PORT_TAKEN.encode() in log.read()
            # Another process may take a free port before us, but only before the first start.
            if not taken or self._has_run or attempt == _PORT_ATTEMPTS - 1:
                break
            self.port = free_port()
        tail = self._tail()
        self.stop()
        raise BenchError(f"PostgreSQL does not start on port {self.port}: {tail}")

    def kill(self) -> None:
        """kill -9 of all its processes at once, as when the machine's memory runs out."""
        process = self._process
        assert process is not None
        # The postmaster first: it would start recovery as soon as one of the others dies.
        os.kill(process.pid, signal.SIGSTOP)
        family = [process.pid, *_children(process.pid)]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        self._process = None
        # A server on the same data refuses to start while one of the old processes lives.
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while any(_lives(pid) for pid in family):
            if time.monotonic() > deadline:
                raise BenchError("a killed PostgreSQL process does not end")
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """End it in order (its clients are cut), and kill it if that does not help."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            self.resume()
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def restart(self, *, kill: bool = False) -> float:
        """End it and start it again on the same port; returns the seconds that the start took."""
        if kill:
            self.kill()
        else:
            self.stop()
        return self.start()

    def pause(self) -> None:
        """Stop all its processes where they stand: a server that neither answers nor ends."""
        family = (self.pid, *_children(self.pid))
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        # The signals are only sent; they stand still once the kernel says so.
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while any(_state(pid) not in "TtZX" for pid in family):
            if time.monotonic() > deadline:
                raise BenchError("a stopped PostgreSQL process goes on")
            time.sleep(_POLL_S)

    def resume(self) -> None:
        """Let them go on after ``pause``."""
        for pid in (*_children(self.pid), self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        """Stop it and delete its folder."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    @property
    def _has_run(self) -> bool:
        # Made at the first start, then kept through stops and kills.
        return (self.data / "postmaster.opts").exists()

    def _own(self, path: Path) -> None:
        if self._account is not None:
            os.chown(path, self._account.pw_uid, self._account.pw_gid)

    def _initialise(self) -> None:
        password = self._folder / "password"
        password.touch(mode=0o600)
        password.write_text(self._password, encoding="utf-8")
        self._own(password)
        command = [
            str(self._programs / "initdb"),
            *("--pgdata", str(self.data), "--username", USER, "--pwfile", str(password)),
            # The locale decides how client ids are ordered; C orders by bytes and is the fastest.
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"),
        ]
        done = subprocess.run(  # noqa: S603 - a program that we found ourselves
            command,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            **self._identity(),
        )
        password.unlink()
        if done.returncode != 0:
            reason = done.stderr.decode(errors="replace").strip()
            raise BenchError(f"initdb failed ({done.returncode}): {reason}")

    def _spawn(self) -> None:
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        command: Sequence[str] = [
            str(self._programs / "postgres"),
            *("-D", str(self.data), "-p", str(self.port), *options),
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - a program that we found ourselves
                command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A terminal's Ctrl-C is for the tool, which then stops the server in order.
                start_new_session=True,
                **self._identity(),
            )

    def _identity(self) -> _Identity:
        if self._account is None:
            return {}
        return {
            "user": self._account.pw_uid,
            "group": self._account.pw_gid,
            "extra_groups": [self._account.pw_gid],
        }

    def _wait_ready(self, begun: float) -> bool:
        assert self._process is not None
        status = self.data / "postmaster.pid"
        while time.monotonic() - begun < START_TIMEOUT_S:
            if self._process.poll() is not None:
                self._process = None
                return False
            with contextlib.suppress(OSError):
                lines = status.read_text(encoding="utf-8").splitlines()
                # After a kill the file of the old server stands until the new one writes its own.
                ours = bool(lines) and lines[0] == str(self._process.pid)
                if ours and len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready":
                    return True
            time.sleep(_POLL_S)
        return False

    def _tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " / ".join(lines[-_LOG_LINES:])


def _account() -> pwd.struct_passwd | None:
    """Whose processes the server's are; None = ours."""
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise BenchError(
        "PostgreSQL does not run as root, and there is no other user for it",
        hint=f"run as another user, or make one of {', '.join(_UNPRIVILEGED)}",
    )


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for task in (_PROC / str(pid) / "task").iterdir():
            listed = (task / "children").read_text(encoding="utf-8")
            children += [int(child) for child in listed.split()]
    return children


def _lives(pid: int) -> bool:
    """Whether the process still runs; one that only waits to be reaped does not."""
    return _state(pid) not in "ZX"


def _state(pid: int) -> str:
    """The kernel's letter for what a process does; X = it is gone."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8")
    except OSError:
        return "X"
    return stat[stat.rindex(")") + 2]
