"""The broker's state as its admin socket tells it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
from perdure.observe.admin_socket import socket_address
from perdure.web import health
from perdure.web.health import KEEP_S, Health


class Broker:
    """An admin socket that answers with what it was told."""

    def __init__(self) -> None:
        self.answer = b'{"result":{"storage":"ok"}}\n'
        self.asked: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(await reader.readline())
        writer.write(self.answer)
        writer.close()


async def test_an_answer_is_kept_for_a_moment(tmp_path: Path) -> None:
    now = [0.0]
    found = Health(tmp_path, clock=lambda: now[0])
    assert await found.stats() is None
    broker = Broker()
    server = await asyncio.start_unix_server(broker.serve, tmp_path / "admin.sock")
    assert await found.stats() is None
    now[0] += KEEP_S + 0.1
    both = await asyncio.gather(found.stats(), found.stats())
    assert both == [{"storage": "ok"}, {"storage": "ok"}]
    assert broker.asked == [b'{"command":"stats"}\n']
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("answer", [b"", b"no json\n", b'{"error":{"code":"busy"}}\n', b"[]\n"])
async def test_what_is_no_answer(tmp_path: Path, answer: bytes) -> None:
    broker = Broker()
    broker.answer = answer
    server = await asyncio.start_unix_server(broker.serve, tmp_path / "admin.sock")
    assert await Health(tmp_path).stats() is None
    server.close()
    await server.wait_closed()


async def test_a_long_path(tmp_path: Path) -> None:
    data = tmp_path / ("d" * 120)
    data.mkdir()
    broker = Broker()
    with socket_address(data) as address:
        server = await asyncio.start_unix_server(broker.serve, address)
    assert await Health(data).stats() == {"storage": "ok"}
    server.close()
    await server.wait_closed()


async def test_a_broker_that_says_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(health, "TIMEOUT_S", 0.05)
    waiting = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await waiting.wait()
        writer.close()

    server = await asyncio.start_unix_server(silent, tmp_path / "admin.sock")
    assert await Health(tmp_path).stats() is None
    waiting.set()
    server.close()
    await server.wait_closed()
