"""One range: what is counted, what is compared, and what waits in a file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perdure.errors import StorageUnavailable
from perdure.pipeline.jobs.migrate.contract import Range
from perdure.pipeline.jobs.migrate.queues import QueueTarget
from perdure.pipeline.jobs.migrate.task import (
    copy_range,
    count_range,
    stage_path,
    stage_range,
    staged_pages,
)
from perdure.pipeline.tbmq.pending import Losses, PendingPage, QueueSum, Summing
from perdure.storage.memory import MemoryDeviceQueue
from tests.unit.pipeline.jobs.migrate.samples import NOW_US, SETTINGS, ListSource, owed, pages

QUEUE = pages("c", [owed(1, 1), owed(2, 2, released=True), owed(3, 3)])
PART = Range(0, 3)


async def test_a_range_is_counted_the_same_everywhere(tmp_path: Path) -> None:
    source = ListSource([*QUEUE, *pages("d", [], last=9)])
    counted = await count_range(source, PART, SETTINGS)
    assert (counted.clients, counted.entries, counted.pubrels) == (2, 3, 1)
    assert counted.payload_bytes == 3
    copied = await copy_range(
        source, PART, QueueTarget(MemoryDeviceQueue(), now_us=NOW_US), SETTINGS
    )
    assert copied == counted
    staged = await stage_range(source, PART, SETTINGS, tmp_path)
    assert staged == msgspec.structs.replace(counted, state="staged")
    [path] = tmp_path.iterdir()
    assert path == stage_path(tmp_path, 0)
    assert [page async for page in staged_pages(path)] == source.queues[0]


async def test_a_directory_that_is_gone_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="cannot be written"):
        await stage_range(ListSource(QUEUE), PART, SETTINGS, tmp_path / "gone")


async def test_losses_are_added_up() -> None:
    page = PendingPage("c", 1, [], losses=Losses(expired=2, damaged=["d"]))
    counted = await count_range(ListSource([page, page]), PART, SETTINGS)
    assert counted.losses == Losses(expired=4, damaged=["d", "d"])


class Wrong:
    """A target that reads back what it is told to."""

    def __init__(self, answers: dict[str, QueueSum | None]) -> None:
        self.answers = answers

    def takes(self, page: PendingPage) -> PendingPage:
        return page

    async def put(self, page: PendingPage) -> None:
        pass

    async def flush(self) -> None:
        pass

    def refusal(self, client_id: str) -> str:
        return "because" if client_id == "f" else ""

    async def sum_of(self, client_id: str) -> QueueSum | None:
        return self.answers[client_id]

    async def close(self) -> None:
        pass


async def test_every_kind_of_difference_is_told() -> None:
    entry = owed(1, 1, expires_at_us=NOW_US * 2)
    source = ListSource([page for client_id in "abcdefg" for page in pages(client_id, [entry])])
    summing = Summing()
    summing.add(entry)
    right = summing.result()
    target = Wrong(
        {
            "a": None,
            "b": msgspec.structs.replace(right, count=2),
            "c": msgspec.structs.replace(right, digest="x"),
            "d": msgspec.structs.replace(right, expiry_ms=0),
            "e": right,
            "f": right,
            "g": right,
        }
    )
    result = await copy_range(source, PART, target, SETTINGS)
    assert [(each.client_id, each.reason) for each in result.mismatches] == [
        ("a", "no queue"),
        ("b", "counts differ"),
        ("c", "contents differ"),
        ("d", "expiry times differ"),
        ("f", "because"),
    ]
    assert [(each.expected, each.found) for each in result.mismatches[:2]] == [(1, 0), (1, 2)]
