"""perdure examples."""

from __future__ import annotations

import json
import shlex

import pytest

from perdure.cli.commands.examples import examples
from perdure.cli.main import COMMANDS, cli, run

Capture = pytest.CaptureFixture[str]


def test_each_is_of_a_command_that_there_is() -> None:
    found = list(examples(cli))
    assert len(found) > 150
    assert {each.command.split()[1] for each in found if " " in each.command} <= set(COMMANDS)
    for each in found:
        words = shlex.split(each.line, comments=True)
        assert "perdure" in words, each
        assert each.about, each


def test_words_choose(capsys: Capture) -> None:
    assert run(["examples", "explain", "Cellar", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["line"] for row in rows} >= {
        "perdure sessions explain cellar devices/7/temperature"
    }
    assert run(["examples", "retained", "--output", "table"]) == 0
    text = capsys.readouterr().out
    assert "# List, show and delete retained messages.\nperdure retained list" in text
    assert run(["examples", "no such word"]) == 67
