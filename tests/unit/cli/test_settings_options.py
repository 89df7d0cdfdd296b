"""--config and --set."""

from __future__ import annotations

from pathlib import Path

import click
from click.testing import CliRunner

from perdure.cli.settings_options import config_options


@click.command()
@config_options
def command(config_path: Path | None, sets: tuple[str, ...]) -> None:
    click.echo(f"{config_path} {sets}")


def test_flags_and_variable() -> None:
    run = CliRunner().invoke
    assert run(command, []).output == "None ()\n"
    assert run(command, ["-c", "f", "--set", "a=1", "--set", "b=2"]).output == (
        "f ('a=1', 'b=2')\n"
    )
    assert run(command, [], env={"PERDURE_CONFIG": "g"}).output == "g ()\n"
    assert run(command, ["--config", "f"], env={"PERDURE_CONFIG": "g"}).output == "f ()\n"
