"""What a broker shows of the pipelines that read its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.admin.records.pipeline import ListPipelines
from perdure.storage.cursors import PipelineCursor, save_cursor
from perdure.storage.pipeline_runs import PipelineRun, RunState, save_report
from tests.unit.server.administration.scene import Scene

MINUTE = 60_000_000


async def asked(scene: Scene, data: Path, **more: Any) -> dict[str, Any]:
    config = msgspec.structs.replace(scene.broker.services.storage_config, path=str(data))
    scene.broker.services.storage_config = config
    return await scene.ask(ListPipelines(**more))


async def test_by_hand_and_by_itself(scene: Scene, tmp_path: Path) -> None:
    assert (await asked(scene, tmp_path))["items"] == []
    save_cursor(tmp_path, PipelineCursor("archive", "/a", "db", 7, 9))
    save_report(tmp_path, PipelineRun("lake", "h:s3://b/a", RunState(rows=3, behind_messages=2)))
    first = await asked(scene, tmp_path, limit=1)
    second = await asked(scene, tmp_path, limit=1, cursor=first["next_cursor"])
    (archive,), (lake,) = first["items"], second["items"]
    assert (archive["name"], archive["through_us"], archive["jobs"]) == ("archive", 7, [])
    assert (archive["rows"], archive["behind_messages"]) == (None, None)
    assert (lake["rows"], lake["behind_messages"], lake["through_us"]) == (3, 2, None)
    assert second["next_cursor"] is None


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ("", "waiting"),
        ("b", "running"),
        ("be", "waiting"),
        ("bf", "failing"),
        ("bfbe", "waiting"),
        ("late", "overdue"),
        ("late other", "waiting"),
        ("off", "off"),
        ("bu", "unreachable"),
        ("bue", "waiting"),
        ("bur", "running"),
        ("silent b", "overdue"),
        ("silent bu", "overdue"),
    ],
)
async def test_the_state_of_a_job(
    scene: Scene, tmp_path: Path, history: str, expected: str
) -> None:
    now_us = scene.wall.now_us()
    state = RunState()
    state.schedule({} if history == "off" else {"archive": 60.0, "maintain": 60.0}, now_us)
    at_us = now_us - 30 * MINUTE if "late" in history else now_us
    due_us = at_us + MINUTE
    if "late" in history or history == "off":
        state.begin("archive", at_us)
        state.end("archive", at_us + 1, due_at_us=due_us)
    if "other" in history:
        state.begin("maintain", now_us)
    state.written_at_us = now_us - (2 * MINUTE if "silent" in history else 0)
    steps = history.split()[-1:]
    if steps and set(steps[0]) <= set("befur"):
        for step in steps[0]:
            if step == "b":
                at_us += 1
                state.begin("archive", at_us)
            elif step == "u":
                state.wait("archive", at_us, "the catalog is away")
            elif step == "r":
                state.reached("archive")
            else:
                at_us += 1
                state.end("archive", at_us, "no" if step == "f" else "", due_at_us=due_us)
    save_report(tmp_path, PipelineRun("archive", "/a", state))
    jobs = {job["name"]: job for job in (await asked(scene, tmp_path))["items"][0]["jobs"]}
    assert jobs["archive"]["state"] == expected
    waits = history in {"bu", "silent bu"}
    assert bool(jobs["archive"]["unreachable_since_us"]) == waits


async def test_how_far_behind_one_is_that_has_no_cursor(scene: Scene, tmp_path: Path) -> None:
    for behind_us, expected in ((-1, None), (2_500_000, 2.5)):
        save_report(tmp_path, PipelineRun("archive", "/a", RunState(behind_us=behind_us)))
        assert (await asked(scene, tmp_path))["items"][0]["behind_s"] == expected
