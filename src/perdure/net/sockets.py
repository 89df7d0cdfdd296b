"""Listening sockets, addresses, and what must be read from a socket before it has a transport."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import socket
from ipaddress import ip_address
from typing import Final, TypeAlias

from perdure.broker.runtime.stream import PeerInfo
from perdure.errors import AddressUnavailable, ConfigError, PerdureError
from perdure.net.proxy_protocol import HEADER_SIZE_MAX, ProxyFault, ProxyHeader, parse_proxy_header

Address: TypeAlias = tuple[str, int]

PORT_TRIES_MAX: Final = 16
"""Ports that are tried when any will do and a name has several addresses."""


def open_listening(host: str, port: int, *, backlog: int, path: str) -> list[socket.socket]:
    """Bind and listen on every address that ``host`` stands for.

    An empty host is every address: one dual-stack socket where the machine has IPv6, else IPv4.
    A name with several addresses (``localhost``) gets a socket for each, on the same port, also
    when ``port`` is 0.

    Raises:
        ConfigError: the name stands for no address; ``path`` names the setting.
        AddressUnavailable: no address could be bound.
    """
    addresses = _resolve(host, port, path=path)
    tries = 1 if port else PORT_TRIES_MAX
    while True:
        tries -= 1
        sockets: list[socket.socket] = []
        try:
            _open_all(sockets, addresses, port, backlog=backlog, any_host=not host)
        except OSError as exc:
            bound_port = sockets[0].getsockname()[1] if sockets else port
            for opened in sockets:
                opened.close()
            if tries and sockets and exc.errno == errno.EADDRINUSE:
                continue  # free on the first address and taken on another one
            raise address_unavailable(exc, host, bound_port, path=f"{path}.bind") from exc
        return sockets


def address_unavailable(exc: OSError, host: str, port: int, *, path: str) -> PerdureError:
    """Why an address could not be bound, and what to do."""
    hint = ""
    if exc.errno == errno.EADDRINUSE:
        hint = f"another process has the port: `ss -ltnp sport = :{port}` tells which"
    elif exc.errno == errno.EADDRNOTAVAIL:
        hint = "no interface of this machine has the address, or not yet"
    elif exc.errno in (errno.EACCES, errno.EPERM):
        hint = "ports below 1024 need CAP_NET_BIND_SERVICE: AmbientCapabilities= under systemd"
    return AddressUnavailable(
        f"cannot listen on {host or '*'}:{port}: {exc.strerror or exc}",
        permitted=exc.errno not in (errno.EACCES, errno.EPERM),
        path=path,
        hint=hint,
    )


def _open_all(
    sockets: list[socket.socket],
    addresses: list[tuple[socket.AddressFamily, str]],
    port: int,
    *,
    backlog: int,
    any_host: bool,
) -> None:
    """Add a listening socket for each address that this machine has, all on one port."""
    failure: OSError | None = None
    for family, address in addresses:
        try:
            opened = _bind(family, address, port, backlog=backlog, dual=any_host)
        except OSError as exc:
            if exc.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
            failure = exc  # the name has an address that this machine has not
            continue
        sockets.append(opened)
        port = opened.getsockname()[1]
        if any_host:
            break
    if not sockets and failure is not None:
        raise failure


def _resolve(host: str, port: int, *, path: str) -> list[tuple[socket.AddressFamily, str]]:
    if not host:
        return [(socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")]  # noqa: S104 - asked for
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
    except OSError as exc:
        raise ConfigError(
            f"{host!r} is no address of this machine: {exc.strerror}",
            path=f"{path}.bind",
            hint="write an address of this machine, or a name that /etc/hosts or DNS knows",
        ) from exc
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _bind(
    family: socket.AddressFamily, address: str, port: int, *, backlog: int, dual: bool
) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        # A restarted broker must not wait for the old connections' TIME_WAIT.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit these two, which saves two calls for each connection.
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        opened.bind((address, port))
        opened.listen(backlog)
    except BaseException:
        opened.close()
        raise
    return opened


def plain_address(address: tuple[object, ...]) -> Address:
    """Host and port of a socket address; an IPv4 client of a dual-stack socket is shown as IPv4."""
    host, port = str(address[0]), address[1]
    assert isinstance(port, int)
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return host, port


def is_loopback(host: str) -> bool:
    """Whether ``host``, an IP address, is this machine's loopback."""
    if host == "127.0.0.1" or host == "::1":
        return True
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if address.version == 6 else None
    return (mapped or address).is_loopback


async def read_proxy_header(sock: socket.socket) -> ProxyHeader | ProxyFault:
    """Read exactly the PROXY header from a non-blocking socket.

    It is peeked at first: what follows (a TLS ClientHello, a CONNECT) must stay in the kernel for
    the transport that is made afterwards.
    """
    loop = asyncio.get_running_loop()
    taken = b""
    while True:
        await _readable(loop, sock)
        try:
            peeked = sock.recv(HEADER_SIZE_MAX, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            continue
        if not peeked:
            return ProxyFault("closed before the PROXY header")
        parsed = parse_proxy_header(taken + peeked)
        if isinstance(parsed, ProxyFault):
            return parsed
        sock.recv(len(peeked) if parsed is None else parsed.size - len(taken))
        if parsed is not None:
            return parsed
        taken += peeked


async def _readable(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(sock.fileno(), wake)
    try:
        await ready
    finally:
        loop.remove_reader(sock.fileno())


def behind_proxy(proxy: PeerInfo, header: ProxyHeader) -> PeerInfo:
    """The client that a proxy announced, in place of the proxy."""
    if header.source is None:
        # The proxy will not say who it is, so it gets no privilege of this machine.
        return dataclasses.replace(proxy, loopback=False)
    host, port = header.source
    return dataclasses.replace(
        proxy,
        address=host,
        port=port,
        # Only a proxy on this machine can vouch for a client on this machine.
        loopback=proxy.loopback and is_loopback(host),
        certificate_subject=header.certificate_subject,
    )
