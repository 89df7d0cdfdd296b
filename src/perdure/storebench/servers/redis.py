"""A Redis server of our own: folder, port and password; to be killed and started again.

It runs the ``redis-server`` of this machine on the loopback address alone, with a password that
nobody else knows. Everything is gone after ``close``.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, final
from urllib.parse import quote

from perdure.bench.errors import BenchError
from perdure.bench.process import free_port
from perdure.storebench.servers.resp import Reply, ReplyError, exchange
from perdure.storebench.servers.server import Server

RECOMMENDED: Final[Mapping[str, str]] = {
    "maxmemory-policy": "noeviction",
    "hash-max-listpack-entries": "128",
    "hash-max-listpack-value": "2048",
}
"""Settings with which the servers start (``docs/howto/redis.md``)."""


class TlsFiles(NamedTuple):
    """A server's certificate and what its clients trust."""

    authority: Path
    certificate: Path
    key: Path


def find_redis() -> Path | None:
    """The ``redis-server`` program; None = not installed here."""
    found = shutil.which("redis-server")
    return Path(found) if found else None


@final
class RedisServer(Server):
    """One Redis server in a temporary folder; a context manager.

    Args:
        appendfsync: ``always``, ``everysec``, ``no``; empty = no append-only file at all.
        settings: server settings besides ours.
        tls: speak TLS on the port, and nothing else.
        password: empty = none is asked for; None = one that nobody knows.
        cluster: a node of a cluster, without slots yet.

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
        tls: TlsFiles | None = None,
        password: str | None = None,
        cluster: bool = False,
    ) -> None:
        program = find_redis()
        if program is None:
            raise BenchError("Redis is not installed", hint="apt-get install redis-server")
        self._program = program
        self._tls = tls
        self._cluster = cluster
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
        """``redis://`` or ``rediss://`` with password and port."""
        scheme = "redis" if self._tls is None else "rediss"
        secret = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"{scheme}://{secret}127.0.0.1:{self.port}/0"

    def command(self, *arguments: str | bytes | int) -> Reply:
        """Ask the server over a connection of its own.

        Raises:
            ReplyError: it answered with an error.
        """
        return self.commands([arguments])[0]

    def commands(self, batch: Iterable[tuple[str | bytes | int, ...]]) -> list[Reply]:
        """As ``command``, many over one connection, one after the other."""
        with self.session() as ask:
            return [ask(*arguments) for arguments in batch]

    @contextlib.contextmanager
    def session(self) -> Iterator[Callable[..., Reply]]:
        """A connection for any number of commands: call it like ``command``."""
        with self._connect() as link, link.makefile("rwb") as stream:
            if self.password:
                exchange(stream, ("AUTH", self.password))
            yield lambda *arguments: exchange(stream, arguments)

    def _command(self) -> Sequence[str]:
        configuration = self._directory / "redis.conf"
        configuration.touch(mode=0o600)
        configuration.write_text(self._configuration(), encoding="utf-8")
        return (str(self._program), str(configuration))

    def _configuration(self) -> str:
        lines = ["bind 127.0.0.1", f'dir "{self._directory}"', "daemonize no"]
        if self._tls is None:
            lines.append(f"port {self.port}")
        else:
            lines += [
                "port 0",
                f"tls-port {self.port}",
                f'tls-cert-file "{self._tls.certificate}"',
                f'tls-key-file "{self._tls.key}"',
                f'tls-ca-cert-file "{self._tls.authority}"',
                "tls-auth-clients no",
            ]
        if self.password:
            lines += [f'requirepass "{self.password}"', f'masterauth "{self.password}"']
        if self._cluster:
            # The default bus port, 10,000 above, would be past 65535 for most free ports.
            lines += [
                "cluster-enabled yes",
                f"cluster-port {free_port()}",
                "cluster-node-timeout 5000",
                "cluster-announce-ip 127.0.0.1",
            ]
        lines += [f'{name} "{value}"' for name, value in self._settings.items()]
        return "\n".join(lines) + "\n"

    def _is_ready(self) -> bool:
        # Refused, cut, or still loading: not yet.
        with contextlib.suppress(OSError, ReplyError):
            return self.command("PING") == b"PONG"
        return False

    def _connect(self) -> socket.socket:
        link = socket.create_connection(("127.0.0.1", self.port), timeout=self.START_TIMEOUT_S)
        if self._tls is None:
            return link
        context = ssl.create_default_context(cafile=str(self._tls.authority))
        return context.wrap_socket(link, server_hostname="127.0.0.1")
