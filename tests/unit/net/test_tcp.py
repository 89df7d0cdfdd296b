"""The TCP shell on real sockets of this machine, on both event loops."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from pathlib import Path

import pytest

from perdure.net.tls import client_context
from tests.support.bounds import HANG_S
from tests.unit.net.helpers import Bench, Certificates


async def test_bytes_travel_both_ways_and_the_peer_is_known(bench: Bench) -> None:
    bench.echo = True
    listener = bench.listen()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"\x10\x00hello")
    assert await reader.readexactly(7) == b"\x10\x00hello"
    connection = await bench.connection()
    local = writer.get_extra_info("sockname")
    peer = connection.peer
    assert (peer.listener, peer.kind) == ("test", "tcp")
    assert (peer.address, peer.port) == (local[0], local[1])
    assert peer.loopback
    assert peer.certificate_subject is None
    writer.close()
    await connection.until(lambda c: c.lost)
    assert connection.lost == [None]


async def test_accepted_sockets_send_small_packets_at_once(bench: Bench) -> None:
    listener = bench.listen()
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    connection = await bench.connection()
    accepted = connection.stream._transport.get_extra_info("socket")  # type: ignore[attr-defined]
    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
    writer.close()


async def test_close_flushes_what_was_written_and_nothing_later(bench: Bench) -> None:
    listener = bench.listen(write_high_bytes=1 << 16, write_low_bytes=1 << 14)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    connection = await bench.connection()
    body = bytes(8 * 1024 * 1024)
    connection.stream.write(body)
    connection.stream.close()
    connection.stream.write(b"too late")
    connection.stream.close()
    received = 0
    while chunk := await reader.read(1 << 20):
        received += len(chunk)
    assert received == len(body)
    writer.close()
    await connection.until(lambda c: c.lost)
    assert connection.lost == [None]


async def test_last_words_survive_a_peer_that_is_still_sending(bench: Bench) -> None:
    """A reset for unread bytes would destroy the DISCONNECT before the client reads it."""
    # What is left of the flood is not read: the connection ends with this time.
    listener = bench.listen(close_timeout_s=1.5)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"x" * 100_000)
    connection = await bench.connection()
    await connection.until(lambda c: c.received)
    connection.close(0x95)
    before = connection.received
    for _ in range(50):
        writer.write(b"y" * 100_000)
        await writer.drain()
    assert await reader.read() == b"\xe0\x01\x95"
    assert connection.received == before
    assert connection.lost == []
    writer.close()
    await connection.until(lambda c: c.lost)


async def test_a_peer_that_never_closes_is_aborted(bench: Bench) -> None:
    listener = bench.listen(close_timeout_s=0.02)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    connection = await bench.connection()
    connection.stream.close()
    assert await reader.read() == b""
    await connection.until(lambda c: c.lost)
    writer.close()


async def test_a_peer_that_reads_nothing_cannot_hold_a_closed_connection(bench: Bench) -> None:
    listener = bench.listen(close_timeout_s=0.02)
    with socket.create_connection(("127.0.0.1", listener.port)):
        connection = await bench.connection()
        connection.stream.write(bytes(16 * 1024 * 1024))
        assert connection.stream.write_buffer_size() > 0
        connection.stream.close()
        await connection.until(lambda c: c.lost)
        assert connection.stream.write_buffer_size() == 0


async def test_abort_drops_what_was_not_sent(bench: Bench) -> None:
    listener = bench.listen()
    with socket.create_connection(("127.0.0.1", listener.port)):
        connection = await bench.connection()
        connection.stream.write(bytes(16 * 1024 * 1024))
        connection.stream.abort()
        connection.stream.abort()
        await connection.until(lambda c: c.lost)
        # Whatever is asked of a stream that is gone does nothing.
        connection.stream.write(b"x")
        connection.stream.pause_reading()
        connection.stream.resume_reading()
        connection.stream.close()
        connection.stream.abort()
        assert connection.stream.write_buffer_size() == 0


async def test_a_reset_is_told_or_seen_as_an_end(bench: Bench) -> None:
    listener = bench.listen()
    client = socket.create_connection(("127.0.0.1", listener.port))
    connection = await bench.connection()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    await connection.until(lambda c: c.lost)
    assert isinstance(connection.lost[0], ConnectionResetError)


async def test_closing_towards_a_reset_peer_is_quiet(bench: Bench) -> None:
    listener = bench.listen()
    client = socket.create_connection(("127.0.0.1", listener.port))
    connection = await bench.connection()
    connection.stream.pause_reading()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    connection.stream.write(b"nobody reads this")
    connection.close(0x8B)
    await connection.until(lambda c: c.lost)


@pytest.mark.parametrize("is_reset", [False, True])
async def test_the_end_of_a_peer_is_seen_while_nothing_is_read(
    bench: Bench, is_reset: bool
) -> None:
    listener = bench.listen()
    client = socket.create_connection(("127.0.0.1", listener.port))
    connection = await bench.connection()
    stream = connection.stream
    stream.pause_reading()
    assert not stream.has_ended()
    if is_reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    else:
        client.send(b"unread")
    client.close()
    if not is_reset:
        assert not stream.has_ended(), "its last words are still to be read"
        stream.resume_reading()
        await connection.until(lambda c: c.received or c.lost)
    async with asyncio.timeout(HANG_S):
        while not stream.has_ended():
            await asyncio.sleep(0)
    stream.resume_reading()
    await connection.until(lambda c: c.lost)
    assert stream.has_ended()


async def test_water_marks_pause_and_resume_the_connection(bench: Bench) -> None:
    listener = bench.listen(write_high_bytes=1 << 16, write_low_bytes=1 << 12)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    connection = await bench.connection()
    body = bytes(16 * 1024 * 1024)
    connection.stream.write(body)
    await connection.until(lambda c: c.writing_paused)
    assert connection.stream.write_buffer_size() > 1 << 16
    await reader.readexactly(len(body))
    await connection.until(lambda c: not c.writing_paused)
    assert connection.stream.write_buffer_size() <= 1 << 12
    writer.close()


async def test_paused_reading_holds_bytes_back(bench: Bench) -> None:
    listener = bench.listen()
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    connection = await bench.connection()
    connection.stream.pause_reading()
    connection.stream.pause_reading()
    writer.write(b"held")
    # A second connection's round trip proves that the loop has had its turn.
    bench.echo = True
    reader2, writer2 = await asyncio.open_connection("127.0.0.1", listener.port)
    writer2.write(b"ping")
    await reader2.readexactly(4)
    assert connection.received == b""
    connection.stream.resume_reading()
    connection.stream.resume_reading()
    await connection.until(lambda c: c.received == b"held")
    writer.close()
    writer2.close()


async def test_half_closed_peer_still_gets_what_was_written(bench: Bench) -> None:
    bench.echo = True
    listener = bench.listen()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"z" * 300_000)
    writer.write_eof()
    assert await reader.read() == b"z" * 300_000
    writer.close()


@pytest.mark.parametrize("with_certificate", [False, True])
async def test_tls_is_the_same_shell(
    bench: Bench, certificates: Certificates, with_certificate: bool
) -> None:
    bench.echo = True
    listener = bench.listen("tls", tls=certificates.tls(client_ca=certificates["ca.pem"]))
    context = client_context(
        cafile=certificates["ca.pem"],
        certificate=certificates["client.pem"] if with_certificate else "",
        private_key=certificates["client.key"] if with_certificate else "",
        alpn="mqtt",
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
    body = b"secret" * 50_000
    writer.write(body)
    assert await reader.readexactly(len(body)) == body
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "mqtt"
    connection = await bench.connection()
    assert connection.peer.kind == "tls"
    assert connection.peer.certificate_subject == ("sensor-7" if with_certificate else None)
    connection.close(0x8B)
    assert await reader.read() == b"\xe0\x01\x8b"
    writer.close()
    await connection.until(lambda c: c.lost)


async def test_tls_failures_never_reach_a_connection(
    bench: Bench, certificates: Certificates
) -> None:
    tls = certificates.tls(client_ca=certificates["ca.pem"], require_client_certificate=True)
    listener = bench.listen("tls", tls=tls)
    for name in ("", "stranger"):
        context = client_context(
            cafile=certificates["ca.pem"],
            certificate=certificates[f"{name}.pem"] if name else "",
            private_key=certificates[f"{name}.key"] if name else "",
        )
        with pytest.raises((ssl.SSLError, ConnectionError)):  # noqa: PT012 - where depends on TLS 1.3
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
            try:
                await reader.readexactly(1)
            except asyncio.IncompleteReadError as exc:
                raise ConnectionError from exc
            finally:
                writer.close()
    await listener.wait_idle()
    assert listener.stats.handshake_failures_total == 2
    assert bench.metrics.tls_handshake_failures == 2
    assert bench.connections == []


async def test_a_silent_tls_peer_is_dropped(bench: Bench, certificates: Certificates) -> None:
    listener = bench.listen("tls", tls=certificates.tls(), handshake_timeout_s=0.02)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    assert await reader.read() == b""
    await listener.wait_idle()
    assert listener.stats.handshake_failures_total == 1
    writer.close()


async def test_a_new_certificate_holds_from_the_next_connection(
    bench: Bench, certificates: Certificates, tmp_path: Path
) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "chain.key"
    chain.write_bytes(Path(certificates["server.pem"]).read_bytes())
    key.write_bytes(Path(certificates["server.key"]).read_bytes())
    listener = bench.listen(
        "tls", tls=certificates.tls(certificate=str(chain), private_key=str(key))
    )
    context = client_context(cafile=certificates["ca.pem"])

    async def serial_number() -> str:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
        try:
            return str(writer.get_extra_info("peercert")["serialNumber"])
        finally:
            writer.close()

    first = await serial_number()
    chain.write_bytes(Path(certificates["renewed.pem"]).read_bytes())
    key.write_bytes(Path(certificates["renewed.key"]).read_bytes())
    assert await serial_number() == first
    listener.reload_tls()
    assert await serial_number() != first


async def test_a_shell_aborted_below_its_handshake_makes_no_connection(bench: Bench) -> None:
    listener = bench.listen()
    client = socket.create_connection(("127.0.0.1", listener.port))
    listener._accept_ready(listener._sockets[0])
    (shell,) = listener._shells
    shell.abort()
    await listener.wait_idle()
    assert bench.connections == []
    client.close()
