"""Output: formats, stable fields, nothing that escapes its cell."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from perdure.cli.output import (
    Column,
    Format,
    Output,
    cell,
    error_line,
    output_options,
)

COLUMNS = (Column("client_id"), Column("pending", right=True))
ROWS = (
    {"client_id": "a\tb", "pending": 3, "extra": [1, 2]},
    {"client_id": "[red]x", "pending": None, "extra": []},
)


def written(format_name: Format, rows: object = ROWS) -> str:
    out = io.StringIO()
    Output(format_name, out).rows(COLUMNS, rows)  # type: ignore[arg-type]
    return out.getvalue()


def test_tsv_is_what_a_pipe_gets() -> None:
    assert written("auto") == written("tsv") == "a\\tb\t3\n[red]x\t\n"


def test_csv_has_a_heading() -> None:
    assert list(csv.reader(written("csv").splitlines())) == [
        ["client_id", "pending"],
        ["a\\tb", "3"],
        ["[red]x", ""],
    ]


def test_json_has_all_fields() -> None:
    assert json.loads(written("json")) == list(ROWS)
    assert [json.loads(line) for line in written("jsonl").splitlines()] == list(ROWS)
    assert json.loads(written("json", [])) == []


def test_json_is_written_as_the_rows_come() -> None:
    out = io.StringIO()
    seen: list[int] = []

    def rows() -> Iterator[dict[str, int]]:
        for number in range(3):
            seen.append(len(out.getvalue()))
            yield {"n": number}

    assert Output("json", out).rows((), rows()) == 3
    assert seen[0] < seen[1] < seen[2]
    assert json.loads(out.getvalue()) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_table_takes_markup_as_text() -> None:
    text = written("table")
    assert "[red]x" in text
    assert "client id" in text
    assert "a\\tb" in text


def test_seconds_stand_below_each_other_in_a_table() -> None:
    stream = io.StringIO()
    columns = (Column("lag_s", right=True, tenths=True), Column("sum", right=True))
    rows = [{"lag_s": 4.0, "sum": 0.125}, {"lag_s": 0.349, "sum": 1.5}, {"lag_s": None, "sum": 2}]
    Output("table", stream).rows(columns, rows)
    assert [line.split() for line in stream.getvalue().splitlines()[2:] if line.strip()] == [
        ["4.0", "0.125"], ["0.3", "1.5"], ["2"]
    ]  # fmt: skip


def test_a_terminal_gets_a_table() -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal:
        assert Output("auto", terminal).format == "table"
    os.close(leader)


def test_records() -> None:
    out = io.StringIO()
    Output("tsv", out).record({"a": 1, "b": [1, "x"], "c": True, "d": {"e": 1}})
    assert out.getvalue() == 'a\t1\nb\t1, x\nc\tyes\nd\t{"e":1}\n'
    out = io.StringIO()
    Output("json", out).record({"a": 1})
    assert json.loads(out.getvalue()) == {"a": 1}


@given(st.text())
def test_no_text_leaves_its_cell(text: str) -> None:
    assert cell(text).isprintable()


@pytest.mark.parametrize("value", ["\x9b2J", ["\x9b2J"], {"a": "\x9b2J"}, [{"a": "\u202e"}]])
@pytest.mark.parametrize("format_name", ["tsv", "json", "jsonl", "table"])
def test_no_format_has_what_a_terminal_obeys(value: object, format_name: Format) -> None:
    out = io.StringIO()
    Output(format_name, out).rows((Column("a"),), [{"a": value}])
    assert "".join(out.getvalue().split("\n")).isprintable()
    if format_name == "jsonl":
        assert json.loads(out.getvalue()) == {"a": value}


@pytest.mark.parametrize(("args", "format_name"), [([], "tsv"), (["--json"], "json")])
def test_options(args: list[str], format_name: str) -> None:
    @click.command()
    @output_options
    def command(out: Output) -> None:
        out.text(out.format)

    assert CliRunner().invoke(command, args).output == format_name
    assert CliRunner().invoke(command, ["--output", "csv"]).output == "csv"


def test_errors_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    error_line("it\nbroke", hint="mend it")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "perdure: it\\nbroke\nhint: mend it\n"
