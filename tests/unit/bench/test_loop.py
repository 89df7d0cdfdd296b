"""The loop with real sockets and a peer that answers as little as it must."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from perdure.bench.client import Client
from perdure.bench.errors import BenchError
from perdure.bench.loop import Link, Loop, allow_files
from tests.support.bounds import HANG_S
from tests.unit.bench.helpers import connack


class Peer:
    """Listens, and hands the connection to the test."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(HANG_S)
        self.port: int = self._listener.getsockname()[1]
        self._sock: socket.socket | None = None

    def accepted(self) -> socket.socket:
        if self._sock is None:
            self._sock = self._listener.accept()[0]
        return self._sock

    def close(self) -> None:
        self._listener.close()
        if self._sock is not None:
            self._sock.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


@pytest.fixture
def loop(peer: Peer) -> Iterator[Loop]:
    loop = Loop("127.0.0.1", peer.port)
    yield loop
    loop.close()


def connected(loop: Loop, peer: Peer) -> Link:
    link = Link(Client("c", version=4), loop)
    loop.connect(link)
    loop.turn(1_000_000_000)
    sock = peer.accepted()
    assert sock.recv(100).startswith(b"\x10")
    sock.sendall(connack())
    loop.turn(1_000_000_000)
    assert link.client.is_ready
    return link


def test_a_client_connects_and_leaves(loop: Loop, peer: Peer) -> None:
    link = connected(loop, peer)
    assert loop.link_count == 1
    link.client.close()
    link.flush()
    sock = peer.accepted()
    assert sock.recv(10) == b"\xe0\x00"
    sock.close()
    loop.turn(1_000_000_000)
    assert loop.link_count == 0
    assert not link.is_open


def test_what_the_socket_does_not_take_goes_out_later(loop: Loop, peer: Peer) -> None:
    link = connected(loop, peer)
    much = bytes(range(256)) * 80_000
    link.client.out.append(much)
    link.flush()
    assert link.unsent
    link.client.out.append(b"end")
    link.flush()
    sock = peer.accepted()
    got = bytearray()
    while len(got) < len(much) + 3:
        loop.turn(1)
        got += sock.recv(1 << 20)
    assert bytes(got) == much + b"end"
    loop.turn(1)
    assert not link.unsent


def test_a_broker_that_closes_by_itself_ends_the_run(loop: Loop, peer: Peer) -> None:
    connected(loop, peer)
    peer.accepted().close()
    with pytest.raises(BenchError, match="closed the connection of c"):
        loop.turn(1_000_000_000)


def test_a_broker_that_is_being_stopped_may_close(loop: Loop, peer: Peer) -> None:
    link = connected(loop, peer)
    loop.is_closing = True
    peer.accepted().close()
    loop.turn(1_000_000_000)
    assert not link.is_open


def test_a_client_that_is_stuck_reads_when_it_goes_on(loop: Loop, peer: Peer) -> None:
    link = connected(loop, peer)
    loop.pause(link)
    peer.accepted().close()
    loop.is_closing = True
    loop.turn(1_000_000)
    assert link.is_open
    loop.watch(link)
    loop.turn(1_000_000_000)
    assert not link.is_open


def test_short_waits_end_in_time(loop: Loop) -> None:
    loop.turn(100_000)
    assert loop.link_count == 0


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    loop = Loop("127.0.0.1", port)

    def attempt() -> None:
        loop.connect(Link(Client("c", version=4), loop))
        loop.turn(1_000_000_000)

    with pytest.raises(BenchError, match=f"cannot connect to 127.0.0.1:{port}"):
        attempt()
    loop.close()


def test_a_host_that_does_not_exist() -> None:
    with pytest.raises(BenchError, match=r"nowhere\.invalid"):
        Loop("nowhere.invalid", 1883)


def test_more_files_than_the_system_allows() -> None:
    with pytest.raises(BenchError, match="open files"):
        allow_files(2**40)
    allow_files(10)
