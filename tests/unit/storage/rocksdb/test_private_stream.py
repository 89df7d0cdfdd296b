"""Runs, single entries and tombstones of a private stream, beside the store in memory."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.config.schema import RocksdbConfig
from perdure.model import InboxEntry
from perdure.storage.batch import Batch
from perdure.storage.memory.store import MemoryDatabase
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.cutting import cut_entries
from tests.contract.values import NOW_US, message, record

Step: TypeAlias = tuple[str, int]
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(1, 6)),
        st.tuples(st.just("run"), st.sampled_from([255, 256, 257])),
        st.tuples(st.just("one"), st.just(0)),
        st.tuples(st.just("tombstone"), st.integers(0, 40)),
        st.tuples(st.just("trim"), st.integers(0, 40)),
        st.tuples(st.just("again"), st.just(0)),
    ),
    min_size=1,
    max_size=12,
)
_READS = st.lists(
    st.tuples(st.integers(-1, 40), st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=5
)


@settings(max_examples=25)
@given(_STEPS, _READS, st.booleans())
def test_they_read_as_entries_one_by_one(
    steps: list[Step], reads: list[tuple[int, int, int]], in_one_batch: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_compare(Path(folder), steps, reads, in_one_batch))


async def _compare(
    folder: Path, steps: list[Step], reads: list[tuple[int, int, int]], in_one_batch: bool
) -> None:
    # RocksDB keeps runs; memory keeps each entry.
    stores = [
        RocksDatabase.open(folder / "d", config=RocksdbConfig(), now_us=NOW_US),
        MemoryDatabase(),
    ]
    given_to = [_Script(), _Script()]
    for store, script in zip(stores, given_to, strict=True):
        batch = Batch()
        batch.put_session(record("c", epoch=1))
        # A neighbour whose rows lie beside: what belongs to one is never another's.
        batch.put_session(record("ca", epoch=1))
        script.give(batch, 2, client_id="ca")
        for step in steps:
            if not in_one_batch:
                store.submit(batch, NOW_US)
                batch = Batch()
            script.take(batch, step)
        store.submit(batch, NOW_US)
    assert list(stores[0].check()) == []
    stores[0].close()
    stores[0] = RocksDatabase.open(folder / "d", config=RocksdbConfig())
    offsets = [NOW_US, *(entry.offset for entry in given_to[1].entries)]
    trimmed = given_to[1].trimmed  # of a row some may be left: nobody reads them
    for after, until, limit in [(-1, 10**6, 10**6), *reads]:
        found = [
            await store.read_inbox(
                "c",
                after_offset=max(trimmed, offsets[after] if 0 <= after < len(offsets) else 0),
                until_offset=offsets[until] if until < len(offsets) else 2**62,
                limit=limit,
            )
            for store in stores
        ]
        assert found[0] == found[1]
    stores[0].close()


class _Script:
    """Plays steps against batches."""

    def __init__(self) -> None:
        self.entries: list[InboxEntry] = []
        self.trimmed = 0

    def take(self, batch: Batch, step: Step) -> None:
        kind, number = step
        if kind == "run":
            self.entries += self.give(batch, number)
        elif kind == "one":
            entry = InboxEntry(0, message("t/1", b"one", qos=2), qos=2, retain=True)
            batch.place(entry)
            batch.put_inbox("c", entry, epoch=1)
            self.entries.append(entry)
        elif kind == "tombstone" and self.entries:
            batch.put_tombstone("c", self.entries[number % len(self.entries)], epoch=1)
        elif kind == "trim" and self.entries:
            # By offset, so of what a batch before has placed.
            through = self.entries[number % len(self.entries)].offset
            if through:
                batch.trim_inbox("c", through, epoch=1)
                self.trimmed = max(self.trimmed, through)
        elif kind == "again":
            batch.discard_session("c")
            batch.put_session(record("c", epoch=1))
            self.entries = []
            self.trimmed = 0

    def give(self, batch: Batch, count: int, client_id: str = "c") -> list[InboxEntry]:
        entries = [
            InboxEntry(
                0,
                message(f"t/{number % 3}", b"p" * number, offset=NOW_US - number),
                qos=1,
                identifiers=(1, 268_435_455),
                group_key="g/t/+",
            )
            for number in range(count)
        ]
        batch.place_run(entries)
        batch.put_inbox_run(client_id, entries, epoch=1)
        return entries


_GROUP_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(1, 6)),
        st.tuples(st.just("run"), st.sampled_from([256, 257])),
        st.tuples(st.just("settled"), st.integers(0, 9)),
        st.tuples(st.just("parted"), st.integers(0, 40)),
        st.tuples(st.just("write"), st.just(0)),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(_GROUP_STEPS, st.integers(0, 40), st.integers(1, 9))
def test_what_a_group_keeps_reads_as_entries_one_by_one(
    steps: list[Step], after: int, limit: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_compare_groups(Path(folder), steps, after, limit))


async def _compare_groups(folder: Path, steps: list[Step], after: int, limit: int) -> None:
    stores = [
        RocksDatabase.open(folder / "d", config=RocksdbConfig(), now_us=NOW_US),
        MemoryDatabase(),
    ]
    for store in stores:
        batch = Batch()
        runs: list[list[InboxEntry]] = []
        for kind, number in steps:
            if kind == "run":
                runs.append(_group_run(batch, number))
            elif kind == "write":
                store.submit(batch, NOW_US)
                batch = Batch()
            elif runs:
                run = runs.pop(number % len(runs))
                batch.delete_group_run("g/t/+", run)
                for entry in run[number % len(run) :] if kind == "parted" else ():
                    batch.put_group_entry("g/t/+", entry)
        store.submit(batch, NOW_US)
    assert list(stores[0].check()) == []
    for limit_now, after_offset in ((10**6, 0), (limit, NOW_US + after)):
        found = [
            await store.read_group_entries("g/t/+", limit=limit_now, after_offset=after_offset)
            for store in stores
        ]
        assert found[0] == found[1]
    stores[0].close()


def _group_run(batch: Batch, count: int) -> list[InboxEntry]:
    entries = [
        InboxEntry(0, message("t/1", b"p" * number, offset=NOW_US), qos=1, group_key="g/t/+")
        for number in range(count)
    ]
    batch.place_run(entries)
    batch.put_group_run("g/t/+", entries)
    return entries


async def test_a_run_that_a_restore_cuts_keeps_what_was_before(tmp_path: Path) -> None:
    store = RocksDatabase.open(tmp_path / "d", config=RocksdbConfig(), now_us=NOW_US)
    batch = Batch()
    batch.put_session(record("c", epoch=1))
    script = _Script()
    for count in (3, 5, 2):
        script.take(batch, ("run", count))
    script.take(batch, ("tombstone", 4))
    store.submit(batch, NOW_US)
    last = script.entries[5].offset
    engine, _ = store.tables()
    assert cut_entries(engine, lambda entry: entry.offset <= last) == 4
    found = await store.read_inbox("c", after_offset=0, until_offset=2**62, limit=100)
    assert [entry.offset for entry in found] == [entry.offset for entry in script.entries[:6]]
    assert [entry.message is None for entry in found] == [False] * 4 + [True, False]
    assert list(store.check()) == []
    store.close()
