"""A Redis server of our own: folder, port and password.

It runs the ``redis-server`` of this machine on the loopback address alone, with a password that
nobody else knows. Everything is gone after ``close``.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import quote

from perdure.bench.errors import BenchError
from perdure.storebench.servers.server import Server

RECOMMENDED: Final[Mapping[str, str]] = {
    "maxmemory-policy": "noeviction",
    "hash-max-listpack-entries": "128",
    "hash-max-listpack-value": "2048",
}
"""Settings with which the servers start (``docs/howto/redis.md``)."""


def find_redis() -> Path | None:
    """The ``redis-server`` program; None = not installed here."""
    found = shutil.which("redis-server")
    return Path(found) if found else None


class RedisServer(Server):
    """One Redis server in a temporary folder; a context manager.

    Args:
        appendfsync: ``always``, ``everysec``, ``no``; empty = no append-only file at all.
        settings: server settings besides ours.
        password: empty = none is asked for; None = one that nobody knows.

    Raises:
        BenchError: Redis is not installed.
    """

    NAME: ClassVar[str] = "Redis"
    PORT_TAKEN: ClassVar[str] = "bind"

    def __init__(
        self,
        *,
        appendfsync: str = "always",
        settings: Mapping[str, str] | None = None,
        password: str | None = None,
    ) -> None:
        program = find_redis()
        if program is None:
            raise BenchError("Redis is not installed", hint="apt-get install redis-server")
        self._program = program
        self.password = secrets.token_urlsafe(24) if password is None else password
        self._settings = {
            **RECOMMENDED,
            "appendonly": "yes" if appendfsync else "no",
            "appendfsync": appendfsync or "everysec",
            "save": "",
            **(settings or {}),
        }
        super().__init__()

    @property
    def url(self) -> str:
        """``redis://`` with password and port."""
        secret = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"redis://{secret}127.0.0.1:{self.port}/0"

    def _command(self) -> Sequence[str]:
        configuration = self._directory / "redis.conf"
        configuration.touch(mode=0o600)
        configuration.write_text(self._configuration(), encoding="utf-8")
        return (str(self._program), str(configuration))

    def _configuration(self) -> str:
        lines = ["bind 127.0.0.1", f'dir "{self._directory}"', "daemonize no", *self._listening()]
        if self.password:
            lines += [f'requirepass "{self.password}"', f'masterauth "{self.password}"']
        lines += [f'{name} "{value}"' for name, value in self._settings.items()]
        return "\n".join(lines) + "\n"

    def _listening(self) -> list[str]:
        return [f"port {self.port}"]

    def _is_ready(self) -> bool:
        # Refused, cut, or still loading: not yet.
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port)) as link,
        ):
            link.settimeout(self.START_TIMEOUT_S)
            login = f"AUTH {self.password}\r\n" if self.password else ""
            link.sendall(f"{login}PING\r\nQUIT\r\n".encode())
            with link.makefile("rb") as replies:
                return b"+PONG\r\n" in replies.readlines()
        return False
