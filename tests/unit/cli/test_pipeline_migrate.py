"""``perdure pipeline migrate``: options, numbers and exit codes, with queues in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import run
from perdure.pipeline.jobs.migrate import stores
from perdure.pipeline.jobs.migrate.endpoints import Endpoint
from perdure.pipeline.tbmq.pending import Losses, PendingPage
from perdure.storage.rocksdb import RocksDatabase
from tests.unit.pipeline.jobs.migrate.samples import ListSource, owed, pages

FROM = "postgresql://u:secret@h/d"


@pytest.fixture(autouse=True)
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ListSource:
    found = ListSource(pages("c", [owed(1, 7), owed(2, 8, released=True)]), pages("d", [], last=3))

    async def open_source(endpoint: Endpoint, directory: object) -> ListSource:
        return found

    monkeypatch.setattr(stores, "open_source", open_source)
    monkeypatch.chdir(tmp_path)
    return found


def command(*more: str) -> int:
    return run(["pipeline", "migrate", "--local", "--from", FROM, "--to", "data", *more])


def test_into_a_directory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "subs.jsonl").write_text('{"client_id":"e","filter":"a/#"}\n')
    assert command("--json", "--subscriptions", "subs.jsonl") == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["clients"], found["entries"], found["pubrels"]) == (2, 2, 1)
    assert (found["verified"], found["sessions_without_queue"]) == (True, 1)
    [ledger] = tmp_path.glob("perdure-migrate-*")
    assert command("--json") == ExitCode.CONFIG  # its subscriptions are part of it
    capsys.readouterr()
    assert command("--json", "--subscriptions", "subs.jsonl") == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["ranges_of_earlier_runs"] == 2
    assert list(tmp_path.glob("perdure-migrate-*")) == [ledger]


def test_a_dry_run_writes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command("--dry-run", "--output", "tsv") == ExitCode.OK
    assert "entries\t2" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_mismatch_is_an_expectation_that_failed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command("--ledger", "one") == ExitCode.OK
    assert command("--ledger", "two") == ExitCode.EXPECTATION
    told = capsys.readouterr().out
    assert "not of this migration" in told
    assert "\nc\t2\t2\t" in told


def test_what_cannot_be_read(source: ListSource, capsys: pytest.CaptureFixture[str]) -> None:
    losses = Losses(damaged=[f"'c' row {number}" for number in range(30)])
    source.queues[0][0] = PendingPage("c", 7, [owed(1, 7)], losses=losses)
    assert command() == ExitCode.EXPECTATION
    told = capsys.readouterr().err
    assert "cannot be read: 'c' row 0" in told
    assert "and 10 more" in told
    assert command("--skip-damaged") == ExitCode.OK


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--to", FROM), ExitCode.USAGE),
        (("--ttl", "soon"), ExitCode.USAGE),
        (("--from", "absent"), ExitCode.NOT_FOUND),
        (("--to", "mysql://h"), ExitCode.CONFIG),
        (("--to", "redis://h", "--subscriptions", "subs"), ExitCode.USAGE),
        (("--subscriptions", "subs"), ExitCode.CONFIG),
    ],
)
def test_what_makes_no_sense(options: tuple[str, ...], code: ExitCode, tmp_path: Path) -> None:
    (tmp_path / "subs").write_text("{}")
    assert command(*options) == code


def test_a_directory_in_use(tmp_path: Path) -> None:
    database = RocksDatabase.open(tmp_path / "data")
    assert command() == ExitCode.TEMPORARY
    database.close()


def test_the_settings_are_part_of_the_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--ledger", "l", "--session-expiry", "30d", "--ttl", "0") == ExitCode.OK
    assert command("--ledger", "l") == ExitCode.CONFIG
    assert "another migration" in capsys.readouterr().err


def test_spark_runs_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    from perdure.pipeline import session, spark_tasks
    from perdure.pipeline.jobs.migrate.job import execute_here

    seen: dict[str, Any] = {}

    class Spark:
        def stop(self) -> None:
            seen["stopped"] = True

    def build(**options: Any) -> Spark:
        seen.update(options)
        return Spark()

    def tasks(spark: Spark, *, parallel: int) -> Any:
        seen["parallel"] = parallel
        return execute_here

    monkeypatch.setattr(session, "build", build)
    monkeypatch.setattr(spark_tasks, "SparkTasks", tasks)
    line = ["pipeline", "migrate", "--from", FROM, "--to", "data", "--parallel", "3"]
    assert run(line) == ExitCode.OK
    assert (seen["stopped"], seen["parallel"], seen["app"]) == (True, 3, "perdure-migrate")
