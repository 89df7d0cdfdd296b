"""Both event loops, and leak checks, for the tests of ``server``."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
import uvloop


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
    assert errors == []
    assert left == []


@pytest.fixture(autouse=True)
def collector_as_before() -> Iterator[None]:
    """Undo what the start does to the garbage collector."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
