"""One PostgreSQL server for the tests of this room, and an empty schema for each test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from perdure.storage.postgres import Pool, Statement
from perdure.storebench.servers.postgres import find_postgres
from tests.support.database_servers import PostgresServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    if find_postgres() is None:
        pytest.skip("PostgreSQL is not installed")
    with PostgresServer(durable=False) as running:
        yield running


@pytest_asyncio.fixture
async def url(server: PostgresServer) -> str:
    """A schema of its own."""
    name = f"test_{next(_numbers)}"
    pool = Pool(server.url, size=1)
    await pool.run(Statement(f"CREATE SCHEMA {name}"))
    await pool.close()
    return f"{server.url}?search_path={name}"


@pytest_asyncio.fixture
async def pool(url: str) -> AsyncIterator[Pool]:
    opened = Pool(url, size=2)
    yield opened
    await opened.close()
