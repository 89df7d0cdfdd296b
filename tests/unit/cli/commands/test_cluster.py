"""``perdure cluster verify`` with what cannot be meant: said at once, before Kafka is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.cli.exit_codes import ExitCode
from perdure.cli.main import run


@pytest.mark.parametrize(
    ("kafka", "name", "option", "said"),
    [
        ("", "prod", "client.rack=a", "--kafka"),
        ("k1:9092,k2", "prod", "client.rack=a", "'k2' is no address of a server"),
        ("k1:9092", "", "client.rack=a", "--name"),
        ("k1:9092", "a b/c", "client.rack=a", "'a b/c' is no name for a topic"),
        ("k1:9092", "prod", "client.rack", "'client.rack' has no ="),
    ],
)
def test_a_log_that_cannot_be_named_so(
    kafka: str,
    name: str,
    option: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = ["--kafka", kafka, "--name", name, "--option", option]

    assert run(["cluster", "verify", *place, str(tmp_path)]) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert said in told
    assert "\\" not in told


@pytest.mark.parametrize("directory", ["absent", "."])
def test_a_directory_without_a_database(
    directory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--kafka", "127.0.0.1:1", "--name", "prod", str(tmp_path / directory)]

    assert run(["cluster", "verify", *place]) == ExitCode.NOT_FOUND
    assert "holds no database" in capsys.readouterr().err
