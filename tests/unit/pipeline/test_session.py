"""What is needed to start Spark is checked before it is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from perdure.errors import ConfigError
from perdure.pipeline import session


def java(directory: Path, text: str, *, code: int = 0) -> dict[str, str]:
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(directory)}


@pytest.mark.parametrize(
    ("text", "version"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "21" 2023-09-19', 21)],
)
def test_a_java_that_will_do(tmp_path: Path, text: str, version: int) -> None:
    assert session.check_java(java(tmp_path, text)) == version


def test_java_on_the_path(tmp_path: Path) -> None:
    java(tmp_path, 'openjdk version "17.0.1"')
    assert session.check_java({"PATH": f"{tmp_path / 'bin'}:{os.defpath}"}) == 17


@pytest.mark.parametrize(
    ("text", "code", "problem"),
    [
        ('java version "1.8.0_292"', 0, "is 8"),
        ("nonsense", 0, "is 0"),
        ('java version "17"', 1, "does not run"),
    ],
)
def test_a_java_that_will_not_do(tmp_path: Path, text: str, code: int, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        session.check_java(java(tmp_path, text, code=code))
    assert "apt install openjdk-17" in caught.value.hint


def test_no_java(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no java"):
        session.check_java({"PATH": str(tmp_path)})
    with pytest.raises(ConfigError, match="does not run"):
        session.check_java({"JAVA_HOME": str(tmp_path)})


def test_tasks_are_counted_without_stages_that_will_be_skipped() -> None:
    stages = {
        1: SimpleNamespace(numTasks=4, numActiveTasks=2, numCompletedTasks=1),
        2: SimpleNamespace(numTasks=9, numActiveTasks=0, numCompletedTasks=0),
        3: SimpleNamespace(numTasks=2, numActiveTasks=0, numCompletedTasks=2),
    }
    tracker = SimpleNamespace(
        getJobIdsForGroup=lambda group: [7, 8] if group == "g" else [],
        getJobInfo=lambda job: SimpleNamespace(stageIds=[1, 2, 3, 4]) if job == 7 else None,
        getStageInfo=stages.get,
    )
    assert session.task_counts(tracker, "g") == (6, 3)
    assert session.task_counts(tracker, "other") == (0, 0)


def test_progress_is_silent_where_no_one_looks(capfd: pytest.CaptureFixture[str]) -> None:
    with session.progress(object(), "reading", show=False):
        pass
    assert capfd.readouterr() == ("", "")


def test_what_spark_starts_yields_to_others() -> None:
    program = (
        "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); "
        "print(1, flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        spark = SimpleNamespace(_sc=SimpleNamespace(_gateway=SimpleNamespace(proc=process)))
        threads = [int(each.name) for each in Path(f"/proc/{process.pid}/task").iterdir()]
        own = os.getpriority(os.PRIO_PROCESS, 0)
        for wanted, found in ((own + 3, own + 3), (own + 1, own + 3)):
            session._yield_to_others(spark, wanted)
            assert [os.getpriority(os.PRIO_PROCESS, each) for each in threads] == [found, found]
        process.kill()
    # It was started by somebody else, or is gone.
    session._yield_to_others(spark, own + 4)
    session._yield_to_others(SimpleNamespace(), 5)
