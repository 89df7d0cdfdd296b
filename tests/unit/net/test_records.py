"""TLS records of one byte: read in slices, in order, to the last one; on both event loops."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from perdure.net.records import RECORDS_PER_SLICE
from perdure.net.tls import client_context
from tests.unit.net.helpers import Bench, Certificates, Recorder

UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)
COUNT = 10 * RECORDS_PER_SLICE + 7


class Peer:
    """A client whose records are cut by the test, and sent in one piece."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_hostname="localhost", server_side=False
        )

    async def open(self, port: int) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                self._incoming.write(await self.reader.read(1 << 16))
            else:
                break
        self.flush()

    def flush(self) -> None:
        self.writer.write(self._outgoing.read())

    def send(self, data: bytes, *, size: int = 1) -> None:
        """Send ``data`` in records of ``size`` bytes."""
        for at in range(0, len(data), size):
            self._tls.write(data[at : at + size])
        self.flush()

    async def read(self) -> bytes:
        while True:
            try:
                return self._tls.read(1 << 16)
            except ssl.SSLWantReadError:
                self._incoming.write(await self.reader.read(1 << 16))

    def leave(self, *, closes: bool) -> None:
        """Say that nothing more comes, and maybe close."""
        with pytest.raises(ssl.SSLWantReadError):
            self._tls.unwrap()
        self.flush()
        if closes:
            self.writer.write_eof()


@pytest_asyncio.fixture
async def peer(certificates: Certificates) -> AsyncIterator[Peer]:
    peer = Peer(client_context(cafile=certificates["ca.pem"]))
    yield peer
    peer.writer.close()


async def opened(bench: Bench, certificates: Certificates, peer: Peer) -> Recorder:
    await peer.open(bench.listen("tls", tls=certificates.tls()).port)
    return await bench.connection()


def numbered(count: int) -> bytes:
    return bytes(number % 251 for number in range(count))


async def test_records_of_one_byte_are_read_in_slices(
    bench: Bench, certificates: Certificates, peer: Peer
) -> None:
    connection = await opened(bench, certificates, peer)
    for _ in range(2):  # and it begins anew when all are read
        before = len(connection.received)
        peer.send(numbered(COUNT))
        await connection.until(lambda c: len(c.received) == before + COUNT)  # noqa: B023
        assert connection.received[before:] == numbered(COUNT)
    assert max(map(len, connection.chunks)) <= RECORDS_PER_SLICE
    peer.send(bytes(1 << 20), size=1 << 14)
    await connection.until(lambda c: len(c.received) == 2 * COUNT + (1 << 20))


@pytest.mark.parametrize("count", [COUNT, 8 * COUNT])
@pytest.mark.parametrize("closes", [True, False])
async def test_a_client_that_leaves_has_said_it_all(
    bench: Bench, certificates: Certificates, peer: Peer, closes: bool, count: int
) -> None:
    """Its last packets and the DISCONNECT are behind the slice when the end of it is seen."""
    connection = await opened(bench, certificates, peer)
    peer.send(numbered(count))
    peer.leave(closes=closes)
    await connection.until(lambda c: c.lost)
    assert connection.received == numbered(count)
    assert connection.lost == [None]


async def left_while_it_waits(
    bench: Bench, certificates: Certificates, peer: Peer, count: int
) -> Recorder:
    """A connection that wants nothing now, of a client that has sent all and closed."""
    connection = await opened(bench, certificates, peer)
    connection.stop_after = 1
    peer.send(b"\0")
    await connection.until(lambda c: c.chunks)
    peer.send(numbered(count))
    peer.leave(closes=True)
    # No turn of the loop after the one that sees the end may tell of it.
    for _ in range(20):
        await asyncio.sleep(0)
    assert not connection.lost
    return connection


@pytest.mark.parametrize("count", [1, COUNT])
async def test_who_waits_is_given_what_a_client_has_said_before_it_left(
    bench: Bench, certificates: Certificates, peer: Peer, count: int
) -> None:
    """A QoS 0 PUBLISH and the DISCONNECT come while commits are behind."""
    connection = await left_while_it_waits(bench, certificates, peer, count)
    connection.stream.resume_reading()
    await connection.until(lambda c: c.lost)
    assert connection.received == b"\0" + numbered(count)
    assert connection.lost == [None]


@pytest.mark.parametrize("ends", ["abort", "close"])
async def test_who_waits_may_end_a_client_that_has_left(
    bench: Bench, certificates: Certificates, peer: Peer, ends: str
) -> None:
    connection = await left_while_it_waits(bench, certificates, peer, COUNT)
    connection.stream.write(b"into the void")
    getattr(connection.stream, ends)()
    await connection.until(lambda c: c.lost)
    connection.stream.resume_reading()
    await asyncio.sleep(0)
    assert connection.received == b"\0"
    assert len(connection.lost) == 1
    assert not bench.listeners[0].connections


async def test_who_wants_nothing_is_given_nothing(
    bench: Bench, certificates: Certificates, peer: Peer
) -> None:
    connection = await opened(bench, certificates, peer)
    connection.stop_after = 2
    peer.send(numbered(COUNT))
    await connection.until(lambda c: len(c.chunks) == 2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(connection.chunks) == 2
    connection.stream.resume_reading()
    connection.stream.resume_reading()
    await connection.until(lambda c: len(c.received) == COUNT)
    assert connection.received == numbered(COUNT)


async def test_records_that_come_one_by_one_count_for_themselves(
    bench: Bench, certificates: Certificates, peer: Peer
) -> None:
    connection = await opened(bench, certificates, peer)
    for number in range(2 * RECORDS_PER_SLICE):
        peer.send(b"x")
        await connection.until(lambda c: len(c.received) == number + 1)  # noqa: B023
    assert len(connection.chunks) == 2 * RECORDS_PER_SLICE


async def test_a_broken_record_behind_a_slice_costs_the_connection(
    bench: Bench, certificates: Certificates, peer: Peer
) -> None:
    connection = await opened(bench, certificates, peer)
    peer.send(numbered(2 * RECORDS_PER_SLICE))
    peer.writer.write(b"\x17\x03\x03\x00\x20" + bytes(32))
    await connection.until(lambda c: c.lost)
    assert connection.received == numbered(2 * RECORDS_PER_SLICE)


async def test_a_connection_that_closes_in_a_slice_is_given_no_more(
    bench: Bench, certificates: Certificates, peer: Peer
) -> None:
    connection = await opened(bench, certificates, peer)
    peer.send(numbered(COUNT))
    await connection.until(lambda c: c.chunks)
    connection.close(0x8B)
    assert await peer.read() == b"\xe0\x01\x8b"
    assert len(connection.received) < COUNT
    peer.writer.close()
    await connection.until(lambda c: c.lost)


async def test_websockets_over_tls_are_the_same(
    bench: Bench, certificates: Certificates, peer: Peer
) -> None:
    listener = bench.listen("wss", tls=certificates.tls())
    await peer.open(listener.port)
    peer.send(UPGRADE, size=1 << 14)
    await peer.read()
    connection = await bench.connection()
    body = numbered(COUNT)
    unmasked = b"\x82\x81" + bytes(4)
    peer.send(b"".join(unmasked + body[at : at + 1] for at in range(COUNT)))
    await connection.until(lambda c: len(c.received) == COUNT)
    assert connection.received == body
    assert max(map(len, connection.chunks)) <= RECORDS_PER_SLICE
