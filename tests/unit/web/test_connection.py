"""Whatever a peer sends or leaves undone, it costs a bounded time and at most a line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.unit.web.asgi import TOKEN

pytest.importorskip("uvicorn")
import uvicorn
from uvicorn.server import ServerState

from perdure.pipeline.protocol import API, LOG_PATH
from perdure.web.connection import BoundedConnection
from perdure.web.gate import Gate

LIVEZ = f"GET {API}/version HTTP/1.1\r\nHost: x\r\n\r\n".encode()
POST = f"POST {LOG_PATH}/read HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n".encode()


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closing = False
        self.aborted = False

    def write(self, data: Any) -> None:
        if not self.closing:
            self.written += bytes(data)

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.7", 5), "sockname": ("127.0.0.1", 80)}.get(name, default)


class Peer:
    """A connection and what was sent to it."""

    def __init__(self, app: Any, context: Any, gate: Gate | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.begun_s = self.loop.time()
        self.gate = Gate(8) if gate is None else gate
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            h11_max_incomplete_event_size=context.settings.head_bytes_max,
        )
        self.connection = BoundedConnection(
            config, ServerState(), self.loop, gate=self.gate, context=context
        )
        self.gate.enter(self.connection)
        self.transport = Transport()
        self.connection.connection_made(self.transport)

    async def send(self, data: bytes) -> None:
        self.connection.data_received(data)
        for _ in range(20):
            await asyncio.sleep(0)

    def after(self, seconds: float) -> None:
        """The deadlines are looked at so long after now."""
        self.connection.check(self.loop.time() + seconds)

    async def end(self) -> None:
        """Break off what is being answered."""
        tasks = list(self.connection.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def statuses(self) -> list[int]:
        parts = self.transport.written.split(b"HTTP/1.1 ")[1:]
        return [int(part[:3]) for part in parts]


Make = Callable[[], Peer]


@pytest.fixture
def make(app: Any, context: Any) -> Make:
    return lambda: Peer(app, context)


def dropped(context: Any) -> dict[str, int]:
    told = context.traffic.take()
    return dict(told.dropped) if told is not None else {}


async def test_a_head_that_trickles_has_one_deadline(make: Make, context: Any) -> None:
    peer = make()
    for byte in LIVEZ[:20]:
        await peer.send(bytes([byte]))
        peer.after(9)
    assert not peer.transport.closing
    peer.after(11)
    assert peer.statuses == [408]
    assert peer.transport.closing
    assert b"http.head_timeout_s" in peer.transport.written
    assert [one["event"] for one in context.told] == ["http.dropped"]
    assert dropped(context) == {"head_timeout": 1}


async def test_an_idle_connection_is_kept_for_a_while(make: Make, context: Any) -> None:
    peer = make()
    await peer.send(LIVEZ)
    assert peer.statuses == [200]
    peer.after(29)
    assert not peer.transport.closing
    peer.after(31)
    assert peer.transport.closing
    assert peer.statuses == [200]
    assert dropped(context) == {}


async def test_a_second_head_that_trickles(make: Make, context: Any) -> None:
    peer = make()
    await peer.send(LIVEZ + LIVEZ[:9])
    peer.after(11)
    assert peer.statuses == [200, 408]
    assert dropped(context) == {"head_timeout": 1}


async def test_a_body_that_trickles(make: Make, context: Any) -> None:
    peer = make()
    await peer.send(POST + b"Content-Length: 100\r\n\r\n{")
    peer.after(29)
    assert not peer.transport.closing
    await peer.send(b" ")
    peer.after(31)
    assert peer.statuses == [408]
    await asyncio.sleep(0)
    assert dropped(context) == {"body_timeout": 1}
    assert context.traffic.in_flight == 0


async def test_a_body_that_nobody_reads_has_a_deadline_too(make: Make, context: Any) -> None:
    peer = make()
    await peer.send(LIVEZ[:-2] + b"Content-Length: 100\r\n\r\n")
    assert peer.statuses == [200]
    for _ in range(5):
        await peer.send(b"x")
    peer.after(31)
    assert peer.transport.closing
    assert dropped(context) == {"body_timeout": 1}


async def half_an_answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    await asyncio.Event().wait()


async def test_an_answer_that_is_not_taken(context: Any) -> None:
    peer = Peer(half_an_answer, context)
    await peer.send(LIVEZ)
    peer.after(1_000)
    peer.connection.pause_writing()
    peer.after(59)
    assert not peer.transport.closing
    peer.after(61)
    assert peer.transport.aborted
    assert dropped(context) == {"send_timeout": 1}
    await peer.end()


async def test_last_bytes_that_are_not_taken(make: Make) -> None:
    peer = make()
    await peer.send(b"nonsense\r\n\r\n")
    assert peer.transport.closing
    peer.after(0)
    assert not peer.transport.aborted
    peer.after(6)
    assert peer.transport.aborted


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 50_000 + b"\r\n", 431),
    ],
)
@pytest.mark.parametrize("piece", [1_000_000, 1000])
async def test_what_is_no_request_is_told_so(
    make: Make, context: Any, data: bytes, status: int, piece: int
) -> None:
    peer = make()
    for at in range(0, len(data), piece):
        await peer.send(data[at : at + piece])
    assert peer.statuses == [status]
    assert peer.transport.closing
    assert [one["event"] for one in context.told] == ["http.dropped"]
    assert dropped(context) == {"malformed": 1}


async def test_a_bad_chunk_ends_the_request_that_reads_it(make: Make, context: Any) -> None:
    peer = make()
    await peer.send(POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n")
    assert peer.statuses == []
    await peer.send(b"nonsense\r\n")
    assert peer.statuses == [400]
    assert peer.transport.closing
    assert context.traffic.in_flight == 0
    assert dropped(context) == {"malformed": 1}


async def test_nonsense_behind_an_answer_that_was_begun_adds_nothing(context: Any) -> None:
    peer = Peer(half_an_answer, context)
    await peer.send(POST + b"Transfer-Encoding: chunked\r\n\r\n")
    await peer.send(b"nonsense\r\n")
    assert peer.statuses == [200]
    assert peer.transport.closing
    await peer.end()


async def test_the_reserve_is_for_health_alone(app: Any, context: Any) -> None:
    peer = Peer(app, context)
    peer.connection.is_reserve = True
    peer.connection.connection_made(peer.transport)
    await peer.send(f"GET {LOG_PATH} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert peer.statuses == [503]
    body = peer.transport.written.partition(b"\r\n\r\n")[2]
    assert msgspec.json.decode(body)["code"] == "busy"
    assert peer.transport.closing
    other = Peer(app, context)
    other.connection.is_reserve = True
    other.connection.connection_made(other.transport)
    await other.send(LIVEZ)
    assert other.statuses == [200]


async def test_eviction_and_shutdown(app: Any, context: Any) -> None:
    gate = Gate(1)
    first = Peer(app, context, gate)
    second = Peer(app, context, gate)
    assert first.transport.aborted
    assert dropped(context) == {"evicted": 1}
    await second.send(LIVEZ[:5])
    second.connection.shutdown()
    assert second.transport.closing
    second.connection.connection_lost(None)
    assert len(gate) == 0
