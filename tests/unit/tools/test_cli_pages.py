"""The pages of the command line: all of it, in forms that their readers accept."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from perdure.cli.commands.completion import SHELLS, script
from perdure.cli.main import COMMANDS, cli
from tests.support.bounds import HANG_S
from tools.cli_pages import INSTALLED, PAGE, ROOT, installed, pages, reference, write_manuals


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run: make docs"


def test_what_is_installed_beside_the_package_is_current() -> None:
    """pip puts it where man and the shells look."""
    assert {each.name: each.read_text(encoding="utf-8") for each in INSTALLED.iterdir()} == (
        installed()
    ), "run: make docs"
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    files = [
        each for listed in build["tool"]["setuptools"]["data-files"].values() for each in listed
    ]
    assert sorted(files) == sorted(f"deploy/shell/{name}" for name in installed())


def test_all_commands_are_on_it() -> None:
    found = {page.path: page for page in pages()}
    assert {f"perdure {name}" for name in COMMANDS} <= set(found)
    assert any("--config" in left for left, _ in found["perdure serve"].options)
    assert dict(found["perdure storage"].commands)["read"]
    for page in found.values():
        assert page.summary.endswith("."), page.path


def test_manuals_are_well_formed(tmp_path: Path) -> None:
    written = write_manuals(tmp_path)
    assert tmp_path / "perdure-storage-read.1" in written
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not here")
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", *map(str, written)],
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert done.stdout == ""


def test_the_manual_that_is_installed_tells_of_every_command(tmp_path: Path) -> None:
    """No other page is: ``perdure-storage-read`` would not be found."""
    text = installed()["perdure.1"]
    for page in pages():
        assert f".B {page.path}\n".replace("-", "\\-") in text
        for left, _ in page.options:
            assert f".B {left}\n".replace("\\", "\\e").replace("-", "\\-") in text
    assert ".BR" not in text
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not here")
    file = tmp_path / "perdure.1"
    file.write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", str(file)],
        capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert done.stdout == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_accept_the_scripts(shell: str, tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text(script(shell, cli), encoding="utf-8")
    assert "_PERDURE_COMPLETE" in file.read_text(encoding="utf-8")
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    done = subprocess.run(
        [shell, "-n", str(file)], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
