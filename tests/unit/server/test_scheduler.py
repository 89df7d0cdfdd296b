"""The broker's turns, timers, tasks and its commit thread on a real event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from perdure.errors import StorageUnavailable
from perdure.server.scheduler import LoopScheduler


@pytest.fixture
async def failures() -> list[BaseException]:
    return []


@pytest.fixture
async def scheduler(failures: list[BaseException]) -> AsyncIterator[LoopScheduler]:
    made = LoopScheduler(asyncio.get_running_loop(), failures.append)
    yield made
    await made.close()


async def test_work_runs_in_one_other_thread_and_in_order(scheduler: LoopScheduler) -> None:
    threads: set[int] = set()
    order: list[int] = []
    done = asyncio.Event()

    def finished(error: BaseException | None) -> None:
        assert error is None
        assert threading.get_ident() not in threads
        if len(order) == 50:
            done.set()

    for number in range(50):

        def work(number: int = number) -> None:
            threads.add(threading.get_ident())
            order.append(number)

        scheduler.run_blocking(work, finished)
    await done.wait()
    assert order == list(range(50))
    assert len(threads) == 1


async def test_an_error_of_the_work_is_handed_over(scheduler: LoopScheduler) -> None:
    answer: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def work() -> None:
        raise StorageUnavailable("gone")

    scheduler.run_blocking(work, answer.set_result)
    assert isinstance(await answer, StorageUnavailable)
    again: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    scheduler.run_blocking(lambda: None, again.set_result)
    assert await again is None


async def test_a_gate_opens_once(scheduler: LoopScheduler) -> None:
    gate = scheduler.gate()
    gate.open()
    gate.open()
    await gate


async def test_turns_and_timers(scheduler: LoopScheduler) -> None:
    seen: list[str] = []
    done = asyncio.Event()
    scheduler.call_soon(lambda: seen.append("soon"))
    scheduler.call_later(1_000, done.set)
    scheduler.call_later(60_000_000, lambda: seen.append("never")).cancel()
    await done.wait()
    assert seen == ["soon"]


async def test_a_task_that_fails_is_told(
    scheduler: LoopScheduler, failures: list[BaseException]
) -> None:
    ended = asyncio.Event()

    async def fail() -> None:
        try:
            raise RuntimeError("x")
        finally:
            asyncio.get_running_loop().call_soon(ended.set)

    scheduler.spawn(fail(), name="fails")
    await ended.wait()
    await asyncio.sleep(0)
    assert [str(error) for error in failures] == ["x"]


async def test_close_ends_tasks_and_thread(failures: list[BaseException]) -> None:
    scheduler = LoopScheduler(asyncio.get_running_loop(), failures.append)
    started = asyncio.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    scheduler.spawn(wait(), name="waits")
    await started.wait()
    await scheduler.close()
    assert not failures
    assert not [t for t in threading.enumerate() if t.name == "commit" and t.is_alive()]
