"""Fixtures of several rooms; a ``conftest`` that wants one imports it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
import structlog
import uvloop

from perdure.observe import logs


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every asynchronous test of the room runs on both loops."""
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


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo what a command line does to logging: its stream ends with the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logs._bound.clear()  # of a test without this
    yield
    logs._on_use.clear()
    logs._bound.clear()
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def niced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """By how much commands that run here would have lowered the priority of their process."""
    found: list[int] = []
    monkeypatch.setattr(os, "nice", found.append)
    return found
