"""Without a C compiler the package installs all the same, pure, and says so wherever one looks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import __version__
from tests.support.bounds import HANG_S

ROOT = Path(__file__).parents[2]
FILES = ("LICENSE", "MANIFEST.in", "README.md", "compiled.txt", "pyproject.toml", "setup.py")

pytestmark = [pytest.mark.slow, pytest.mark.sampled]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """(where it was installed without a compiler, what pip told)."""
    base = tmp_path_factory.mktemp("install")
    source, target, programs = base / "source", base / "target", base / "programs"
    # A copy: a build leaves its folders beside the source.
    shutil.copytree(
        ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for name in FILES:
        shutil.copy(ROOT / name, source)
    # The manual page and completions.
    shutil.copytree(ROOT / "deploy/shell", source / "deploy/shell")
    programs.mkdir()
    pip = ["-m", "pip", "install", "-v", "--disable-pip-version-check", "--no-index"]
    options = ["--no-deps", "--no-build-isolation", "--target", str(target), str(source)]
    done = subprocess.run(
        [sys.executable, *pip, *options],
        env={"PATH": str(programs), "HOME": str(base)},
        cwd=base,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return target, done.stdout


def child(target: Path) -> dict[str, str]:
    """The environment of a process that runs what was installed."""
    return {"PATH": os.defpath, "PYTHONPATH": str(target)}


def test_it_installs_with_a_notice(installed: tuple[Path, str]) -> None:
    target, told = installed
    assert "perdure: pure Python build: no C compiler" in told
    assert (target / "perdure/mqtt/decode.py").exists()
    assert not list(target.rglob("*.so"))


def test_the_version_says_so(installed: tuple[Path, str], tmp_path: Path) -> None:
    target, _ = installed
    done = subprocess.run(
        [sys.executable, "-m", "perdure", "--version"],
        env=child(target),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"perdure, version {__version__}, pure\n"


def test_the_log_says_so(installed: tuple[Path, str], tmp_path: Path) -> None:
    target, _ = installed
    command = ["-m", "perdure", "serve", "--data", str(tmp_path / "data"), "--bind", "127.0.0.1:0"]
    told = []
    with subprocess.Popen(
        [sys.executable, *command],
        env=child(target),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                told.append(line)
                if "server.started" in line:
                    process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
        finally:
            process.kill()
    assert any("server.not_compiled" in line for line in told), told
