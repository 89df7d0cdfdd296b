"""The HTTP process goes with its broker, however that goes, and its port is free at once."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from perdure.bench.ports import free_port
from tests.support.bounds import HANG_S
from tests.support.process import BrokerProcess, perdure_command

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.slow

REQUEST = b"GET /api/v1/readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def ready(port: int) -> bool:
    """Whether the broker says that it takes messages."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.startswith(b"HTTP/1.1 200 ")


def is_free(port: int) -> bool:
    """Whether another process could listen there."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("is_killed", [True, False])
async def test_it_goes_with_its_broker(tmp_path: Path, is_killed: bool) -> None:
    port, http_port = free_port(), free_port()
    command = perdure_command(tmp_path / "db", port, "--set", f"http.bind=127.0.0.1:{http_port}")
    broker = BrokerProcess(command, port=port, log=tmp_path / "log")
    try:
        for _ in range(2):
            await broker.start()
            assert await ready(http_port), broker.log_tail()
            if is_killed:
                await broker.kill()
            else:
                assert await broker.stop() == 0
                assert is_free(http_port)
        async with asyncio.timeout(HANG_S):
            while not is_free(http_port):
                await asyncio.sleep(0.01)
    finally:
        await broker.stop()
