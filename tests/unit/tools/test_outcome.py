"""What failed is written down for a second run, and what no second run may excuse is told apart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bounds import HANG_S
from tools.outcome import FAILED_MAX, Outcome

ROOT = Path(__file__).parents[3]
CASES = """
import pytest

@pytest.fixture
def broken():
    raise OSError

def test_right(): pass

@pytest.mark.parametrize("word", ["a b", "[c]"])
def test_wrong(word): assert word != "a b"

def test_not_set_up(broken): pass
"""


def _run(folder: Path, *arguments: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tools.outcome",
        "--outcome",
        str(folder),
    ]
    subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=HANG_S,
    )


def test_failed_tests_run_again_by_the_list(tmp_path: Path) -> None:
    module = tmp_path / "test_cases.py"
    module.write_text(CASES)
    _run(tmp_path, "-n", "2")
    failed = (tmp_path / "failed").read_text().splitlines()
    assert (tmp_path / "kind").read_text() == "tests"
    assert sorted(name.split("::")[1] for name in failed) == ["test_not_set_up", "test_wrong[a b]"]

    module.write_text(CASES.replace("raise OSError", "pass"))
    _run(tmp_path, f"@{tmp_path}/failed", "-n", "0")
    assert "test_wrong[a b]" in (tmp_path / "failed").read_text()
    assert "test_not_set_up" not in (tmp_path / "failed").read_text()

    module.write_text(CASES.replace("raise OSError", "pass").replace('!= "a b"', '!= ""'))
    _run(tmp_path)
    assert not (tmp_path / "kind").exists()
    assert not (tmp_path / "failed").exists()


def _report(name: str, when: str = "call") -> pytest.TestReport:
    place = ("test_x.py", None, name)
    return pytest.TestReport(f"test_x.py::{name}", place, {}, "failed", None, when)  # type: ignore[arg-type]


def test_a_worker_that_died_is_not_excused(tmp_path: Path) -> None:
    outcome = Outcome(tmp_path)
    outcome.pytest_runtest_logreport(_report("a", "???"))
    outcome.pytest_sessionfinish(1)
    assert (tmp_path / "kind").read_text() == "a worker died: test_x.py::a"


def test_a_file_that_is_not_collected_is_not_excused(tmp_path: Path) -> None:
    outcome = Outcome(tmp_path)
    outcome.pytest_runtest_logreport(_report("a"))
    outcome.pytest_collectreport(pytest.CollectReport("test_y.py", "failed", None, []))
    outcome.pytest_sessionfinish(1)
    assert (tmp_path / "kind").read_text() == "not collected: test_y.py"


@pytest.mark.parametrize("status", [2, 3, 4, 5])
def test_another_end_of_pytest_is_not_excused(tmp_path: Path, status: int) -> None:
    outcome = Outcome(tmp_path)
    outcome.pytest_runtest_logreport(_report("a"))
    outcome.pytest_sessionfinish(status)
    assert (tmp_path / "kind").read_text() == f"pytest ended with {status}"


def test_many_failures_are_not_excused(tmp_path: Path) -> None:
    outcome = Outcome(tmp_path)
    for number in range(FAILED_MAX + 1):
        outcome.pytest_runtest_logreport(_report(str(number)))
    outcome.pytest_sessionfinish(1)
    assert (tmp_path / "kind").read_text() == f"{FAILED_MAX + 1} tests failed"
