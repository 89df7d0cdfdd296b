"""Sockets: one epoll loop over many non-blocking connections, reads and writes in bulk.

Knows bytes and readiness; what they mean is the clients' matter, when to publish is ``pacing``'s.
Runs on Linux.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import resource
import select
import socket
import time
from typing import Final, Protocol, final

from perdure.bench.client import Client
from perdure.bench.errors import BenchError
from perdure.bench.publisher import Publisher

_READ_BYTES: Final = 256 * 1024
_EVENTS_MAX: Final = 1024
_PORTS_PER_SOURCE: Final = 20_000
"""Connections from one loopback address to one port; the kernel has 28,231 ports for them."""
_SPARE_FILES: Final = 64


class Pacing(Protocol):
    """Decides when publishers publish (``pacing`` has two)."""

    def start(self, now_ns: int) -> None:
        """Publish what may go out at once."""
        ...

    def acknowledged(self, link: Link, now_ns: int) -> None:
        """A publisher has taken acknowledgements; its link is flushed afterwards."""
        ...

    def tick(self, now_ns: int) -> int:
        """Publish what is due; returns the nanoseconds until something more may be."""
        ...

    def stop(self) -> None:
        """Publish nothing more."""
        ...


@final
class Place:
    """Where a broker listens.

    Args:
        host, port: its address.

    Raises:
        BenchError: the host has no address.
    """

    def __init__(self, host: str, port: int) -> None:
        self.name = f"{host}:{port}"
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        except OSError as error:
            raise BenchError(f"{self.name}: {error.strerror}") from error
        self.family, self.peer = found[0], found[4]
        self.spreads = (
            self.family == socket.AF_INET and ipaddress.ip_address(str(self.peer[0])).is_loopback
        )
        self.opened = 0

    def unreachable(self, error: OSError) -> BenchError:
        """What to say when nobody listens there."""
        return BenchError(
            f"cannot connect to {self.name}: {error.strerror}", hint="is the broker running?"
        )


@final
class Link:
    """One connection and its client.

    Args:
        client: what it is for.
        loop: serves it.
        place: where it goes; None = to the loop's broker.

    Attributes:
        publishes: its client is a publisher.
        is_open: connecting or connected.
    """

    __slots__ = (
        "client",
        "is_connected",
        "is_open",
        "loop",
        "place",
        "publishes",
        "sock",
        "unsent",
    )

    def __init__(self, client: Client, loop: Loop, place: Place | None = None) -> None:
        self.client = client
        self.place = place or loop.place
        self.publishes = isinstance(client, Publisher)
        self.loop = loop
        self.sock: socket.socket | None = None
        self.unsent = b""
        self.is_open = False
        self.is_connected = False

    def flush(self) -> None:
        """Write what the client has put out, in one call; keep what the socket does not take."""
        out = self.client.out
        if not self.is_connected or not (out or self.unsent):
            return
        if self.unsent:
            if out:
                self.unsent += b"".join(out)
                out.clear()
            data = self.unsent
        else:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
        assert self.sock is not None
        had_unsent = bool(self.unsent)
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.loop.lost(self, error)
            return
        self.unsent = data[sent:] if sent < len(data) else b""
        if bool(self.unsent) != had_unsent:
            self.loop.watch(self)


@final
class Loop:
    """The connections of one run.

    Args:
        host, port: of the broker.

    Attributes:
        place: of the broker.
        pacing: told when a publisher has taken acknowledgements.
        is_closing: the broker may close connections: it is about to be stopped.
    """

    def __init__(self, host: str, port: int) -> None:
        self.place = Place(host, port)
        self._links: dict[int, Link] = {}
        self._buffer = bytearray(_READ_BYTES)
        self._view = memoryview(self._buffer)
        self._epoll = select.epoll()
        self._epoll_fd = self._epoll.fileno()
        self.pacing: Pacing | None = None
        self.is_closing = False

    def close(self) -> None:
        """Close every socket."""
        for link in list(self._links.values()):
            self.drop(link)
        self._epoll.close()

    @property
    def link_count(self) -> int:
        """Connections that are open."""
        return len(self._links)

    def connect(self, link: Link) -> None:
        """Begin to connect; the client's CONNECT follows when the socket is there."""
        place = link.place
        sock = socket.socket(place.family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if place.spreads and place.opened >= _PORTS_PER_SOURCE:
            # One address has too few ports for all connections to one broker.
            self._bind(sock, place.opened // _PORTS_PER_SOURCE)
        place.opened += 1
        link.sock = sock
        link.is_open = True
        link.is_connected = False
        link.unsent = b""
        link.client.open()
        error = sock.connect_ex(place.peer)
        if error not in (0, errno.EINPROGRESS):
            sock.close()
            link.is_open = False
            raise place.unreachable(OSError(error, os.strerror(error)))
        self._links[sock.fileno()] = link
        self._epoll.register(sock.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def drop(self, link: Link) -> None:
        """Close a connection at once."""
        if link.sock is not None:
            del self._links[link.sock.fileno()]
            link.sock.close()
        link.sock = None
        link.is_open = link.is_connected = False
        link.client.is_ready = False

    def watch(self, link: Link) -> None:
        """Wait for room in the socket if there is something unsent."""
        assert link.sock is not None
        events = select.EPOLLIN | (select.EPOLLOUT if link.unsent else 0)
        self._epoll.modify(link.sock.fileno(), events)

    def pause(self, link: Link) -> None:
        """Read nothing more from a connection, as a client that is stuck; ``watch`` ends it."""
        assert link.sock is not None
        self._epoll.modify(link.sock.fileno(), 0)

    def turn(self, timeout_ns: int) -> None:
        """Wait at most so long for something to happen, and let it."""
        if 0 < timeout_ns < 2_000_000:
            # epoll counts in milliseconds; select on it in microseconds.
            select.select((self._epoll_fd,), (), (), timeout_ns / 1e9)
            timeout_ns = 0
        for fd, events in self._epoll.poll(timeout_ns / 1e9, _EVENTS_MAX):
            link = self._links.get(fd)
            if link is None:
                continue
            if not link.is_connected:
                self._connected(link, events)
                continue
            if events & ~select.EPOLLOUT:
                self._read(link)
            if events & select.EPOLLOUT and link.is_connected:
                link.flush()

    def lost(self, link: Link, error: OSError | None = None) -> None:
        """A connection has ended: an error, unless its client or the run is at its end."""
        unwanted = link.client.is_wanted and not self.is_closing
        self.drop(link)
        if unwanted:
            raise BenchError(
                f"the broker closed the connection of {link.client.client_id}"
                + (f": {error.strerror}" if error else "")
            )

    def _connected(self, link: Link, events: int) -> None:
        assert link.sock is not None
        error = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            failure = OSError(error, os.strerror(error))
            self.drop(link)
            raise link.place.unreachable(failure)
        if events & select.EPOLLOUT:
            link.is_connected = True
            self.watch(link)
            link.flush()

    def _read(self, link: Link) -> None:
        assert link.sock is not None
        try:
            size = link.sock.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self.lost(link, error)
            return
        if not size:
            self.lost(link)
            return
        now_ns = time.monotonic_ns()
        link.client.received(bytes(self._view[:size]), now_ns)
        if link.publishes and self.pacing is not None:
            self.pacing.acknowledged(link, now_ns)
        link.flush()

    def _bind(self, sock: socket.socket, number: int) -> None:
        no_port = getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24)
        sock.setsockopt(socket.IPPROTO_IP, no_port, 1)
        sock.bind((f"127.0.{number % 250}.2", 0))


def allow_files(count: int) -> None:
    """Let this process have so many sockets.

    Raises:
        BenchError: the system does not let us.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _SPARE_FILES
    if soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise BenchError(
            f"{count} connections need {wanted} open files; the limit is {hard}",
            hint=f"ulimit -Hn {wanted}, or fewer clients",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
