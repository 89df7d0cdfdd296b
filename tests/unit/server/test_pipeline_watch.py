"""What a broker tells of pipelines without being asked, also of those that are gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.config.schema.alarms import AlarmsConfig
from perdure.observe.metrics import Metrics
from perdure.observe.metrics_text import MetricsText
from perdure.server.alarms.book import Reading
from perdure.server.alarms.pipelines import PipelineReadings
from perdure.server.pipeline_watch import PipelineWatch
from perdure.storage.cursors import PipelineCursor, save_cursor
from perdure.storage.pipeline_runs import PipelineRun, RunState, save_report

SECOND = 1_000_000
MINUTE = 60 * SECOND
ARCHIVE = ("archive", "/a", "archive")


class Wall:
    """A clock that stands."""

    us = 1_800_000_000 * SECOND


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def watch(metrics: Metrics, wall: Wall, tmp_path: Path) -> PipelineWatch:
    return PipelineWatch(metrics, tmp_path, end=lambda: 9 * SECOND, now_us=lambda: wall.us)


def alarm(watch: PipelineWatch) -> Reading:
    [(name, reading)] = PipelineReadings(watch).look(AlarmsConfig())
    assert (name, reading.threshold) == ("pipeline", 900)
    return reading


def keep(data: Path, state: RunState, now_us: int) -> None:
    state.written_at_us = now_us
    save_report(data, PipelineRun("archive", "/a", state))


async def test_metrics_of_the_broker(
    metrics: Metrics, wall: Wall, watch: PipelineWatch, tmp_path: Path
) -> None:
    await watch.look()
    assert metrics.pipelines_behind_seconds == metrics.pipelines_late_seconds == {}
    now_us = wall.us
    save_cursor(tmp_path, PipelineCursor("by-hand", "/b", "db", 2 * SECOND, 1))
    state = RunState(behind_us=4 * SECOND)
    state.schedule({"archive": 60.0}, now_us)
    keep(tmp_path, state, now_us - 20 * SECOND)
    await watch.look()
    text = "".join(MetricsText(metrics, version="1", backend="memory").families())
    here = 'pipeline="archive",place="/a"'
    assert f"perdure_pipelines_behind_seconds{{{here}}} 4.0\n" in text
    assert 'perdure_pipelines_behind_seconds{pipeline="by-hand",place="/b"} 7.0\n' in text
    assert f"perdure_pipelines_silent_seconds{{{here}}} 20.0\n" in text
    late = 'perdure_pipelines_late_seconds{pipeline="archive",pipeline_job="archive",place="/a"}'
    assert f"{late} 0.0\n" in text
    assert alarm(watch).value == 0


async def test_one_that_died(
    metrics: Metrics, wall: Wall, watch: PipelineWatch, tmp_path: Path
) -> None:
    now_us = wall.us
    state = RunState()
    state.schedule({"archive": 60.0, "stats": 60.0}, now_us - 30 * MINUTE)
    state.begin("stats", now_us - 30 * MINUTE)
    state.end("stats", now_us - 29 * MINUTE, due_at_us=now_us - 28 * MINUTE)
    state.begin("archive", now_us - 29 * MINUTE)
    keep(tmp_path, state, now_us - 25 * MINUTE)
    await watch.look()
    late = metrics.pipelines_late_seconds
    # In the middle of a run: since it was heard last; another one: since it was due.
    assert late == {ARCHIVE: 1500, ("archive", "/a", "stats"): 1680}
    found = alarm(watch)
    assert found.value == 1680
    assert "stats of the pipeline archive to /a has not worked for 1680 s: nothing" in found.message


async def test_one_that_cannot_reach_its_catalog(
    wall: Wall, watch: PipelineWatch, tmp_path: Path
) -> None:
    now_us = wall.us
    state = RunState()
    state.schedule({"archive": 60.0}, now_us)
    state.begin("archive", now_us - 20 * MINUTE)
    state.wait("archive", now_us - 16 * MINUTE, "the catalog is away")
    keep(tmp_path, state, now_us)
    await watch.look()
    assert alarm(watch).value == 960
    assert "the catalog is away" in alarm(watch).message
    state.end("archive", now_us, due_at_us=now_us + MINUTE)
    keep(tmp_path, state, now_us)
    await watch.look()
    assert alarm(watch).value == 0
    # Its schedule was turned off while it failed: nobody expects it.
    state.end("archive", now_us, "no")
    state.schedule({}, now_us)
    keep(tmp_path, state, now_us)
    await watch.look()
    assert alarm(watch).value == 0


async def test_one_that_fails_again_and_again(
    wall: Wall, watch: PipelineWatch, tmp_path: Path
) -> None:
    start_us = wall.us
    state = RunState()
    state.schedule({"archive": 60.0}, start_us)
    for minute in range(17):
        wall.us = start_us + minute * MINUTE
        state.begin("archive", wall.us)
        # Begun just now, and not yet failed again.
        keep(tmp_path, state, wall.us)
        await watch.look()
        assert alarm(watch).value == max(0, minute * 60 - 1)
        wall.us += SECOND
        state.end("archive", wall.us, "no room", due_at_us=wall.us + MINUTE)
        keep(tmp_path, state, wall.us)
        await watch.look()
        assert alarm(watch).value == minute * 60
    assert "no room" in alarm(watch).message
    state.end("archive", wall.us, due_at_us=wall.us + MINUTE)
    state.end("archive", wall.us, "no room", due_at_us=wall.us + MINUTE)
    keep(tmp_path, state, wall.us)
    wall.us += 5 * SECOND
    await watch.look()
    assert alarm(watch).value == 5


async def test_a_directory_that_cannot_be_listed(watch: PipelineWatch, tmp_path: Path) -> None:
    (tmp_path / "pipelines").symlink_to(tmp_path / "pipelines")
    await watch.look()
    assert alarm(watch).value == 0
