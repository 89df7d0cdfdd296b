"""Options of commands that read the log."""

from __future__ import annotations

import click
from click.testing import CliRunner

from perdure.cli.range_options import since_option, topic_option, until_option


@click.command()
@topic_option(otherwise="Nothing")
@since_option
@until_option
def command(filters: tuple[str, ...], since: str | None, until: str | None) -> None:
    click.echo(f"{filters} {since} {until}")


def test_what_is_given_arrives() -> None:
    found = CliRunner().invoke(command, ["-t", "a/#", "--topic", "b", "--from", "2h"])
    assert found.output == "('a/#', 'b') 2h None\n"
    assert CliRunner().invoke(command, ["--until", "5m"]).output == "() None 5m\n"


def test_help_says_what_is_read_otherwise() -> None:
    text = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert "may be repeated. Nothing if not given." in text
