"""Where the data are, and the database behind commands."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from perdure.cli import data as module
from perdure.cli.data import confirm, data_options, open_database
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.errors import ConfigError


@click.command()
@data_options
def command(data: Path) -> None:
    click.echo(data)


def test_the_directory_is_an_option_or_a_setting(tmp_path: Path) -> None:
    run = CliRunner().invoke
    assert run(command, []).output == "perdure-data\n"
    assert run(command, ["--data", "d"]).output == "d\n"
    assert run(command, ["--set", "storage.path=s"]).output == "s\n"
    assert run(command, [], env={"PERDURE__STORAGE__PATH": "e"}).output == "e\n"
    path = tmp_path / "c.yaml"
    path.write_text("storage: {path: f}\n")
    assert run(command, ["-c", str(path)]).output == "f\n"
    path.write_text("storage: {path: 5}\n")
    assert isinstance(run(command, ["-c", str(path)]).exception, ConfigError)


def test_no_database(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed) as caught, open_database(tmp_path):
        pass
    assert caught.value.exit_code is ExitCode.NOT_FOUND
    assert "--data" in caught.value.hint


def test_items_come_in_pages(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 3)

    async def numbers(count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number

    with open_database(directory) as opened:
        for count in (0, 1, 3, 7):
            assert list(opened.each(numbers(count))) == list(range(count))
        assert opened.run(opened.database.session_count()) == 4


def test_confirm(monkeypatch: pytest.MonkeyPatch) -> None:
    confirm("sure?", yes=True)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(click.UsageError, match="--yes"):
        confirm("sure?", yes=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    confirm("sure?", yes=False)
    answer = io.StringIO("n\n")
    monkeypatch.setattr("sys.stdin", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    with pytest.raises(click.Abort):
        confirm("sure?", yes=False)
