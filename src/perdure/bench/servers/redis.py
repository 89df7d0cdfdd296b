"""Redis servers of our own, single or three masters of a cluster; to be killed and started again.

They run the ``redis-server`` of this machine on the loopback address alone, with a password that
nobody else knows, in a temporary folder that is gone after ``close``. ``command`` is a small
blocking client for tests and measurements: what they ask must not depend on the client under test.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, TypeAlias, final
from urllib.parse import quote

from perdure.bench.errors import BenchError
from perdure.bench.process import free_port

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
CLUSTER_SLOTS: Final = 16_384
RECOMMENDED: Final[Mapping[str, str]] = {
    "maxmemory-policy": "noeviction",
    "hash-max-listpack-entries": "128",
    "hash-max-listpack-value": "2048",
}
"""Settings with which the servers start (``docs/howto/redis.md``)."""

_POLL_S: Final = 0.005
_PORT_ATTEMPTS: Final = 5
_LOG_LINES: Final = 10
_MASTERS: Final = 3

Reply: TypeAlias = "bytes | int | list[Reply] | None"


class _Stream(Protocol):
    def write(self, data: bytes, /) -> int: ...
    def flush(self) -> None: ...
    def readline(self) -> bytes: ...
    def read(self, size: int, /) -> bytes: ...


@final
class ReplyError(Exception):
    """The server answered with an error; its text is the argument."""


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
class RedisServer:
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
        self._folder = Path(tempfile.mkdtemp(prefix="perdure-redis-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._has_run = False
        self.port = free_port()

    @property
    def url(self) -> str:
        """``redis://`` or ``rediss://`` with password and port."""
        scheme = "redis" if self._tls is None else "rediss"
        secret = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"{scheme}://{secret}127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Start it and wait until it has loaded its data; returns the seconds that took.

        Raises:
            BenchError: it ended, or was not ready in time.
        """
        begun = time.monotonic()
        for _ in range(_PORT_ATTEMPTS):
            self._spawn()
            if self._wait_ready(begun):
                self._has_run = True
                return time.monotonic() - begun
            # Another process may take a free port before us, but only before the first start.
            if self._has_run or "bind" not in self._tail():
                break
            self.port = free_port()
        tail = self._tail()
        self.stop()
        raise BenchError(f"Redis does not start on port {self.port}: {tail}")

    def kill(self) -> None:
        """kill -9."""
        process = self._process
        assert process is not None
        process.kill()
        process.wait()
        self._process = None

    def stop(self) -> None:
        """End it in order, and kill it if that does not help."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            self.resume()
            process.send_signal(signal.SIGTERM)
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
        """Stop it where it stands: a server that neither answers nor ends."""
        os.kill(self.pid, signal.SIGSTOP)
        # The signal is only sent; it stands still once the kernel says so.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """Let it go on after ``pause``."""
        os.kill(self.pid, signal.SIGCONT)

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
                _ask(stream, ("AUTH", self.password))
            yield lambda *arguments: _ask(stream, arguments)

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

    def _spawn(self) -> None:
        configuration = self._folder / "redis.conf"
        configuration.touch(mode=0o600)
        configuration.write_text(self._configuration(), encoding="utf-8")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - a program that we found ourselves
                [str(self._program), str(configuration)],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A terminal's Ctrl-C is for the tool, which then stops the server in order.
                start_new_session=True,
            )

    def _configuration(self) -> str:
        lines = ["bind 127.0.0.1", f'dir "{self._folder}"', "daemonize no"]
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

    def _wait_ready(self, begun: float) -> bool:
        assert self._process is not None
        while time.monotonic() - begun < START_TIMEOUT_S:
            if self._process.poll() is not None:
                self._process = None
                return False
            # Refused, cut, or still loading: not yet.
            with contextlib.suppress(OSError, ReplyError):
                if self.command("PING") == b"PONG":
                    return True
            time.sleep(_POLL_S)
        return False

    def _connect(self) -> socket.socket:
        link = socket.create_connection(("127.0.0.1", self.port), timeout=START_TIMEOUT_S)
        if self._tls is None:
            return link
        context = ssl.create_default_context(cafile=str(self._tls.authority))
        return context.wrap_socket(link, server_hostname="127.0.0.1")

    def _tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " / ".join(lines[-_LOG_LINES:])


@final
class RedisCluster:
    """Three masters that share the slots, without replicas; a context manager.

    Args:
        appendfsync, settings: as of ``RedisServer``.
    """

    def __init__(
        self, *, appendfsync: str = "always", settings: Mapping[str, str] | None = None
    ) -> None:
        self.password = secrets.token_urlsafe(24)
        self.nodes = [
            RedisServer(
                appendfsync=appendfsync, settings=settings, password=self.password, cluster=True
            )
            for _ in range(_MASTERS)
        ]

    @property
    def url(self) -> str:
        """``redis+cluster://`` of the first node."""
        return "redis+cluster" + self.nodes[0].url.removeprefix("redis").removesuffix("/0")

    def start(self) -> None:
        """Start the nodes, give each its share of the slots, and wait until they agree.

        Raises:
            BenchError: a node does not start, or they do not agree in time.
        """
        for node in self.nodes:
            node.start()
        edges = [index * CLUSTER_SLOTS // _MASTERS for index in range(_MASTERS + 1)]
        for index, node in enumerate(self.nodes):
            node.command("CLUSTER", "ADDSLOTSRANGE", edges[index], edges[index + 1] - 1)
            node.command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        first = self.nodes[0]
        for node in self.nodes[1:]:
            bus_port = _bus_port(node)
            first.command("CLUSTER", "MEET", "127.0.0.1", node.port, bus_port)
        self.wait_agreed()

    def wait_agreed(self) -> None:
        """Wait until every node knows an owner of every slot.

        Raises:
            BenchError: they do not agree in time.
        """
        _until(self._agree, "the nodes of the Redis cluster do not agree")

    def node_id(self, node: RedisServer) -> str:
        """The name of a node within the cluster."""
        reply = node.command("CLUSTER", "MYID")
        assert isinstance(reply, bytes)
        return reply.decode()

    def owner_of(self, slot: int) -> RedisServer:
        """The node that has a slot now."""
        ranges = self.nodes[0].command("CLUSTER", "SLOTS")
        assert isinstance(ranges, list)
        for first, last, (_, port, *_), *_ in ranges:  # type: ignore[misc]
            if first <= slot <= last:  # type: ignore[operator]
                return next(node for node in self.nodes if node.port == port)
        raise BenchError(f"nobody has slot {slot}")

    def move_slots(self, slots: Iterable[int], source: RedisServer, target: RedisServer) -> None:
        """Move slots with their keys from node to node while clients go on, as a reshard does."""
        source_id, target_id = self.node_id(source), self.node_id(target)
        with contextlib.ExitStack() as stack:
            ask = {node: stack.enter_context(node.session()) for node in self.nodes}
            for slot in slots:
                ask[target]("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
                ask[source]("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
                while keys := ask[source]("CLUSTER", "GETKEYSINSLOT", slot, 10):
                    assert isinstance(keys, list)
                    ask[source](
                        *("MIGRATE", "127.0.0.1", target.port, "", 0, 10_000),
                        *("AUTH", self.password, "KEYS", *keys),
                    )
                # The new owner first: a moment without an owner would refuse writes.
                for node in (target, source, *self.nodes):
                    ask[node]("CLUSTER", "SETSLOT", slot, "NODE", target_id)

    def close(self) -> None:
        """Stop the nodes and delete their folders."""
        for node in self.nodes:
            node.close()

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

    def _agree(self) -> bool:
        for node in self.nodes:
            reply = node.command("CLUSTER", "INFO")
            assert isinstance(reply, bytes)
            known = f"cluster_known_nodes:{_MASTERS}".encode()
            if b"cluster_state:ok" not in reply or known not in reply:
                return False
        return True


def _bus_port(node: RedisServer) -> int:
    reply = node.command("CONFIG", "GET", "cluster-port")
    assert isinstance(reply, list)
    value = reply[1]
    assert isinstance(value, bytes)
    return int(value)


def _until(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(complaint)
        time.sleep(_POLL_S)


def _ask(stream: _Stream, arguments: tuple[str | bytes | int, ...]) -> Reply:
    parts = [part if isinstance(part, bytes) else str(part).encode() for part in arguments]
    bodies = b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
    stream.write(b"*%d\r\n%b" % (len(parts), bodies))
    stream.flush()
    return _read_reply(stream)


def _read_reply(stream: _Stream) -> Reply:
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionResetError("the server closed the connection")
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        raise ReplyError(rest.decode(errors="replace"))
    if kind == b"+":
        return rest
    if kind == b":":
        return int(rest)
    length = int(rest)
    if length < 0:
        return None
    if kind == b"*":
        return [_read_reply(stream) for _ in range(length)]
    body = stream.read(length + 2)
    if len(body) != length + 2:
        raise ConnectionResetError("the server closed the connection")
    return body[:-2]
