"""The broker's state as its admin socket tells it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.admin.client import AsyncAdmin
from tests.unit.server.administration.fake_service import stats

pytest.importorskip("starlette")
from perdure.observe.admin_socket import socket_address
from perdure.web import health
from perdure.web.health import KEEP_S, Health

STATS = stats("ok")


@contextlib.asynccontextmanager
async def health_of(data: Path, **more: Any) -> AsyncIterator[Health]:
    admin = AsyncAdmin(data)
    yield Health(admin, **more)
    await admin.close()


class Broker:
    """An admin socket that answers with what it was told."""

    def __init__(self) -> None:
        self.answer = msgspec.json.encode({"result": STATS}) + b"\n"
        self.asked: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(await reader.readline())
        writer.write(self.answer)
        writer.close()


async def test_an_answer_is_kept_for_a_moment(tmp_path: Path) -> None:
    now = [0.0]
    async with health_of(tmp_path, clock=lambda: now[0]) as found:
        assert await found.stats() is None
        broker = Broker()
        server = await asyncio.start_unix_server(broker.serve, tmp_path / "admin.sock")
        assert await found.stats() is None
        now[0] += KEEP_S + 0.1
        both = await asyncio.gather(found.stats(), found.stats())
    assert both == [STATS, STATS]
    assert broker.asked == [b'{"operation":"stats.show","request":{}}\n']
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("answer", [b"", b"no json\n", b'{"error":{"code":"busy"}}\n', b"[]\n"])
async def test_what_is_no_answer(tmp_path: Path, answer: bytes) -> None:
    broker = Broker()
    broker.answer = answer
    server = await asyncio.start_unix_server(broker.serve, tmp_path / "admin.sock")
    async with health_of(tmp_path) as found:
        assert await found.stats() is None
    server.close()
    await server.wait_closed()


async def test_a_long_path(tmp_path: Path) -> None:
    data = tmp_path / ("d" * 120)
    data.mkdir()
    broker = Broker()
    with socket_address(data) as address:
        server = await asyncio.start_unix_server(broker.serve, address)
    async with health_of(data) as found:
        assert await found.stats() == STATS
    server.close()
    await server.wait_closed()


async def test_a_broker_that_says_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(health, "TIMEOUT_S", 0.05)
    waiting = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await waiting.wait()
        writer.close()

    server = await asyncio.start_unix_server(silent, tmp_path / "admin.sock")
    async with health_of(tmp_path) as found:
        assert await found.stats() is None
    waiting.set()
    server.close()
    await server.wait_closed()
