"""Contestants on real servers: what each persists comes, and is gone once it is acknowledged."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("asyncpg")
pytest.importorskip("hiredis")
pytest.importorskip("redis")

from perdure.bench.errors import BenchError
from perdure.storebench.contestants import CONTESTANTS, MEANING, Servers, Stage, choose
from perdure.storebench.workload import BATCHED, SINGLE, bytes_each, run_stretch

CLIENTS = 20


def test_choose() -> None:
    assert choose(()) == list(CONTESTANTS)
    assert [one.name for one in choose(("embedded", "compact"))] == ["compact", "embedded"]
    with pytest.raises(BenchError, match="nobody"):
        choose(("nobody",))
    assert {one.server for one in CONTESTANTS} == set(MEANING["durable"])


@pytest.mark.redis
@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.filterwarnings("default")
def test_every_contestant() -> None:
    async def one(name: str) -> None:
        [contestant] = choose((name,))
        store = await stage.open(contestant, clients=CLIENTS)
        try:
            for shape in (SINGLE, BATCHED):
                found = await run_stretch(
                    store, shape, clients=CLIENTS, payload=b"x" * 64, seconds=0.05
                )
                assert found.cycles > 0
                assert (found.server_cpu_us is None) == (contestant.server == "embedded")
            each = await bytes_each(store, clients=CLIENTS, queued=3, payload=b"x" * 64)
            # Of so few messages it says little: a server's buffers grow and shrink beside them.
            assert abs(each) < 1_000_000
            assert await store.fetch([1]) == (3 if name != "embedded" else 1)
            await store.clear(CLIENTS)
        finally:
            await store.close()

    with Stage("durable", Servers()) as stage:
        for contestant in CONTESTANTS:
            asyncio.run(one(contestant.name))


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.sampled
def test_an_acknowledgement_that_finds_nothing_is_noticed() -> None:
    async def twice() -> None:
        [contestant] = choose(("compact",))
        store = await stage.open(contestant, clients=CLIENTS)
        try:
            packet_ids = await store.persist([1], b"x")
            await store.acknowledge([1], packet_ids)
            with pytest.raises(BenchError):
                await store.acknowledge([1], packet_ids)
        finally:
            await store.close()

    with Stage("relaxed", Servers()) as stage:
        asyncio.run(twice())
