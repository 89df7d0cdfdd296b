"""The servers of ``perdure bench persistence``, to be killed, stopped and asked."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, final

from perdure.bench import proc
from perdure.bench.child import wait_until
from perdure.bench.ports import free_port
from perdure.storebench.servers import postgres, redis
from perdure.storebench.servers.server import Server
from tests.support.bounds import HANG_S
from tests.support.resp import Reply, ReplyError, exchange


class Pausable(Server):
    """A server that can be stopped where it stands."""

    def stop(self) -> None:
        """End it in order (its clients are cut), and kill it if that does not help."""
        if self._process is not None and self._process.poll() is None:
            # What stands still takes no signal.
            self.resume()
        super().stop()

    def pause(self) -> None:
        """Stop it where it stands: a server that neither answers nor ends."""
        os.kill(self.pid, signal.SIGSTOP)
        # The signal is only sent; it stands still once the kernel says so.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """Let it go on after ``pause``."""
        os.kill(self.pid, signal.SIGCONT)


@final
class PostgresServer(Pausable, postgres.PostgresServer):
    """A PostgreSQL whose processes are killed and stopped together."""

    def kill(self) -> None:
        """kill -9 of all its processes at once, as when the machine's memory runs out."""
        process = self._process
        assert process is not None
        # The postmaster first: it would start recovery as soon as one of the others dies.
        os.kill(process.pid, signal.SIGSTOP)
        family = [process.pid, *proc.children(process.pid)]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        self._ended()
        # A server on the same data refuses to start while one of the old processes lives.
        wait_until(
            lambda: not any(proc.lives(pid) for pid in family),
            timeout_s=HANG_S,
            complaint="a killed PostgreSQL process does not end",
        )

    def pause(self) -> None:
        """Stop all its processes where they stand: a server that neither answers nor ends."""
        family = (self.pid, *proc.children(self.pid))
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        # The signals are only sent; they stand still once the kernel says so.
        wait_until(
            lambda: all(proc.state(pid) in "TtZX" for pid in family),
            timeout_s=HANG_S,
            complaint="a stopped PostgreSQL process goes on",
        )

    def resume(self) -> None:
        """Let them go on after ``pause``."""
        for pid in (*proc.children(self.pid), self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class TlsFiles(NamedTuple):
    """A server's certificate and what its clients trust."""

    authority: Path
    certificate: Path
    key: Path


@final
class RedisServer(Pausable, redis.RedisServer):
    """A Redis that can be asked; over TLS, or as a node of a cluster, if that is wanted.

    Args:
        appendfsync, settings, password: as of ``perdure.storebench``.
        tls: speak TLS on the port, and nothing else.
        cluster: a node of a cluster, without slots yet.
    """

    def __init__(
        self,
        *,
        appendfsync: str = "always",
        settings: Mapping[str, str] | None = None,
        tls: TlsFiles | None = None,
        password: str | None = None,
        cluster: bool = False,
    ) -> None:
        self._tls = tls
        self._cluster = cluster
        super().__init__(appendfsync=appendfsync, settings=settings, password=password)

    @property
    def url(self) -> str:
        """``redis://`` or ``rediss://`` with password and port."""
        url = super().url
        return url if self._tls is None else url.replace("redis", "rediss", 1)

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

    def _listening(self) -> list[str]:
        lines = super()._listening()
        if self._tls is not None:
            lines = [
                "port 0",
                f"tls-port {self.port}",
                f'tls-cert-file "{self._tls.certificate}"',
                f'tls-key-file "{self._tls.key}"',
                f'tls-ca-cert-file "{self._tls.authority}"',
                "tls-auth-clients no",
            ]
        if self._cluster:
            # The default bus port, 10,000 above, would be past 65535 for most free ports.
            lines += [
                "cluster-enabled yes",
                f"cluster-port {free_port()}",
                "cluster-node-timeout 5000",
                "cluster-announce-ip 127.0.0.1",
            ]
        return lines

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
