"""Servers, and a check that nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.database_servers import RedisServer


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    """A real Redis, shared by the tests that need one."""
    with RedisServer(appendfsync="everysec") as running:
        yield running


@pytest_asyncio.fixture(autouse=True)
async def no_leaks() -> AsyncIterator[None]:
    """Fail on errors that the loop swallowed and on tasks that were left behind."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    yield
    for _ in range(10):
        await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    gc.collect(1)
    assert errors == []
    assert left == []
