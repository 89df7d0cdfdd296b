"""A child of few lines: started, ended in order or not, and what it said."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from perdure.bench import child
from perdure.bench.child import ChildProcess, wait_until
from perdure.bench.errors import BenchError

READY = "import signal, pathlib; {handler}; pathlib.Path('ready').touch(); signal.pause()"
OBEDIENT = READY.format(handler="pass")
STUBBORN = READY.format(handler="signal.signal(signal.SIGTERM, signal.SIG_IGN)")


class Sleeper(ChildProcess):
    def __init__(self, directory: Path, code: str, *, program: str = sys.executable) -> None:
        super().__init__(directory, directory / "log")
        self._arguments = (program, "-c", code)

    def start(self) -> float:
        (self._directory / "ready").unlink(missing_ok=True)
        self._spawn()
        if not self._wait_ready(time.monotonic()):
            raise BenchError(self._tail())
        return 1.0

    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def _command(self) -> Sequence[str]:
        return self._arguments

    def _environment(self) -> Mapping[str, str] | None:
        return {"GREETING": "hello"}

    def _is_ready(self) -> bool:
        return (self._directory / "ready").exists()


class Impatient(Sleeper):
    START_TIMEOUT_S: ClassVar[float] = 0.0


@pytest.mark.slow
def test_it_is_started_and_ended_again_and_again(tmp_path: Path) -> None:
    process = Sleeper(tmp_path, OBEDIENT)
    process.stop()
    process.start()
    first = process.pid
    assert process.restart() == 1.0
    second = process.pid
    process.restart(kill=True)
    assert len({first, second, process.pid}) == 3
    process.stop()
    process.stop()


@pytest.mark.slow
def test_it_finds_the_modules_that_are_found_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs elsewhere: a relative path would be another one there."""
    here = tmp_path / "here"
    (here / "lib").mkdir(parents=True)
    (here / "lib" / "found_here.py").write_text("")
    monkeypatch.chdir(here)
    monkeypatch.setattr(Sleeper, "_environment", lambda _: {"PYTHONPATH": "lib"})
    process = Sleeper(tmp_path, f"import found_here; {OBEDIENT}")
    process.start()
    process.stop()


@pytest.mark.slow
def test_one_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "STOP_TIMEOUT_S", 0.05)
    process = Sleeper(tmp_path, STUBBORN)
    process.start()
    handle = process._process
    assert handle is not None
    process.stop()
    assert handle.returncode == -signal.SIGKILL


def test_it_has_its_environment_and_shows_its_last_words(tmp_path: Path) -> None:
    code = "import os; [print(number) for number in range(20)]; print(os.environ['GREETING'])"
    process = Sleeper(tmp_path, code)
    with pytest.raises(BenchError, match=r"^11 / 12 / .* / 19 / hello$"):
        process.start()
    assert process.exit_code() == 0


def test_its_time_is_limited(tmp_path: Path) -> None:
    process = Impatient(tmp_path, OBEDIENT)
    with pytest.raises(BenchError, match=r"^$"):
        process.start()
    assert process.exit_code() is None
    process.kill()


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    process = Sleeper(tmp_path, "", program="no-such-program")
    with pytest.raises(BenchError, match="cannot start no-such-program: No such file"):
        process.start()


def test_a_condition_is_asked_until_it_holds() -> None:
    answers = [False, False, True]
    wait_until(lambda: answers.pop(0), timeout_s=60, complaint="never")
    assert answers == []
    with pytest.raises(BenchError, match="never"):
        wait_until(lambda: False, timeout_s=0, complaint="never")
