"""What a process that runs jobs tells while it cannot work."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from perdure.errors import StorageUnavailable
from perdure.pipeline.lake.stores import LOCAL, Store
from perdure.pipeline.service.lease import Lease
from perdure.pipeline.service.schedule import Job, Schedule
from perdure.pipeline.service.state import load_run, save_run
from perdure.pipeline.service.supervisor import Supervisor
from perdure.storage.pipeline_runs import RunState
from tests.support.clock import VirtualClock


class Place:
    """A store that can be away."""

    def __init__(self) -> None:
        self.is_away = False

    def read(self, path: str | Path) -> bytes:
        self._look()
        return LOCAL.read(path)

    def write(self, path: str | Path, data: bytes) -> None:
        self._look()
        LOCAL.write(path, data)

    def _look(self) -> None:
        if self.is_away:
            raise StorageUnavailable("the bucket is away")


class Logged:
    def info(self, event: str, **values: object) -> None: ...

    def warning(self, event: str, **values: object) -> None: ...


class Stop(threading.Event):
    """Waits for nothing; what is to happen meanwhile is given."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def wait(self, timeout: float | None = None) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return super().wait(timeout)
        self._meanwhile()
        return self.is_set()


class Scene:
    """A supervisor, with what it told the broker."""

    def __init__(self, place: Path, *, run: Callable[[RunState], bool] = lambda _: False) -> None:
        self.home, self.place, self.clock = Place(), place, VirtualClock()
        self.store = cast("Store", self.home)
        self.told: list[RunState] = []
        self.looks = 0
        self.during: Callable[[], object] = lambda: None
        self.stop = Stop(lambda: self.during())
        self.run = run

    def look(self, state: RunState) -> None:
        self.looks += 1
        state.behind_us = self.looks * 1_000_000

    def lease(self, name: str) -> Lease:
        return Lease(
            str(self.place),
            self.store,
            holder=name,
            time_s=60,
            now_us=self.clock.now_us,
            wait=lambda _: None,
        )

    def supervisor(self, **more: Any) -> Supervisor:
        return Supervisor(
            str(self.place),
            self.store,
            schedule=Schedule([Job("archive", 60.0), Job("maintain", 60.0)], 0.0),
            jobs={"archive": self.run, "maintain": lambda _: False},
            lease=self.lease("me"),
            lease_s=60,
            clock=self.clock,
            stop=self.stop,
            log=Logged(),
            look=self.look,
            report=lambda state: self.told.append(copy.deepcopy(state)),
            **more,
        )


def test_a_start_while_the_place_is_away_is_told(tmp_path: Path) -> None:
    """Nothing was: metrics said -1, and the page what it had been before."""
    scene = Scene(tmp_path)
    scene.home.is_away = True
    supervisor = scene.supervisor()
    tries = 0

    def meanwhile() -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            scene.home.is_away = False
        if tries == 5:
            scene.stop.set()

    scene.during = meanwhile
    supervisor.run()
    first = scene.told[0]
    assert first.behind_us == 1_000_000
    assert first.holder == "me"
    for name in ("archive", "maintain"):
        assert first.jobs[name].unreachable_since_us > 0
        assert first.jobs[name].last_error == "the bucket is away"
        assert first.jobs[name].every_s == 60.0
    # Tried three times, told of once; then the jobs run and nothing is unreachable.
    assert sum(bool(each.jobs["archive"].unreachable_since_us) for each in scene.told) == 1
    assert supervisor.state.jobs["archive"].unreachable_since_us == 0
    assert supervisor.state.jobs["archive"].runs == 1


def test_who_stands_by_tells_what_the_other_one_does(tmp_path: Path) -> None:
    """It told for ever what it had read at its start."""
    scene = Scene(tmp_path)
    other = scene.lease("other")
    assert other.take() is None
    supervisor = scene.supervisor()

    def meanwhile() -> None:
        if supervisor.state.behind_us == 77:
            scene.home.is_away = True
            scene.stop.set()
        save_run(str(tmp_path), LOCAL, RunState(behind_us=77, holder="other"))

    scene.during = meanwhile
    supervisor.run()
    assert supervisor.state.behind_us == 77
    # And says nothing of its own to the broker, where the other one does.
    assert scene.told == []


@pytest.mark.parametrize("loses", [False, True])
def test_lag_is_looked_at_while_a_job_runs(tmp_path: Path, *, loses: bool) -> None:
    """A job of an hour had it stand still for an hour."""
    seen = threading.Event()

    def long(_state: RunState) -> bool:
        assert seen.wait(60)
        if loses:
            scene.clock.advance_us(70_000_000)
            assert scene.lease("other").take() is None
            supervisor._lease.check()
        scene.stop.set()
        return False

    scene = Scene(tmp_path, run=long)
    plain = scene.look

    def look(state: RunState) -> None:
        plain(state)
        if scene.looks == 3:
            seen.set()

    scene.look = look  # type: ignore[method-assign]
    scene.during = scene.stop.set
    supervisor = scene.supervisor(watch_s=0.001)
    supervisor.run()
    kept = load_run(str(tmp_path), LOCAL)
    assert kept is not None
    assert scene.looks >= 3
    if loses:
        # What the one that has lost the lease knows is not kept over what the next one does.
        assert kept.jobs["archive"].ended_at_us == 0
        return
    assert kept.behind_us >= 3_000_000
    assert kept.jobs["archive"].runs == 1
