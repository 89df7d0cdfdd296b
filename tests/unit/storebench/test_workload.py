"""The load: every client belongs to one worker, and nothing that is lost goes unnoticed."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from perdure.bench.errors import BenchError
from perdure.storebench.workload import BATCHED, SINGLE, Shape, bytes_each, run_stretch
from tests.unit.storebench.fakes import FakeStore, stretch


@pytest.mark.parametrize("shape", [SINGLE, BATCHED, Shape("odd", 7, 3)])
async def test_cycles(shape: Shape) -> None:
    store = FakeStore()
    found = await run_stretch(store, shape, clients=600, payload=b"x", seconds=0.02)
    assert found.cycles > 0
    assert found.seconds >= 0.02
    assert found.cycles_per_s == found.cycles / found.seconds
    assert store.together_max == min(shape.workers, 600 // shape.batch)
    assert not any(store.queued.values())
    assert found.cycle_ms[1] >= found.cycle_ms[0] >= 0
    assert found.server_cpu_us is None
    assert found.cpu_us == found.client_cpu_us


async def test_few_clients_make_few_workers() -> None:
    store = FakeStore()
    await run_stretch(store, SINGLE, clients=3, payload=b"x", seconds=0.01)
    assert store.together_max == 3
    assert (await run_stretch(store, BATCHED, clients=5, payload=b"", seconds=0.01)).cycles > 0


async def test_a_stretch_that_is_over_at_once_has_a_cycle() -> None:
    found = await run_stretch(FakeStore(), SINGLE, clients=3, payload=b"x", seconds=0)
    assert (found.cycles, found.client_cpu_us >= 0) == (3, True)


async def test_cpu_of_a_server() -> None:
    class Here(FakeStore):
        pids: Sequence[int] = (os.getpid(),)

    found = await run_stretch(Here(), SINGLE, clients=3, payload=b"x", seconds=0.05)
    assert found.server_cpu_us is not None
    assert stretch(1, server=2.0, client=3.0).cpu_us == 5.0


async def test_a_message_that_does_not_come_ends_it() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await run_stretch(FakeStore(loses=True), SINGLE, clients=1, payload=b"x", seconds=0.05)
    assert isinstance(caught.value.exceptions[0], BenchError)


async def test_bytes_of_a_message() -> None:
    store = FakeStore()
    assert await bytes_each(store, clients=300, queued=10, payload=b"12345") == 5
    assert len(store.queued[299]) == 10
