"""Loops, certificates and leak checks for the tests of ``net``."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
import uvloop
from cryptography.hazmat.primitives import serialization
from tests.unit.net.helpers import Bench, Certificates, issue


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every asynchronous test here runs on both loops."""
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@pytest_asyncio.fixture(autouse=True)
async def no_leaks() -> AsyncIterator[None]:
    """Fail on errors that the loop swallowed and on tasks that were left behind."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    yield
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    gc.collect(1)
    assert errors == []
    assert left == []


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    for listener in bench.listeners:
        async with asyncio.timeout(10):
            await listener.close()
        assert listener.connections == 0
    assert bench.admission.connections == 0
    for connection in bench.connections:
        assert len(connection.lost) == 1


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    authority = issue(folder, "ca", "Test authority")
    issue(folder, "server", "localhost", authority)
    issue(folder, "renewed", "localhost", authority)
    issue(folder, "client", "sensor-7", authority)
    stranger = issue(folder, "other-ca", "Another authority")
    issue(folder, "stranger", "stranger", stranger)
    _, key = authority
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (folder / "encrypted.key").write_bytes(encrypted)
    (folder / "rubbish.pem").write_text("no certificate")
    return Certificates(folder)
