"""Loops, certificates and leak checks for the tests of ``net``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives import serialization

from tests.support.bounds import HANG_S
from tests.unit.fixtures import no_leaks, pytest_asyncio_loop_factories
from tests.unit.net.helpers import Bench, Certificates, issue

__all__ = ["no_leaks", "pytest_asyncio_loop_factories"]


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    for listener in bench.listeners:
        async with asyncio.timeout(HANG_S):
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
