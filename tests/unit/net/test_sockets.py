"""Listening sockets, addresses, and headers read below the transport."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest

from perdure.errors import AddressUnavailable, ConfigError
from perdure.net import sockets as sockets_module
from perdure.net.proxy_protocol import ProxyFault, ProxyHeader
from perdure.net.sockets import (
    PORT_TRIES_MAX,
    is_loopback,
    open_listening,
    plain_address,
    read_proxy_header,
)


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def close_all(sockets: list[socket.socket]) -> None:
    for opened in sockets:
        opened.close()


def resolve_to_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name has an address of each family."""
    found = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


def test_the_system_chooses_a_port() -> None:
    sockets = open_listening("127.0.0.1", 0, backlog=4, path="listeners.tcp")
    assert len(sockets) == 1
    assert sockets[0].getsockname()[1] > 0
    assert not sockets[0].getblocking()
    close_all(sockets)


def test_a_port_can_be_taken_again_at_once() -> None:
    first = open_listening("127.0.0.1", 0, backlog=4, path="listeners.tcp")
    port = first[0].getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)):
        accepted, _ = first[0].accept()
        accepted.close()
    close_all(first)
    close_all(open_listening("127.0.0.1", port, backlog=4, path="listeners.tcp"))


@needs_ipv6
def test_every_address_is_one_dual_stack_socket() -> None:
    sockets = open_listening("", 0, backlog=4, path="listeners.tcp")
    assert [opened.family for opened in sockets] == [socket.AF_INET6]
    port = sockets[0].getsockname()[1]
    for host in ("127.0.0.1", "::1"):
        with socket.create_connection((host, port)):
            pass
    close_all(sockets)


def test_every_address_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    def without_ipv6(family: int = -1, *args: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported")
        return real(family, *args)

    monkeypatch.setattr(socket, "socket", without_ipv6)
    sockets = open_listening("", 0, backlog=4, path="listeners.tcp")
    assert [opened.getsockname()[0] for opened in sockets] == ["0.0.0.0"]
    close_all(sockets)


@needs_ipv6
def test_a_name_with_two_addresses_has_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to_two(monkeypatch)
    sockets = open_listening("localhost", 0, backlog=4, path="listeners.tcp")
    ports = {opened.getsockname()[1] for opened in sockets}
    assert len(sockets) == 2
    assert len(ports) == 1
    close_all(sockets)


@needs_ipv6
@pytest.mark.parametrize("taken_times", [1, PORT_TRIES_MAX - 1, PORT_TRIES_MAX])
def test_a_port_that_is_taken_on_the_second_address_is_not_the_only_one(
    monkeypatch: pytest.MonkeyPatch, taken_times: int
) -> None:
    resolve_to_two(monkeypatch)
    bind = sockets_module._bind
    asked: list[int] = []

    def raced(family: socket.AddressFamily, address: str, port: int, **rest: Any) -> socket.socket:
        """Another process has the port on the second address, at first."""
        if family != socket.AF_INET:
            return bind(family, address, port, **rest)
        asked.append(port)
        if len(asked) <= taken_times:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        # Any free port: a process beside this test may really have the one that is asked for.
        return bind(family, address, 0, **rest)

    monkeypatch.setattr(sockets_module, "_bind", raced)
    if taken_times < PORT_TRIES_MAX:
        sockets = open_listening("localhost", 0, backlog=4, path="listeners.tcp")
        assert len(sockets) == 2
        assert sockets[0].getsockname()[1] == asked[-1]
        assert len(asked) == taken_times + 1
        close_all(sockets)
    else:
        with pytest.raises(AddressUnavailable, match=r"localhost:\d+") as failure:
            open_listening("localhost", 0, backlog=4, path="listeners.tcp")
        assert failure.value.hint
        assert str(asked[-1]) in str(failure.value)
        assert len(asked) == PORT_TRIES_MAX
    assert all(asked)


def test_a_taken_port_is_a_clear_error() -> None:
    first = open_listening("127.0.0.1", 0, backlog=4, path="listeners.tcp")
    port = first[0].getsockname()[1]
    with pytest.raises(AddressUnavailable, match=f"127.0.0.1:{port}") as failure:
        open_listening("127.0.0.1", port, backlog=4, path="listeners.tcp")
    assert failure.value.path == "listeners.tcp.bind"
    assert failure.value.hint
    close_all(first)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_a_foreign_address_is_a_clear_error(host: str) -> None:
    with pytest.raises((ConfigError, AddressUnavailable)) as failure:
        open_listening(host, 0, backlog=4, path="listeners.tcp")
    assert failure.value.path == "listeners.tcp.bind"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (("10.0.0.1", 5), ("10.0.0.1", 5)),
        (("::ffff:10.0.0.1", 5, 0, 0), ("10.0.0.1", 5)),
        (("2001:db8::1", 5, 0, 0), ("2001:db8::1", 5)),
    ],
)
def test_plain_address(address: tuple[object, ...], expected: tuple[str, int]) -> None:
    assert plain_address(address) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("", False),
    ],
)
def test_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


HEADER = b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 1883\r\n"


@pytest.mark.parametrize("split", [1, 5, 6, 20, len(HEADER) - 1, len(HEADER)])
async def test_a_header_is_read_to_its_last_byte_and_no_further(split: int) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        far.send(HEADER[:split])
        reading = asyncio.ensure_future(read_proxy_header(near))
        for _ in range(3):
            await asyncio.sleep(0)
        far.send(HEADER[split:] + b"\x10\x0c")
        header = await reading
        assert header == ProxyHeader(len(HEADER), ("203.0.113.7", 56324))
        assert near.recv(100) == b"\x10\x0c"


async def test_a_header_byte_by_byte() -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        reading = asyncio.ensure_future(read_proxy_header(near))
        for byte in HEADER + b"\x10":
            far.send(bytes([byte]))
            await asyncio.sleep(0)
        assert isinstance(await reading, ProxyHeader)
        assert near.recv(100) == b"\x10"


async def test_no_header() -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        far.send(b"\x10\x0c\x00\x04MQTT")
        assert isinstance(await read_proxy_header(near), ProxyFault)
    near, far = socket.socketpair()
    near.setblocking(False)
    with near:
        far.close()
        assert isinstance(await read_proxy_header(near), ProxyFault)
