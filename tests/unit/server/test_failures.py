"""What ends the process."""

from __future__ import annotations

import asyncio

import pytest

from perdure.server.failures import TaskWatch


async def test_the_first_failure_of_a_task_is_the_one_that_is_raised() -> None:
    watch = TaskWatch()
    waiting = asyncio.ensure_future(watch.run())
    watch.task_failed(ValueError("first"))
    watch.task_failed(ValueError("second"))
    with pytest.raises(ValueError, match="first"):
        await waiting
    watch.close()


async def test_a_watch_that_is_closed_waits_no_longer() -> None:
    watch = TaskWatch()
    waiting = asyncio.ensure_future(watch.run())
    watch.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    watch.task_failed(ValueError("too late"))
