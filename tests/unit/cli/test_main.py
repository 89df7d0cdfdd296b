"""The program: lazy commands, exit codes, one line for an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

from perdure import __version__
from perdure.cli import main
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.main import COMMANDS, run
from perdure.errors import ConfigError
from perdure.pure import build
from tests.support.bounds import HANG_S


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | int | None]:
    """Makes ``serve`` a command that raises or returns what is put into the list."""
    outcome: list[BaseException | int | None] = []

    @click.command()
    def command() -> int | None:
        (what,) = outcome
        if isinstance(what, BaseException):
            raise what
        return what

    module = ModuleType("perdure.cli.commands.serve")
    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "perdure.cli.commands.serve", module)
    return outcome


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (None, 0),
        (ExitCode.EXPECTATION, 1),
        (ConfigError("bad", hint="good"), 78),
        (CommandFailed("none", ExitCode.NOT_FOUND), 67),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.UsageError("how"), 64),
        (click.FileError("f"), 64),
        (click.ClickException("no"), 64),
        (SystemExit(5), 5),
        (SystemExit("text"), 70),
        (RuntimeError("oops"), 70),
    ],
)
def test_exit_codes(
    failing: list[BaseException | int | None], outcome: BaseException | int | None, code: int
) -> None:
    failing.append(outcome)
    assert run(["serve"]) == code


def test_an_error_is_one_line_and_a_hint(
    failing: list[BaseException | int | None], capsys: pytest.CaptureFixture[str]
) -> None:
    failing.append(ConfigError("f:1: bad", hint="do good"))
    run(["serve"])
    assert capsys.readouterr().err == "perdure: f:1: bad\nhint: do good\n"


@pytest.mark.parametrize("error", [ConfigError("bad"), RuntimeError("bad")])
def test_a_traceback_only_with_debug(
    failing: list[BaseException | int | None],
    error: Exception,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing.append(error)
    code = run(["serve"])
    assert "Traceback" not in capsys.readouterr().err
    assert run(["--debug", "serve"]) == code
    assert "Traceback" in capsys.readouterr().err


def test_debug_of_a_command_is_not_ours() -> None:
    assert main._is_debug(["--debug", "pub"])
    assert not main._is_debug(["pub", "--debug"])


def test_usage_errors_say_where_help_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nope"]) == 64
    assert run(["config", "show", "--nope"]) == 64
    assert "hint: perdure config show --help tells what it takes" in capsys.readouterr().err


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 64
    assert "Commands:" in capsys.readouterr().err


def test_the_table_lists_every_command() -> None:
    context = click.Context(main.cli)
    assert main.cli.list_commands(context) == list(COMMANDS)
    assert main.cli.get_command(context, "nope") is None
    here = Path(main.__file__).parent / "commands"
    assert {path.stem.replace("_", "-") for path in here.glob("[a-z]*.py")} <= set(COMMANDS)


def test_the_script_exits_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["perdure", "nope"])
    with pytest.raises(SystemExit) as caught:
        main.main()
    assert caught.value.code == ExitCode.USAGE


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"perdure, version {__version__}, {build()}\n"


def child(*args: str, stdout: int | None = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    source = Path(main.__file__).parents[2]
    return subprocess.run(
        [sys.executable, *args],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def test_help_imports_no_command() -> None:
    done = child("-X", "importtime", "-m", "perdure", "--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "perdure.cli.main" in imported
    assert not {name for name in imported if name.startswith("perdure.cli.commands")}
    assert not imported & {"rich", "rocksdict", "asyncio", "yaml"}


@pytest.mark.parametrize("args", [("config", "reference"), ("config", "check", "--json")])
def test_a_closed_pipe_is_no_error(args: tuple[str, ...]) -> None:
    """More than a buffer is noticed by click, less when we flush."""
    reader, writer = os.pipe()
    os.close(reader)
    done = child("-m", "perdure", *args, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
