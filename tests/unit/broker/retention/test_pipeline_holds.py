"""``retention.keep_for``: the log waits for pipelines, as long as there is room."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from perdure.broker.retention.disk_budget import DiskBudget
from perdure.config.schema import Config, RetentionConfig, StorageConfig
from perdure.storage.cursors import DIRECTORY, PipelineCursor, save_cursor
from tests.support.sim_broker import SimBroker
from tests.support.staged import take_offset
from tests.unit.broker.harness import QUIET, Client, make_sim

DAY_S = 86_400
DAY_US = DAY_S * 1_000_000


def disk_budget(sim: SimBroker) -> DiskBudget:
    """Another budget of the broker that runs."""
    services = sim.live.services
    return DiskBudget(
        services,
        publish_path=services.publish_path,
        registry=services.registry,
        shared_subscriptions=services.shared_subscriptions,
        window_waiters=services.window_waiters,
    )


def config(path: Path, **retention: object) -> Config:
    bounds = RetentionConfig(
        time_s=2 * DAY_S, generation_time_s=DAY_S, check_interval_s=3600, keep_for=("archive",)
    )
    return Config(
        sys=QUIET,
        storage=StorageConfig(path=str(path)),
        retention=msgspec.structs.replace(bounds, **retention),
    )


def days(sim: SimBroker, count: int) -> None:
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    for day in range(count):
        publisher.deliver("t", b"%d" % day, qos=1)
        sim.run_for(DAY_US)
    publisher.cut()


def read_through(path: Path, offset: int, *, name: str = "archive", place: str = "/a") -> None:
    save_cursor(path, PipelineCursor(name, place, "db", offset, 1))


def oldest(sim: SimBroker) -> int:
    return sim.store.generations()[0].generation


def held(sim: SimBroker) -> int:
    return sim.live.services.metrics.retention_held_generations


def told(sim: SimBroker, event: str) -> list[dict[str, object]]:
    return [values for name, values in sim.events if name == event]


def test_nothing_goes_before_a_pipeline_that_has_said_nothing(tmp_path: Path) -> None:
    sim = make_sim(config=config(tmp_path))
    days(sim, 8)
    assert oldest(sim) == 1
    assert held(sim) >= 5
    [line] = told(sim, "retention.waits")
    assert (line["pipeline"], line["generation"]) == ("archive", 1)


def test_what_was_read_goes(tmp_path: Path) -> None:
    sim = make_sim(config=config(tmp_path))
    days(sim, 8)
    third = sim.store.generations()[2]
    read_through(tmp_path, third.until_offset - 2)
    sim.run_for(2 * 3_600_000_000)
    assert oldest(sim) == 3
    read_through(tmp_path, third.until_offset - 1)
    sim.run_for(2 * 3_600_000_000)
    assert oldest(sim) == 4
    # Another one with that name is behind it: the slowest counts.
    read_through(tmp_path, 5, place="/b")
    before = held(sim)
    read_through(tmp_path, sim.store.last_offset)
    sim.run_for(DAY_US)
    assert oldest(sim) == 4
    assert held(sim) >= before
    read_through(tmp_path, sim.store.last_offset, place="/b")
    sim.run_for(2 * 3_600_000_000)
    assert oldest(sim) > 6
    assert held(sim) == 0
    assert len(told(sim, "retention.waits_no_more")) == 1
    assert sim.live.services.metrics.retention_unread_messages == 0


def test_all_that_are_named_are_waited_for(tmp_path: Path) -> None:
    sim = make_sim(config=config(tmp_path, keep_for=("archive", "forwarder")))
    read_through(tmp_path, 2**60)
    days(sim, 6)
    assert oldest(sim) == 1
    # A cursor beyond the log is of another one: what it says does not hold here.
    read_through(tmp_path, sim.store.last_offset, name="forwarder")
    sim.run_for(2 * 3_600_000_000)
    assert oldest(sim) == 1
    read_through(tmp_path, sim.store.last_offset)
    sim.run_for(2 * 3_600_000_000)
    assert oldest(sim) > 3


def test_without_it_time_alone_counts(tmp_path: Path) -> None:
    sim = make_sim(config=config(tmp_path, keep_for=()))
    days(sim, 8)
    assert oldest(sim) > 4
    assert held(sim) == 0


def test_a_cursor_that_cannot_be_read_has_read_nothing(tmp_path: Path) -> None:
    sim = make_sim(config=config(tmp_path))
    days(sim, 2)
    read_through(tmp_path, sim.store.last_offset)
    [file] = (tmp_path / DIRECTORY).glob("*.json")
    file.write_bytes(b"torn")
    days(sim, 6)
    assert oldest(sim) == 1
    assert [line["pipeline"] for line in told(sim, "retention.cursor_unreadable")] == ["archive"]


def test_cursors_that_cannot_be_listed_have_read_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = make_sim(config=config(tmp_path))
    days(sim, 2)
    read_through(tmp_path, sim.store.last_offset)

    def refused(_: Path) -> Iterator[Path]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    days(sim, 6)
    assert oldest(sim) == 1
    assert [line["pipeline"] for line in told(sim, "retention.cursor_unreadable")] == ["archive"]


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"bytes": 1}, "retention.bytes"),
        ({"disk_bytes_max": 1, "disk_policy": "drop_oldest"}, "retention.disk_bytes_max"),
    ],
)
def test_room_is_worth_more(tmp_path: Path, bounds: dict[str, object], reason: str) -> None:
    sim = make_sim(config=config(tmp_path))
    days(sim, 5)
    assert oldest(sim) == 1
    first = sim.store.generations()[0]
    read_through(tmp_path, first.until_offset - 1)
    sim.store.disk_bytes = lambda: 10**6  # type: ignore[method-assign]
    retention = sim.live.services.retention
    retention.config = msgspec.structs.replace(retention.config, time_s=0, **bounds)
    sim.run_for(2 * 3_600_000_000)
    gone = oldest(sim) - 1
    assert gone > 1
    lines = told(sim, "retention.could_not_wait")
    # Nothing is lost with the first one.
    assert [line["generation"] for line in lines] == list(range(2, gone + 1))
    assert {line["reason"] for line in lines} == {reason}
    metrics = sim.live.services.metrics
    assert (
        metrics.retention_unread_messages == sum(int(str(line["messages"])) for line in lines) > 0
    )


def test_the_budget_alone_tells_it_too(tmp_path: Path) -> None:
    """It may be looked at before age and size ever were."""
    sim = make_sim(config=config(tmp_path, check_interval_s=10**6))
    days(sim, 1)
    sim.store.rotate(sim.clock.now_us())
    sim.store.disk_bytes = lambda: 10**6  # type: ignore[method-assign]
    bounds = config(tmp_path, disk_bytes_max=1, disk_policy="drop_oldest").retention
    assert sim.scheduler is not None
    sim.scheduler.run(disk_budget(sim).keep(bounds))
    [line] = told(sim, "retention.could_not_wait")
    assert (line["generation"], line["messages"]) == (1, 1)


def test_who_has_all_messages_loses_nothing(tmp_path: Path) -> None:
    """It did not come by after the generation ended, whose last offsets are of no message."""
    sim = make_sim(config=config(tmp_path))
    publisher = Client(sim, "p")
    publisher.connect(expiry_s=0, clean=True)
    publisher.deliver("t", b"x", qos=1)
    read_through(tmp_path, sim.store.last_offset)
    take_offset(sim.store, sim.clock.now_us())
    sim.run_for(4 * DAY_US)
    assert held(sim) == 1
    retention = sim.live.services.retention
    retention.config = msgspec.structs.replace(retention.config, bytes=1)
    sim.run_for(DAY_US)
    assert oldest(sim) == 2
    assert told(sim, "retention.could_not_wait") == []


def test_a_full_disk_refuses_and_nothing_is_dropped(tmp_path: Path) -> None:
    sim = make_sim(config=config(tmp_path))
    days(sim, 4)
    sim.store.disk_bytes = lambda: 10**6  # type: ignore[method-assign]
    retention = sim.live.services.retention
    retention.config = msgspec.structs.replace(retention.config, disk_bytes_max=1)
    sim.run_for(2 * 3_600_000_000)
    assert sim.live.services.publish_path.disk_full
    assert oldest(sim) == 1
