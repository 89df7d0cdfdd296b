"""``perdure pipeline status`` where nothing of the pipeline's extra is installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

from perdure.cli.exit_codes import ExitCode
from perdure.cli.extras import EXTRA_OF
from perdure.cli.main import run
from perdure.pipeline.lake import stores
from perdure.pipeline.lake.stores import LOCAL
from perdure.pipeline.service.state import save_run
from perdure.storage.cursors import PipelineCursor, save_cursor
from perdure.storage.pipeline_runs import JobState, PipelineRun, RunState, save_report
from tests.unit.pipeline.logs import START, append, open_log

STATE = RunState(holder="h", rows=7, jobs={"archive": JobState(runs=3, last_error="away")})


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log with one message and a pipeline that has read it."""
    missing = {package for package, extra in EXTRA_OF.items() if "spark" in extra.split(",")}
    # What another test has loaded of them is there by its full name.
    loaded = {name for name in sys.modules if name.partition(".")[0] in missing}
    for name in missing | loaded:
        monkeypatch.setitem(sys.modules, name, None)
    stores._io.cache_clear()
    path = tmp_path / "db"
    database = open_log(path)
    append(database, ["a/b"], at=START + 1_000_000)
    save_cursor(
        path,
        PipelineCursor(
            name="lake",
            place=str(tmp_path / "to"),
            database="log",
            offset=START,
            moved_at_us=START,
        ),
    )
    database.close()
    return path


def test_cursors_gaps_and_jobs_of_a_directory(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "to"
    to.mkdir()
    gaps = [{"after_offset": 1, "until_offset": 2}]
    (to / "archive.json").write_text(json.dumps({"version": 1, "gaps": gaps}))
    save_run(str(to), LOCAL, STATE)
    command = ["pipeline", "status", "--data", str(data), "--json"]
    assert run([*command, "--set", f"pipeline.tables.place={to}"]) == ExitCode.OK
    told = capsys.readouterr()
    (row,) = json.loads(told.out)
    assert (row["name"], row["gaps"], row["behind_s"]) == ("lake", 1, pytest.approx(1, abs=0.1))
    assert row["run"]["jobs"]["archive"]["last_error"] == "away"
    assert told.err == ""


def test_an_object_store_is_known_by_what_was_told(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = "s3://bucket/archive"
    command = ["pipeline", "status", "--data", str(data), "--set", f"pipeline.tables.place={place}"]
    command += ["--set", "pipeline.tables.format=delta"]
    assert run(command) == ExitCode.OK
    told = capsys.readouterr()
    assert "pip install 'perdure[spark]'" in told.err
    assert "run_by" not in told.out
    save_report(data, PipelineRun(name="lake", place=place, state=msgspec.convert(STATE, RunState)))
    assert run(command) == ExitCode.OK
    told = capsys.readouterr()
    assert told.err == ""
    assert "run_by\th" in told.out
    assert "away" in told.out
