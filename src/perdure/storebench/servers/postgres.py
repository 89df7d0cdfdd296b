"""A PostgreSQL server of our own: folder, port and password.

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from perdure.bench.child import Identity
from perdure.bench.errors import BenchError
from perdure.storebench.servers.server import Server

USER: Final = "perdure"
"""The superuser of the server."""
DATABASE: Final = "postgres"
"""The database that ``url`` names; initdb makes it."""

_DEBIAN: Final = Path("/usr/lib/postgresql")
_UNPRIVILEGED: Final = ("postgres", "nobody")
# postmaster.pid, where pg_ctl looks too: the eighth line says whether connections are taken.
_STATUS_LINE: Final = 7


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


class PostgresServer(Server):
    """One PostgreSQL server in a temporary folder; a context manager.

    Args:
        settings: server settings besides ours (``{"synchronous_commit": "off"}``).
        durable: False = ``fsync=off``, for tests that need no crash of the machine.

    Raises:
        BenchError: PostgreSQL is not installed, or its folder could not be made.
    """

    NAME: ClassVar[str] = "PostgreSQL"
    PORT_TAKEN: ClassVar[str] = "could not bind IPv4 address"
    # A fast shutdown: it cuts its clients instead of waiting for them.
    STOP_SIGNAL: ClassVar[signal.Signals] = signal.SIGINT

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
        super().__init__()
        try:
            self._own(self._directory)
            self._initialise()
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise

    @property
    def url(self) -> str:
        """``postgresql://`` with user, password, port and database."""
        return self.database_url(DATABASE)

    @property
    def data(self) -> Path:
        """The data directory."""
        return self._directory / "data"

    def database_url(self, database: str) -> str:
        """As ``url``, for another database of this server."""
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self.port}/{database}"

    def _own(self, path: Path) -> None:
        if self._account is not None:
            os.chown(path, self._account.pw_uid, self._account.pw_gid)

    def _initialise(self) -> None:
        password = self._directory / "password"
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
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            **self._identity(),
        )
        password.unlink()
        if done.returncode != 0:
            reason = done.stderr.decode(errors="replace").strip()
            raise BenchError(f"initdb failed ({done.returncode}): {reason}")

    def _command(self) -> Sequence[str]:
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        return (
            str(self._programs / "postgres"),
            *("-D", str(self.data), "-p", str(self.port), *options),
        )

    def _identity(self) -> Identity:
        if self._account is None:
            return {}
        return {
            "user": self._account.pw_uid,
            "group": self._account.pw_gid,
            "extra_groups": [self._account.pw_gid],
        }

    def _is_ready(self) -> bool:
        status = self.data / "postmaster.pid"
        with contextlib.suppress(OSError):
            lines = status.read_text(encoding="utf-8").splitlines()
            # After a kill the file of the old server stands until the new one writes its own.
            ours = bool(lines) and lines[0] == str(self.pid)
            return ours and len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"
        return False


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
