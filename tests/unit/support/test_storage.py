"""The faulty store: three levels, and faults on demand."""

from __future__ import annotations

import random

import pytest

from perdure.errors import StorageFull, StorageUnavailable
from perdure.model import Message
from perdure.storage.batch import Batch
from tests.support.storage import FaultyDatabase, ProcessDied


def _write(store: FaultyDatabase, name: str) -> None:
    batch = Batch()
    batch.append(Message(name, b"", 1))
    store.submit(batch, 1)


async def _names(store: FaultyDatabase) -> list[str]:
    result = await store.read(["#"], after_offset=0, until_offset=10**9, limit=100)
    return [message.topic for message in result.messages]


async def test_what_a_crash_leaves() -> None:
    store = FaultyDatabase()
    _write(store, "synced")
    store.sync()
    _write(store, "written")
    Batch().append(Message("in memory", b"", 1))
    killed = store.crash(power=False)
    assert await _names(killed) == ["synced", "written"]
    assert await _names(killed.crash(power=True)) == ["synced"]


async def test_a_disk_may_have_got_further() -> None:
    found = set()
    for seed in range(20):
        store = FaultyDatabase()
        for name in "abc":
            _write(store, name)
        after = store.crash(power=True, chance=random.Random(seed))
        found.add("".join(await _names(after)))
    assert found == {"", "a", "ab", "abc"}


@pytest.mark.parametrize("after", [False, True])
async def test_dying_in_a_write(after: bool) -> None:
    store = FaultyDatabase()
    store.die_in = 1
    store.die_after_write = after
    _write(store, "first")
    with pytest.raises(ProcessDied):
        _write(store, "second")
    assert await _names(store.crash(power=False)) == ["first", "second"][: 1 + after]


async def test_writes_that_fail_until_healed() -> None:
    store = FaultyDatabase()
    store.write_error = StorageFull("full")
    with pytest.raises(StorageFull):
        _write(store, "x")
    assert not await store.recover()
    store.heal()
    with pytest.raises(StorageUnavailable):
        _write(store, "x")
    assert await store.recover()
    _write(store, "y")
    assert await _names(store) == ["y"]


@pytest.mark.parametrize("forgets", [False, True])
async def test_a_failed_sync(forgets: bool) -> None:
    store = FaultyDatabase()
    _write(store, "x")
    store.sync()
    _write(store, "in doubt")
    store.sync_error = StorageUnavailable("broken")
    store.forgets = forgets
    with pytest.raises(StorageUnavailable):
        store.sync()
    store.heal()
    assert await store.recover()
    assert await _names(store) == (["x"] if forgets else ["x", "in doubt"])


async def test_reads_wait_if_told_to() -> None:
    store = FaultyDatabase()
    waits = []

    async def pause() -> None:
        waits.append(1)

    store.pause = pause
    await store.get_retained("x")
    await store.open_session("x")
    assert len(waits) == 2
