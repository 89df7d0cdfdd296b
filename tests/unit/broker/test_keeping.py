"""``retention.keep_for``: the log waits for pipelines, as long as there is room."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.support.world import World
from tests.unit.broker.harness import QUIET, Client, make_world

from perdure.broker.budget import DiskBudget
from perdure.config.schema import Config, RetentionConfig, StorageConfig
from perdure.storage.cursors import DIRECTORY, PipelineCursor, save_cursor

DAY_S = 86_400
DAY_US = DAY_S * 1_000_000


def config(path: Path, **retention: object) -> Config:
    bounds = RetentionConfig(
        time_s=2 * DAY_S, generation_time_s=DAY_S, check_interval_s=3600, keep_for=("archive",)
    )
    return Config(
        sys=QUIET,
        storage=StorageConfig(path=str(path)),
        retention=msgspec.structs.replace(bounds, **retention),
    )


def days(world: World, count: int) -> None:
    publisher = Client(world, "p")
    publisher.connect(expiry_s=0, clean=True)
    for day in range(count):
        publisher.deliver("t", b"%d" % day, qos=1)
        world.run_for(DAY_US)
    publisher.cut()


def read_through(path: Path, offset: int, *, name: str = "archive", place: str = "/a") -> None:
    save_cursor(path, PipelineCursor(name, place, "db", offset, 1))


def oldest(world: World) -> int:
    return world.store.generations()[0].generation


def held(world: World) -> int:
    return world.live.services.metrics.retention_held_generations


def told(world: World, event: str) -> list[dict[str, object]]:
    return [values for name, values in world.events if name == event]


def test_nothing_goes_before_a_pipeline_that_has_said_nothing(tmp_path: Path) -> None:
    world = make_world(config=config(tmp_path))
    days(world, 8)
    assert oldest(world) == 1
    assert held(world) >= 5
    [line] = told(world, "retention.waits")
    assert (line["pipeline"], line["generation"]) == ("archive", 1)


def test_what_was_read_goes(tmp_path: Path) -> None:
    world = make_world(config=config(tmp_path))
    days(world, 8)
    third = world.store.generations()[2]
    read_through(tmp_path, third.until_offset - 2)
    world.run_for(2 * 3_600_000_000)
    assert oldest(world) == 3
    read_through(tmp_path, third.until_offset - 1)
    world.run_for(2 * 3_600_000_000)
    assert oldest(world) == 4
    # Another one with that name is behind it: the slowest counts.
    read_through(tmp_path, 5, place="/b")
    before = held(world)
    read_through(tmp_path, world.store.last_offset)
    world.run_for(DAY_US)
    assert oldest(world) == 4
    assert held(world) >= before
    read_through(tmp_path, world.store.last_offset, place="/b")
    world.run_for(2 * 3_600_000_000)
    assert oldest(world) > 6
    assert held(world) == 0
    assert len(told(world, "retention.waits_no_more")) == 1
    assert world.live.services.metrics.retention_unread_messages == 0


def test_all_that_are_named_are_waited_for(tmp_path: Path) -> None:
    world = make_world(config=config(tmp_path, keep_for=("archive", "forwarder")))
    read_through(tmp_path, 2**60)
    days(world, 6)
    assert oldest(world) == 1
    # A cursor beyond the log is of another one: what it says does not hold here.
    read_through(tmp_path, world.store.last_offset, name="forwarder")
    world.run_for(2 * 3_600_000_000)
    assert oldest(world) == 1
    read_through(tmp_path, world.store.last_offset)
    world.run_for(2 * 3_600_000_000)
    assert oldest(world) > 3


def test_without_it_time_alone_counts(tmp_path: Path) -> None:
    world = make_world(config=config(tmp_path, keep_for=()))
    days(world, 8)
    assert oldest(world) > 4
    assert held(world) == 0


def test_a_cursor_that_cannot_be_read_has_read_nothing(tmp_path: Path) -> None:
    world = make_world(config=config(tmp_path))
    days(world, 2)
    read_through(tmp_path, world.store.last_offset)
    [file] = (tmp_path / DIRECTORY).glob("*.json")
    file.write_bytes(b"torn")
    days(world, 6)
    assert oldest(world) == 1
    assert [line["pipeline"] for line in told(world, "retention.cursor_unreadable")] == ["archive"]


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"bytes": 1}, "retention.bytes"),
        ({"disk_bytes_max": 1, "disk_policy": "drop_oldest"}, "retention.disk_bytes_max"),
    ],
)
def test_room_is_worth_more(tmp_path: Path, bounds: dict[str, object], reason: str) -> None:
    world = make_world(config=config(tmp_path))
    days(world, 5)
    assert oldest(world) == 1
    first = world.store.generations()[0]
    read_through(tmp_path, first.until_offset - 1)
    world.store.disk_bytes = lambda: 10**6  # type: ignore[method-assign]
    retention = world.live.services.retention
    retention.config = msgspec.structs.replace(retention.config, time_s=0, **bounds)
    world.run_for(2 * 3_600_000_000)
    gone = oldest(world) - 1
    assert gone > 1
    lines = told(world, "retention.could_not_wait")
    # Nothing is lost with the first one.
    assert [line["generation"] for line in lines] == list(range(2, gone + 1))
    assert {line["reason"] for line in lines} == {reason}
    metrics = world.live.services.metrics
    assert (
        metrics.retention_unread_messages == sum(int(str(line["messages"])) for line in lines) > 0
    )


def test_the_budget_alone_tells_it_too(tmp_path: Path) -> None:
    """It may be looked at before age and size ever were."""
    world = make_world(config=config(tmp_path, check_interval_s=10**6))
    days(world, 1)
    world.store.rotate(world.clock.now_us())
    world.store.disk_bytes = lambda: 10**6  # type: ignore[method-assign]
    bounds = config(tmp_path, disk_bytes_max=1, disk_policy="drop_oldest").retention
    assert world.scheduler is not None
    world.scheduler.run(DiskBudget(world.live.services).keep(bounds))
    [line] = told(world, "retention.could_not_wait")
    assert (line["generation"], line["messages"]) == (1, 1)


def test_who_has_all_messages_loses_nothing(tmp_path: Path) -> None:
    """It did not come by after the generation ended, whose last offsets are of no message."""
    world = make_world(config=config(tmp_path))
    publisher = Client(world, "p")
    publisher.connect(expiry_s=0, clean=True)
    publisher.deliver("t", b"x", qos=1)
    read_through(tmp_path, world.store.last_offset)
    world.store.allocate_offset(world.clock.now_us())
    world.run_for(4 * DAY_US)
    assert held(world) == 1
    retention = world.live.services.retention
    retention.config = msgspec.structs.replace(retention.config, bytes=1)
    world.run_for(DAY_US)
    assert oldest(world) == 2
    assert told(world, "retention.could_not_wait") == []


def test_a_full_disk_refuses_and_nothing_is_dropped(tmp_path: Path) -> None:
    world = make_world(config=config(tmp_path))
    days(world, 4)
    world.store.disk_bytes = lambda: 10**6  # type: ignore[method-assign]
    retention = world.live.services.retention
    retention.config = msgspec.structs.replace(retention.config, disk_bytes_max=1)
    world.run_for(2 * 3_600_000_000)
    assert world.live.services.publishing.disk_full
    assert oldest(world) == 1
