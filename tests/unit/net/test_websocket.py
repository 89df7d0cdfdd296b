"""The WebSocket shell against the client of the websockets library and against raw bytes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from perdure.net.listener import Listener
from perdure.net.tls import client_context
from perdure.net.websocket import FRAMES_PER_SLICE
from tests.support.bounds import HANG_S
from tests.unit.net.helpers import Bench, Certificates

MQTT = Subprotocol("mqtt")


def opened(listener: Listener, path: str = "/mqtt") -> connect:
    return connect(
        f"ws://127.0.0.1:{listener.port}{path}",
        subprotocols=[MQTT],
        proxy=None,
        close_timeout=HANG_S,
    )


@asynccontextmanager
async def raw(listener: Listener) -> AsyncIterator[RawClient]:
    """A client that may cut and join frames as it likes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    client = RawClient(reader, writer)
    await client.upgrade(listener.port)
    try:
        yield client
    finally:
        writer.close()


class RawClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def upgrade(self, port: int) -> None:
        protocol = ClientProtocol(parse_uri(f"ws://127.0.0.1:{port}/mqtt"), subprotocols=[MQTT])
        protocol.send_request(protocol.connect())
        self.writer.writelines(protocol.data_to_send())
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")

    def send(self, *frames: Frame) -> None:
        self.writer.write(b"".join(frame.serialize(mask=True) for frame in frames))


@pytest.mark.spec("MQTT-6.0.0-4")
async def test_the_subprotocol_is_mqtt_and_bytes_travel_both_ways(bench: Bench) -> None:
    bench.echo = True
    listener = bench.listen("ws")
    async with opened(listener) as client:
        assert client.subprotocol == "mqtt"
        assert client.protocol.extensions == []
        await client.send(b"\xc0\x00")
        assert await client.recv() == b"\xc0\x00"
        connection = await bench.connection()
        assert connection.peer.kind == "ws"
        assert connection.peer.address == "127.0.0.1"
        assert connection.peer.loopback
    await connection.until(lambda c: c.lost)
    assert connection.lost == [None]


async def test_each_write_is_one_binary_frame(bench: Bench) -> None:
    listener = bench.listen("ws")
    async with opened(listener) as client:
        connection = await bench.connection()
        connection.stream.write(b"one")
        connection.stream.write(b"two")
        assert [await client.recv(), await client.recv()] == [b"one", b"two"]


@pytest.mark.spec("MQTT-6.0.0-2")
@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_packets_may_span_frames_and_share_them(bench: Bench, size: int) -> None:
    listener = bench.listen("ws")
    body = bytes(range(20))
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    async with opened(listener) as client:
        for piece in pieces:
            await client.send(piece)
        connection = await bench.connection()
        await connection.until(lambda c: len(c.received) == len(body))
        assert connection.received == body


async def test_a_fragmented_message_with_a_ping_inside(bench: Bench) -> None:
    listener = bench.listen("ws")
    async with raw(listener) as client:
        client.send(
            Frame(Opcode.BINARY, b"ab", fin=False),
            Frame(Opcode.PING, b"still there?"),
            Frame(Opcode.CONT, b"cd", fin=False),
            Frame(Opcode.CONT, b"ef"),
            Frame(Opcode.BINARY, b"gh"),
        )
        pong = Frame(Opcode.PONG, b"still there?").serialize(mask=False)
        assert await client.reader.readexactly(len(pong)) == pong
        connection = await bench.connection()
        await connection.until(lambda c: len(c.received) == 8)
        assert connection.received == b"abcdefgh"


async def test_frames_in_one_segment_reach_the_connection_in_one_piece(bench: Bench) -> None:
    listener = bench.listen("ws")
    async with raw(listener) as client:
        client.send(*(Frame(Opcode.BINARY, b"%03d" % number) for number in range(100)))
        connection = await bench.connection()
        await connection.until(lambda c: len(c.received) == 300)
        assert len(connection.chunks) < 100
        assert connection.received == b"".join(b"%03d" % number for number in range(100))


async def test_bytes_may_arrive_one_at_a_time(bench: Bench) -> None:
    listener = bench.listen("ws")
    async with raw(listener) as client:
        whole = Frame(Opcode.BINARY, b"hello").serialize(mask=True)
        for at in range(len(whole)):
            client.writer.write(whole[at : at + 1])
            await client.writer.drain()
        connection = await bench.connection()
        await connection.until(lambda c: c.received == b"hello")


@pytest.mark.spec("MQTT-6.0.0-1")
async def test_a_text_frame_closes_the_connection(bench: Bench) -> None:
    listener = bench.listen("ws")
    async with opened(listener) as client:
        await client.send(b"before")
        await client.send("text")
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1003
        connection = await bench.connection()
        await connection.until(lambda c: c.lost)
        assert connection.received == b"before"


async def test_text_in_the_same_segment_as_a_close_frame(bench: Bench) -> None:
    listener = bench.listen("ws")
    async with raw(listener) as client:
        client.send(Frame(Opcode.TEXT, b"text"), Frame(Opcode.CLOSE, b""))
        await client.reader.read()
        connection = await bench.connection()
        client.writer.close()
        await connection.until(lambda c: c.lost)
        assert connection.received == b""


async def test_bytes_before_a_close_frame_in_the_same_segment_count(bench: Bench) -> None:
    """A DISCONNECT and the Close frame often share a segment; losing it would send the will."""
    listener = bench.listen("ws")
    async with raw(listener) as client:
        client.send(Frame(Opcode.BINARY, b"\xe0\x00"), Frame(Opcode.CLOSE, b"\x03\xe8"))
        closing = Frame(Opcode.CLOSE, b"\x03\xe8").serialize(mask=False)
        assert await client.reader.read() == closing
        connection = await bench.connection()
        client.writer.close()
        await connection.until(lambda c: c.lost)
        assert connection.received == b"\xe0\x00"


async def test_close_completes_the_closing_handshake(bench: Bench) -> None:
    listener = bench.listen("ws")
    async with opened(listener) as client:
        connection = await bench.connection()
        connection.stream.pause_reading()
        connection.close(0x8B)
        connection.stream.write(b"too late")
        connection.stream.close()
        assert await client.recv() == b"\xe0\x01\x8b"
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1000
        await connection.until(lambda c: c.lost)


async def test_data_after_our_close_frame_is_dropped(bench: Bench) -> None:
    listener = bench.listen("ws")
    async with raw(listener) as client:
        connection = await bench.connection()
        connection.stream.close()
        client.send(Frame(Opcode.BINARY, b"late"), Frame(Opcode.CLOSE, b"\x03\xe8"))
        await client.reader.read()
        client.writer.close()
        await connection.until(lambda c: c.lost)
        assert connection.received == b""


async def test_a_peer_that_ignores_our_close_frame_is_aborted(bench: Bench) -> None:
    listener = bench.listen("ws", close_timeout_s=0.02)
    async with raw(listener) as client:
        connection = await bench.connection()
        connection.stream.close()
        await connection.until(lambda c: c.lost)
        assert (await client.reader.read())[0] == 0x88


async def test_abort_ends_at_once(bench: Bench) -> None:
    listener = bench.listen("ws")
    async with raw(listener):
        connection = await bench.connection()
        connection.stream.abort()
        await connection.until(lambda c: c.lost)
        connection.stream.write(b"x")
        connection.stream.close()
        connection.stream.pause_reading()
        connection.stream.resume_reading()
        assert connection.stream.write_buffer_size() == 0


async def test_a_cut_connection_is_lost(bench: Bench) -> None:
    listener = bench.listen("ws")
    async with raw(listener) as client:
        connection = await bench.connection()
        client.writer.transport.abort()
        await connection.until(lambda c: c.lost)


async def test_a_message_above_the_limit_is_refused(bench: Bench) -> None:
    listener = bench.listen("ws", message_bytes_max=1000)
    async with opened(listener) as client:
        await client.send(bytes(1000))
        await client.send(bytes(1001))
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1009
        connection = await bench.connection()
        assert len(connection.received) == 1000


async def test_fragments_count_together(bench: Bench) -> None:
    listener = bench.listen("ws", message_bytes_max=1000)
    async with raw(listener) as client:
        client.send(
            Frame(Opcode.BINARY, bytes(600), fin=False), Frame(Opcode.CONT, bytes(600), fin=True)
        )
        answer = await client.reader.read()
        assert answer[0] == 0x88
        assert int.from_bytes(answer[2:4], "big") == 1009


async def test_broken_frames_are_a_protocol_error(bench: Bench) -> None:
    listener = bench.listen("ws")
    async with raw(listener) as client:
        client.writer.write(b"\x82\x01x")  # a client must mask
        answer = await client.reader.read()
        assert int.from_bytes(answer[2:4], "big") == 1002
        connection = await bench.connection()
        client.writer.close()
        await connection.until(lambda c: c.lost)


@pytest.mark.spec("MQTT-6.0.0-3")
@pytest.mark.parametrize("offer", [None, ["mqttv3.1"], ["chat"]])
async def test_other_subprotocols_are_refused(bench: Bench, offer: list[str] | None) -> None:
    listener = bench.listen("ws")
    offered = None if offer is None else [Subprotocol(name) for name in offer]
    with pytest.raises(InvalidStatus) as refusal:
        await connect(f"ws://127.0.0.1:{listener.port}/mqtt", subprotocols=offered, proxy=None)
    assert refusal.value.response.status_code == 400
    await listener.wait_idle()
    assert bench.connections == []
    assert listener.stats.handshake_failures_total == 1


async def test_mqtt_may_stand_anywhere_in_the_offer(bench: Bench) -> None:
    listener = bench.listen("ws")
    offer = [Subprotocol("mqttv3.1"), MQTT]
    async with connect(
        f"ws://127.0.0.1:{listener.port}/mqtt?token=1", subprotocols=offer, proxy=None
    ) as client:
        assert client.subprotocol == "mqtt"


@pytest.mark.parametrize("path", ["/", "/mqtt/", "/mqttx", "/other?x=/mqtt"])
async def test_other_paths_are_not_found(bench: Bench, path: str) -> None:
    listener = bench.listen("ws")
    with pytest.raises(InvalidStatus) as refusal:
        await opened(listener, path)
    assert refusal.value.response.status_code == 404
    await listener.wait_idle()
    assert bench.connections == []


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /mqtt HTTP/1.1\r\nHost: x\r\n\r\n", b"426"),
        (b"GET /mqtt HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 300 + b"\r\n", b"431"),
        (b"GET /mqtt HTTP/1.1\r\nHost: x\r\nCookie: " + b"c" * 20_000 + b"\r\n\r\n", b"431"),
        (b"\x10\x10\x00\x04MQTT\r\n\r\n", b""),
    ],
)
async def test_what_is_no_upgrade_is_answered_and_closed(
    bench: Bench, request_bytes: bytes, status: bytes
) -> None:
    listener = bench.listen("ws")
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(request_bytes)
    answer = await reader.read()
    assert answer[9:12] == status
    writer.close()
    await listener.wait_idle()
    assert bench.connections == []


REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)


@pytest.mark.parametrize(
    ("request_bytes", "reason"),
    [
        (REQUEST.replace(b": 13", b": 12"), "HTTP 400"),
        (REQUEST.replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"\xff\xfe"), "HTTP 400"),
        (b"\x10\x0c\x00\x04MQTT\x04\x02\0\0\0\0\r\n\r\n", "HTTP 400"),
        (b"\r\n\r\n", "HTTP 400"),
        (b"GET /mqtt HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\n", "HTTP 400"),
        (b"GET /mqtt HTTP/1.1\r\nA: " + b"b" * 20_000, "the request has more than 16384 bytes"),
    ],
)
async def test_a_malformed_handshake_is_one_line(
    bench: Bench,
    request_bytes: bytes,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals: list[str] = []
    monkeypatch.setattr(Listener, "handshake_failed", lambda _l, _s, why: refusals.append(why))
    listener = bench.listen("ws")
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(request_bytes + Frame(Opcode.CLOSE, b"").serialize(mask=True))
    with suppress(ConnectionError):
        await reader.read()
    writer.close()
    await listener.wait_idle()
    assert [why[: len(reason)] for why in refusals] == [reason]
    assert caplog.records == []
    assert bench.metrics.unexpected_errors == {}


@pytest.mark.parametrize("step", [1, 7, 1000])
async def test_frames_may_follow_the_request_at_once(bench: Bench, step: int) -> None:
    listener = bench.listen("ws")
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    said = REQUEST + b"".join(
        Frame(*each).serialize(mask=True)
        for each in ((Opcode.BINARY, b"hello"), (Opcode.CLOSE, b"\x03\xe8"))
    )
    for at in range(0, len(said), step):
        writer.write(said[at : at + step])
        await writer.drain()
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert answer.endswith(b"\x88\x02\x03\xe8")
    connection = await bench.connection()
    writer.close()
    await connection.until(lambda c: c.lost)
    assert connection.received == b"hello"


async def test_frames_of_one_byte_are_read_in_slices(bench: Bench) -> None:
    listener = bench.listen("ws")
    async with raw(listener) as client:
        count = 10 * FRAMES_PER_SLICE
        client.send(*(Frame(Opcode.BINARY, b"x") for _ in range(count)))
        connection = await bench.connection()
        await connection.until(lambda c: len(c.received) == count)
        assert max(map(len, connection.chunks)) <= FRAMES_PER_SLICE


async def test_frames_that_are_left_wait_while_the_connection_does(bench: Bench) -> None:
    listener = bench.listen("ws")
    async with raw(listener) as client:
        connection = await bench.connection()
        count = 4 * FRAMES_PER_SLICE
        connection.stop_after = 1
        client.send(*(Frame(Opcode.BINARY, b"x") for _ in range(count)))
        await connection.until(lambda c: c.chunks)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(connection.chunks) == 1
        connection.stream.resume_reading()
        await connection.until(lambda c: len(c.received) == count)


async def test_a_step_that_fails_costs_one_connection(bench: Bench) -> None:
    def broken(_data: bytes) -> None:
        raise RuntimeError("a defect")

    listener = bench.listen("ws")
    async with raw(listener) as client, raw(listener) as other:
        connection, second = await bench.connection(), await bench.connection(1)
        connection.receive = broken  # type: ignore[method-assign]
        client.send(Frame(Opcode.BINARY, b"x"))
        await connection.until(lambda c: c.lost)
        other.send(Frame(Opcode.BINARY, b"y"))
        await second.until(lambda c: c.received == b"y")
    assert bench.metrics.unexpected_errors == {("transport",): 1}


async def test_a_silent_peer_is_dropped(bench: Bench) -> None:
    listener = bench.listen("ws", handshake_timeout_s=0.02)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    assert await reader.read() == b""
    writer.close()
    await listener.wait_idle()
    assert listener.stats.handshake_failures_total == 1


@pytest.mark.parametrize(
    ("origin", "accepted"),
    [(None, True), ("https://good.example", True), ("https://evil.example", False)],
)
async def test_foreign_web_pages_can_be_kept_out(
    bench: Bench, origin: str | None, accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals: list[str] = []

    def failed(_listener: Listener, _shell: object, reason: str) -> None:
        refusals.append(reason)

    monkeypatch.setattr(Listener, "handshake_failed", failed)
    listener = bench.listen("ws", origins=("https://good.example",))

    async def attempt() -> ClientConnection:
        headers = {} if origin is None else {"Origin": origin}
        return await connect(
            f"ws://127.0.0.1:{listener.port}/mqtt",
            subprotocols=[MQTT],
            proxy=None,
            additional_headers=headers,
        )

    if accepted:
        await (await attempt()).close()
    else:
        with pytest.raises(InvalidStatus) as refusal:
            await attempt()
        assert refusal.value.response.status_code == 403
        await listener.wait_idle()
        assert refusals == ["HTTP 403: invalid Origin header: https://evil.example"]


async def test_secure_websocket_with_a_client_certificate(
    bench: Bench, certificates: Certificates
) -> None:
    bench.echo = True
    listener = bench.listen("wss", tls=certificates.tls(client_ca=certificates["ca.pem"]))
    context = client_context(
        cafile=certificates["ca.pem"],
        certificate=certificates["client.pem"],
        private_key=certificates["client.key"],
    )
    async with connect(
        f"wss://127.0.0.1:{listener.port}/mqtt", subprotocols=[MQTT], ssl=context, proxy=None
    ) as client:
        body = os.urandom(200_000)
        await client.send(body)
        received = b""
        while len(received) < len(body):
            message = await client.recv()
            assert isinstance(message, bytes)
            received += message
        assert received == body
        connection = await bench.connection()
        assert connection.peer.kind == "wss"
        assert connection.peer.certificate_subject == "sensor-7"


async def test_water_marks_and_paused_reading(bench: Bench) -> None:
    listener = bench.listen("ws", write_high_bytes=1 << 16, write_low_bytes=1 << 12)
    async with raw(listener) as client:
        connection = await bench.connection()
        connection.stream.write(bytes(16 * 1024 * 1024))
        await connection.until(lambda c: c.writing_paused)
        assert connection.stream.write_buffer_size() > 1 << 16
        connection.stream.pause_reading()
        client.send(Frame(Opcode.BINARY, b"held"))
        await client.reader.readexactly(16 * 1024 * 1024)
        await connection.until(lambda c: not c.writing_paused)
        assert connection.received == b""
        connection.stream.resume_reading()
        await connection.until(lambda c: c.received == b"held")
