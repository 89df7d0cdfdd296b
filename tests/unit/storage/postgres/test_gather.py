"""Requests that come together go together; those of one client keep their order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from perdure.errors import (
    Fenced,
    PerdureError,
    StorageConflict,
    StorageUnavailable,
    UsageError,
)
from perdure.storage.postgres.gather import CONFLICT_RETRIES, Gatherer


class Ask(msgspec.Struct, frozen=True):
    name: str
    clients: tuple[str, ...] = ()
    group: int = 0
    weight: int = 1


class Store:
    """Records its batches; each goes on when it is told to."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gates: list[asyncio.Event] = []
        self.errors: list[BaseException | None] = []
        self.refused: dict[str, PerdureError] = {}

    async def run(self, asks: Sequence[Ask]) -> list[str | PerdureError]:
        self.batches.append([ask.name for ask in asks])
        gate = asyncio.Event()
        self.gates.append(gate)
        await gate.wait()
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return [self.refused.get(ask.name, ask.name.upper()) for ask in asks]

    async def open_all(self) -> None:
        """Let everything through until nobody waits any more."""
        opened = -1
        while opened < len(self.gates):
            opened = len(self.gates)
            for gate in self.gates:
                gate.set()
            await turns()


async def turns() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


def gatherer(store: Store, *, workers: int = 1, weight_max: int = 10) -> Gatherer[Ask, str]:
    return Gatherer(store.run, workers=workers, weight_max=weight_max)


def submit(gatherer: Gatherer[Ask, str], *asks: Ask) -> list[asyncio.Task[str]]:
    return [asyncio.create_task(gatherer.submit(ask)) for ask in asks]


async def test_what_comes_while_a_batch_is_under_way_is_the_next_batch() -> None:
    store = Store()
    gathering = gatherer(store)
    tasks = submit(gathering, Ask("a"), Ask("b"))
    await turns()
    tasks += submit(gathering, Ask("c"), Ask("d"), Ask("e"))
    await turns()
    assert store.batches == [["a", "b"]]
    await store.open_all()
    assert store.batches == [["a", "b"], ["c", "d", "e"]]
    assert await asyncio.gather(*tasks) == ["A", "B", "C", "D", "E"]
    await gathering.close()


async def test_a_batch_has_a_greatest_weight() -> None:
    store = Store()
    gathering = gatherer(store, weight_max=5)
    asks = [Ask("a", weight=3), Ask("b", weight=3), Ask("c", weight=2), Ask("big", weight=9)]
    tasks = submit(gathering, *asks)
    await turns()
    await store.open_all()
    assert store.batches == [["a", "c"], ["b"], ["big"]]
    assert len(await asyncio.gather(*tasks)) == 4


async def test_unbatched_each_goes_alone() -> None:
    store = Store()
    tasks = submit(gatherer(store, workers=3, weight_max=0), *(Ask(name) for name in "abcd"))
    await turns()
    assert store.batches == [["a"], ["b"], ["c"]]
    await store.open_all()
    assert len(await asyncio.gather(*tasks)) == 4


async def test_requests_of_one_client_keep_their_order() -> None:
    store = Store()
    gathering = gatherer(store, workers=3)
    asks = [
        Ask("x1", ("x",)),
        Ask("y1", ("y",)),
        Ask("x2", ("x", "z")),
        # z is free, but an earlier request of z waits.
        Ask("z2", ("z",)),
    ]
    tasks = submit(gathering, *asks)
    await turns()
    assert store.batches == [["x1", "y1"]]
    tasks += submit(gathering, Ask("w1", ("w",)))
    await turns()
    assert store.batches == [["x1", "y1"], ["w1"]]
    await store.open_all()
    assert store.batches == [["x1", "y1"], ["w1"], ["x2"], ["z2"]]
    assert len(await asyncio.gather(*tasks)) == 5


async def test_groups_do_not_mix() -> None:
    store = Store()
    tasks = submit(gatherer(store), Ask("a", group=1), Ask("b", group=2), Ask("c", group=1))
    await turns()
    await store.open_all()
    assert store.batches == [["a", "c"], ["b"]]
    await asyncio.gather(*tasks)


async def test_one_may_be_refused_without_the_others() -> None:
    store = Store()
    store.refused["b"] = Fenced("not yours")
    good, bad = submit(gatherer(store), Ask("a"), Ask("b"))
    await turns()
    await store.open_all()
    assert await good == "A"
    with pytest.raises(Fenced, match="not yours"):
        await bad


async def test_a_lost_server_fails_all_of_them() -> None:
    store = Store()
    store.errors = [StorageUnavailable("gone")]
    tasks = submit(gatherer(store), Ask("a"), Ask("b"))
    await turns()
    await store.open_all()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in found] == [StorageUnavailable, StorageUnavailable]
    assert found[0] is not found[1]
    assert len(store.batches) == 1


async def test_after_a_wrong_request_each_is_tried_by_itself() -> None:
    store = Store()
    store.errors = [UsageError("one is wrong"), None, UsageError("this one")]
    tasks = submit(gatherer(store), Ask("a"), Ask("b"), Ask("c"))
    await turns()
    await store.open_all()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert store.batches == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert [type(one) for one in found] == [str, UsageError, str]


async def test_a_conflict_is_tried_again_for_a_while() -> None:
    store = Store()
    store.errors = [StorageConflict("deadlock")] * 2
    gathering = gatherer(store)
    (task,) = submit(gathering, Ask("a"))
    await turns()
    await store.open_all()
    assert await task == "A"
    store.errors = [StorageConflict("deadlock")] * (CONFLICT_RETRIES + 1)
    (task,) = submit(gathering, Ask("b"))
    await turns()
    await store.open_all()
    with pytest.raises(StorageConflict):
        await task


async def test_who_stops_waiting_costs_nobody_anything() -> None:
    store = Store()
    gathering = gatherer(store)
    first, second, third = submit(gathering, Ask("a"), Ask("b"), Ask("c"))
    await turns()
    (late,) = submit(gathering, Ask("d"))
    await turns()
    second.cancel()
    late.cancel()
    await turns()
    await store.open_all()
    assert await first == "A"
    assert await third == "C"
    assert store.batches == [["a", "b", "c"]]


async def test_closing_waits_for_what_is_under_way() -> None:
    store = Store()
    gathering = gatherer(store)
    (task,) = submit(gathering, Ask("a"))
    await turns()
    closing = asyncio.create_task(gathering.close())
    await turns()
    assert not closing.done()
    await store.open_all()
    await closing
    assert await task == "A"
    with pytest.raises(StorageUnavailable):
        await gathering.submit(Ask("b"))
