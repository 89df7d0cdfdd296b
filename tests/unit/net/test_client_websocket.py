"""The WebSocket link against servers that do not keep to the rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from websockets.frames import Frame, Opcode
from websockets.utils import accept_key

from perdure.net.client_link import Endpoint, Link
from perdure.net.client_open import open_link
from tests.support.bounds import HANG_S
from tests.unit.net.test_client_link import Owner

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter, str], Awaitable[None]]


@asynccontextmanager
async def server(script: Script) -> AsyncIterator[Endpoint]:
    """A server that reads the upgrade request and then follows ``script``."""
    handlers: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = head.partition("Sec-WebSocket-Key: ")[2].partition("\r\n")[0]
        try:
            await script(reader, writer, key)
        finally:
            writer.close()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.ensure_future(serve(reader, writer)))

    listening = await asyncio.start_server(accepted, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield Endpoint(host="127.0.0.1", port=port, transport="ws", path="/mqtt?a=b")
        await asyncio.wait_for(asyncio.gather(*handlers), HANG_S)
    finally:
        for handler in handlers:
            handler.cancel()
        listening.close()
        await listening.wait_closed()


def upgrade(writer: asyncio.StreamWriter, key: str, *, subprotocol: str = "mqtt") -> None:
    chosen = f"Sec-WebSocket-Protocol: {subprotocol}\r\n" if subprotocol else ""
    writer.write(
        f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept_key(key)}\r\n{chosen}\r\n".encode()
    )


async def opened(endpoint: Endpoint, owner: Owner) -> Link:
    return await asyncio.wait_for(open_link(endpoint, owner), HANG_S)


@pytest.mark.spec("MQTT-6.0.0-4")
@pytest.mark.parametrize("subprotocol", ["", "mqttv3.1"])
async def test_a_server_must_choose_mqtt(subprotocol: str) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        upgrade(writer, key, subprotocol=subprotocol)
        await reader.read()

    owner = Owner()
    async with server(script) as endpoint:
        with pytest.raises(ConnectionAbortedError, match="WebSocket"):
            await opened(endpoint, owner)
    assert owner.lost == []


async def test_a_server_that_hangs_up_in_the_handshake() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        pass

    async with server(script) as endpoint:
        with pytest.raises(ConnectionAbortedError):
            await opened(endpoint, Owner())


async def test_a_handshake_that_is_given_up() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        await reader.read()

    async with server(script) as endpoint:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(open_link(endpoint, Owner()), 0.05)


@pytest.mark.spec("MQTT-6.0.0-1")
async def test_a_text_frame_ends_the_connection() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        upgrade(writer, key)
        writer.write(Frame(Opcode.BINARY, b"good").serialize(mask=False))
        writer.write(Frame(Opcode.TEXT, b"bad").serialize(mask=False))
        answer = await reader.read(100)
        assert answer[0] == 0x88

    owner = Owner()
    async with server(script) as endpoint:
        await opened(endpoint, owner)
        await owner.until_lost()
    assert owner.received == b"good"


async def test_frames_cut_and_joined_and_a_close_by_the_server() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        upgrade(writer, key)
        frames = (
            Frame(Opcode.BINARY, b"ab", fin=False),
            Frame(Opcode.PING, b"?"),
            Frame(Opcode.CONT, b"cd"),
            Frame(Opcode.BINARY, b"ef"),
            Frame(Opcode.CLOSE, b"\x03\xe8"),
        )
        for byte in b"".join(frame.serialize(mask=False) for frame in frames):
            writer.write(bytes([byte]))
            await writer.drain()
        answer = await reader.readexactly(2)
        assert answer[0] == 0x8A

    owner = Owner()
    async with server(script) as endpoint:
        await opened(endpoint, owner)
        await owner.until_lost()
    assert owner.received == b"abcdef"


async def test_a_server_that_ignores_our_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.net.client_websocket.CLOSE_TIMEOUT_S", 0.02)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        upgrade(writer, key)
        with suppress(ConnectionError):
            await reader.read()

    owner = Owner()
    async with server(script) as endpoint:
        link = await opened(endpoint, owner)
        link.close()
        await owner.until_lost()
