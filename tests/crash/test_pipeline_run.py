"""``pipeline run`` as a process: never two at once, over kill -9, and a clean end at SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import perdure
from perdure.bench.ports import free_port
from perdure.storage.rocksdb import RocksDatabase
from tests.support.bounds import HANG_S
from tests.unit.pipeline.logs import SECOND, START, append, open_log

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
from perdure.pipeline.archive_state import load_state
from perdure.pipeline.lake.stores import LOCAL
from perdure.pipeline.service.state import load_run
from tests.unit.pipeline.jobs.test_archive import rows

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDatabase]:
    opened = open_log(tmp_path / "db")
    yield opened
    opened.close()


class Runner:
    """A process."""

    def __init__(self, home: Path, port: int) -> None:
        source = str(Path(perdure.__file__).parents[1])
        self.log = home / f"log-{port}"
        settings = {
            "storage.path": home / "db",
            "pipeline.master": "none",
            "pipeline.tables.place": home / "to",
            "pipeline.archive.every_s": "1s",
            "pipeline.maintain.every_s": "2s",
            "pipeline.learn.every_s": "1s",
            "pipeline.learn.range_s": "4000d",
            "pipeline.learn.write": home / "proposal.json",
            "pipeline.stats.every_s": "1s",
            "pipeline.stats.range_s": "4000d",
            "pipeline.stats.write": home / "stats.json",
            "pipeline.lease_s": "5s",
            "pipeline.bind": f"127.0.0.1:{port}",
        }
        sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "perdure", "pipeline", "run", *sets],
                stderr=log,
                stdout=log,
                env={**os.environ, "PYTHONPATH": source},
            )
        self.url = f"http://127.0.0.1:{port}/metrics"

    def metrics(self) -> dict[str, float]:
        """Its metrics by name; empty = it does not answer."""
        try:
            text = urllib.request.urlopen(self.url, timeout=HANG_S).read().decode()
        except OSError:
            return {}
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if line[:1] != "#"]
        return {name: float(value) for name, value in lines}

    def works(self) -> bool:
        return self.metrics().get("perdure_pipeline_lease_held") == 1


def wait_for(condition: Callable[[], bool], *runners: Runner) -> None:
    deadline = time.monotonic() + HANG_S
    while not condition():
        assert all(each.process.poll() is None for each in runners), runners[-1].log.read_text()
        assert time.monotonic() < deadline, [each.log.read_text() for each in runners]
        time.sleep(0.1)


def test_one_works_and_the_other_takes_over(database: RocksDatabase, tmp_path: Path) -> None:
    written = append(database, [f"t/{n % 3}" for n in range(500)], at=START)
    one, two = Runner(tmp_path, free_port()), None
    try:
        wait_for(lambda: one.metrics().get("perdure_pipeline_rows_total") == 500, one)
        two = Runner(tmp_path, free_port())
        assert one.works()
        wait_for(lambda: bool(two.metrics()), two)
        written += append(database, ["t/1"] * 100, at=START + SECOND)
        wait_for(lambda: one.metrics().get("perdure_pipeline_rows_total") == 600, one)
        assert not two.works()
        one.process.kill()
        one.process.wait()
        written += append(database, ["t/2"] * 50, at=START + 2 * SECOND)
        wait_for(lambda: two.metrics().get("perdure_pipeline_rows_total") == 650, two)
        assert two.works()
        name = 'perdure_pipeline_job_runs_total{pipeline_job="maintain"}'
        wait_for(lambda: two.metrics().get(name, 0) >= 1, two)
        for job in ("learn", "stats"):
            name = f'perdure_pipeline_job_runs_total{{pipeline_job="{job}"}}'
            before = two.metrics().get(name, 0)
            wait_for(lambda: two.metrics().get(name, 0) > before + 1, two)  # noqa: B023
        told = json.loads((tmp_path / "stats.json").read_text())
        assert told["totals"]["messages"] == 650
        assert json.loads((tmp_path / "proposal.json").read_text())["messages"] == 650
        assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]
        figures = two.metrics()
        assert figures["perdure_pipeline_behind_messages"] == 0
        assert figures["perdure_pipeline_behind_seconds"] == 0
        shown = subprocess.run(
            [
                sys.executable,
                "-m",
                "perdure",
                "pipeline",
                "status",
                "--json",
                "--set",
                f"storage.path={tmp_path / 'db'}",
                "--set",
                f"pipeline.tables.place={tmp_path / 'to'}",
            ],
            env={**os.environ, "PYTHONPATH": str(Path(perdure.__file__).parents[1])},
            capture_output=True,
            check=True,
        )
        [told] = json.loads(shown.stdout)
        assert told["run"]["rows"] == 650
        two.process.send_signal(signal.SIGTERM)
        assert two.process.wait(HANG_S) == 0, two.log.read_text()
    finally:
        for each in (one, two):
            if each is not None and each.process.poll() is None:
                each.process.kill()
                each.process.wait()
    # Given back: who comes next need not wait. Every message is there, once.
    lease = json.loads((tmp_path / "to" / "lease.json").read_text())
    assert (lease["epoch"], lease["until_us"]) == (2, 0)
    state = load_state(tmp_path / "to")
    assert state is not None
    found = [
        row["offset"]
        for spec in state.tables
        for row in rows("iceberg", tmp_path / "to", spec.name)
    ]
    assert sorted(found) == [message.offset for message in written]
    run = load_run(str(tmp_path / "to"), LOCAL)
    assert run is not None
    assert run.jobs["archive"].last_error == ""


def test_how_far_it_falls_behind_is_told_while_the_catalog_is_away(
    database: RocksDatabase, tmp_path: Path
) -> None:
    append(database, ["t/1"] * 100, at=START)
    one = Runner(tmp_path, free_port())
    catalog, aside = tmp_path / "to" / "catalog.db", tmp_path / "aside.db"
    behind = "perdure_pipeline_behind_messages"
    try:
        wait_for(lambda: one.metrics().get("perdure_pipeline_rows_total") == 100, one)
        # Nobody can open what is no file.
        catalog.rename(aside)
        catalog.mkdir()
        append(database, ["t/2"] * 40, at=START + 9 * SECOND)
        wait_for(lambda: one.metrics().get(behind) == 40, one)
        assert one.metrics()["perdure_pipeline_behind_seconds"] == pytest.approx(9, abs=1)
        run = load_run(str(tmp_path / "to"), LOCAL)
        assert run is not None
        assert "sqlite3.OperationalError" in run.jobs["archive"].last_error
        one.process.kill()
        one.process.wait()
        # Who begins meanwhile knows as well how far it was.
        append(database, ["t/2"] * 3, at=START + 10 * SECOND)
        one = Runner(tmp_path, free_port())
        wait_for(lambda: one.metrics().get(behind) == 43, one)
        catalog.rmdir()
        aside.rename(catalog)
        wait_for(lambda: one.metrics().get(behind) == 0, one)
    finally:
        one.process.kill()
        one.process.wait()
