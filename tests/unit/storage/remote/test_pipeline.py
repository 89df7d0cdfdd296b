"""Delivery: in order, each once, through lost connections, until it has taken too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from perdure.errors import Fenced, StorageCorrupt, StorageError, StorageFull, StorageUnavailable
from perdure.storage.remote.driver import META, Transaction
from perdure.storage.remote.pipeline import Pipeline
from tests.support.bounds import HANG_S
from tests.support.remote import MemoryDriver, ServerState


class Bench:
    """A pipeline, and batches that are numbers."""

    def __init__(self, *, outage_max_s: float = 5.0) -> None:
        self.state = ServerState()
        self.driver = MemoryDriver(self.state)
        self.open: list[int] = []
        self.count = 0
        self.told: list[tuple[int, StorageError | None]] = []
        self.pipeline = Pipeline(self.driver, self.close, outage_max_s=outage_max_s)

    def close(self) -> Transaction | None:
        if not self.open:
            return None
        transaction = Transaction()
        for number in self.open:
            transaction.put(META, b"", b"%d" % number, b"x")
        transaction.last_write = self.open[-1]
        self.open = []
        return transaction

    def write(self, *, wanted: bool = True) -> int:
        self.count += 1
        number = self.count
        self.open.append(number)
        self.pipeline.written(number)
        if wanted:
            self.pipeline.want(number, lambda error: self.told.append((number, error)))
        return number

    @property
    def stored(self) -> list[list[int]]:
        """Batches of each transaction, in the order in which the server applied them."""
        return [[int(key) for key in each.puts[META, b""]] for each in self.state.commits]


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    bench.pipeline.start((await bench.driver.claim()).number)
    yield bench
    await bench.pipeline.stop()


async def settle(bench: Bench) -> None:
    await bench.pipeline.settle(bench.count)


async def test_what_is_written_meanwhile_goes_together(bench: Bench) -> None:
    bench.state.gate = asyncio.Event()
    bench.write()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for _ in range(3):
        bench.write()
    assert bench.told == []
    bench.state.gate.set()
    await settle(bench)
    assert bench.stored == [[1], [2, 3, 4]]
    assert bench.told == [(number, None) for number in (1, 2, 3, 4)]


async def test_what_nobody_waits_for_is_sent_soon(bench: Bench) -> None:
    bench.write(wanted=False)
    async with asyncio.timeout(HANG_S):
        while not bench.stored:
            await asyncio.sleep(0.001)
    assert bench.stored == [[1]]


@pytest.mark.parametrize("applied", [False, True], ids=["not applied", "applied"])
async def test_a_lost_answer_is_made_up_for(bench: Bench, applied: bool) -> None:
    """It is not known whether the server has applied it: it ends up there once."""
    bench.state.lose_in, bench.state.lose_after = 1, applied
    for _ in range(4):
        bench.write()
        await settle(bench)
    assert bench.stored == [[1], [2], [3], [4]]
    assert [error for _, error in bench.told] == [None] * 4


async def test_an_outage_that_ends_in_time_is_waited_out(bench: Bench) -> None:
    bench.state.is_down = True
    bench.write()
    waiting = asyncio.create_task(settle(bench))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert bench.pipeline.failure is None
    bench.state.is_down = False
    await waiting
    assert bench.stored == [[1]]


async def test_an_outage_that_lasts_fails_the_store_until_it_recovers() -> None:
    bench = Bench(outage_max_s=0.05)
    bench.pipeline.start((await bench.driver.claim()).number)
    bench.write()
    await settle(bench)
    bench.state.is_down = True
    bench.write()
    with pytest.raises(StorageUnavailable):
        await settle(bench)
    assert isinstance(bench.told[1][1], StorageUnavailable)
    assert await bench.pipeline.recover() is False
    bench.state.is_down = False
    # What was in doubt is delivered before anything else.
    assert await bench.pipeline.recover() is True
    assert bench.pipeline.failure is None
    bench.write()
    await settle(bench)
    assert bench.stored == [[1], [2], [3]]
    await bench.pipeline.stop()


async def test_a_full_server_fails_the_store_at_once(bench: Bench) -> None:
    bench.state.refuse_with = StorageFull("no memory")
    bench.write()
    with pytest.raises(StorageFull):
        await settle(bench)
    with pytest.raises(StorageFull):
        await bench.pipeline.recover()
    bench.state.refuse_with = None
    assert await bench.pipeline.recover() is True
    assert bench.stored == [[1]]


async def test_another_writer_ends_it(bench: Bench) -> None:
    bench.write()
    await settle(bench)
    bench.state.writer += 1
    bench.write()
    with pytest.raises(Fenced):
        await settle(bench)
    with pytest.raises(Fenced):
        await bench.pipeline.recover()
    assert bench.stored == [[1]]


async def test_a_server_that_has_lost_what_it_acknowledged_is_told(bench: Bench) -> None:
    for _ in range(2):
        bench.write()
        await settle(bench)
    bench.state.number = 1
    bench.state.lose_in = 0
    bench.write()
    with pytest.raises(StorageCorrupt, match="came back at transaction 1, but 2"):
        await settle(bench)


async def test_a_connection_that_is_lost_in_idleness_is_made_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.storage.remote.pipeline.WATCH_S", 0.01)
    bench.write()
    await settle(bench)
    bench.state.is_down = True
    await bench.driver.close()
    await asyncio.sleep(0.05)
    assert not bench.driver.is_connected
    bench.state.is_down = False
    async with asyncio.timeout(HANG_S):
        while not bench.driver.is_connected:
            await asyncio.sleep(0.001)
    bench.write()
    await settle(bench)
    assert bench.stored == [[1], [2]]
