"""A package that is not installed is said in a sentence, with what brings it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from perdure.cli import main as cli
from perdure.cli.exit_codes import ExitCode
from perdure.cli.extras import EXTRA_OF, missing

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
MODULES = {
    "PyJWT": "jwt",
    "argon2-cffi": "argon2",
    "googleapis-common-protos": "google",
    "grpcio": "grpc",
    "grpcio-status": "grpc",
    "protobuf": "google",
}


def test_every_package_of_an_extra_is_known() -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    for extra, packages in extras.items():
        if extra in {"dev", "lake-tests", "all"}:
            continue
        for package in packages:
            name = re.split(r"[\[<>=]", package)[0]
            assert MODULES.get(name, name.replace("-", "_")) in EXTRA_OF
    assert {each for value in EXTRA_OF.values() for each in value.split(",")} <= set(extras)


@pytest.mark.parametrize("module", ["numpy", "pyiceberg.catalog"])
def test_a_command_says_what_is_missing(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError(f"No module named '{module}'", name=module)

    monkeypatch.setattr(cli.cli, "main", failing)
    assert cli.run(["pipeline", "learn"]) == ExitCode.CONFIG
    told = capsys.readouterr().err
    name = module.partition(".")[0]
    assert told == f"perdure: {name} is not installed\nhint: pip install 'perdure[spark]'\n"


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'perdure.nothing'", name="perdure.nothing"),
        ModuleNotFoundError("?"),
        ImportError("cannot import name 'x' from 'numpy'", name="numpy"),
    ],
)
def test_other_imports_are_bugs(error: ImportError) -> None:
    assert missing(error) is None
