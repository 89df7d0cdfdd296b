"""Tables fit 80 columns, and no cell breaks over more than three lines."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest

from perdure.cli.output import Column, Output
from perdure.cli.table import (
    LINES_MAX,
    cell_len,
    print_table,
    relative,
    short_stamps,
    shortened,
    widths,
)

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize(
    ("stamp", "said"),
    [
        ("", ""),
        ("soon", "soon"),
        ("2026-11-22T12:00:00.4Z", "now"),
        ("2026-11-22T11:59:55.123456Z", "4 s ago"),
        ("2026-11-22T11:00:01+00:00", "59 min ago"),
        ("2026-11-22T14:30:00Z", "in 2 h"),
        ("2026-11-12T12:00:00Z", "10 d ago"),
        ("2020-01-01T00:00:00Z", "2020-01-01"),
    ],
)
def test_relative(stamp: str, said: str) -> None:
    assert relative(stamp, NOW) == said


def test_stamps_in_sentences() -> None:
    text = "offline since 2026-11-22T11:59:55.123456Z; kept"
    assert short_stamps(text) == "offline since 2026-11-22 11:59:55; kept"


@pytest.mark.parametrize("text", ["a" * 100, "日本" * 50, "e\u0301" * 60 + "x"])
def test_what_is_shortened_keeps_both_ends(text: str) -> None:
    found = shortened(text, 21)
    assert cell_len(found) <= 21
    assert "…" in found
    assert found[0] == text[0]
    assert found[-1] == text[-1]
    assert shortened("short", 21) == "short"


@pytest.mark.parametrize("total", [30, 80, 200])
def test_widths_fit(total: int) -> None:
    found = widths([60, 9, 5, 100, 7], [False, False, True, False, True], total)
    assert found[2] == 5
    assert found[4] == 7
    if total > 40:
        assert sum(found) + 4 * 2 <= total
        assert found[1] == 9
    assert widths([3, 4], [False, False], 80) == [3, 4]


def test_long_cells_stay_within_three_lines() -> None:
    stream = Terminal()
    topic = "manufacturing/plant-07/building-B/line-12/cell-3/robot-KUKA/axis-4/" * 5
    rows = [
        {"client_id": "c" * 90, "changed_at": "2026-11-22T11:59:55Z", "n": 12_345, "topic": topic},
        {"client_id": "d", "changed_at": "", "n": 1, "topic": "two words " * 40},
    ]
    columns = (
        Column("client_id"),
        Column("changed_at", time=True),
        Column("n", right=True),
        Column("topic"),
    )
    assert Output("table", stream).rows(columns, rows) == 2
    lines = stream.getvalue().splitlines()
    assert max(len(line) for line in lines) <= 80
    assert len(lines) <= 2 + 2 * LINES_MAX
    assert lines[0].split() == ["client", "id", "changed", "n", "topic"]


def test_a_record_lists_what_is_in_it() -> None:
    stream = Terminal()
    record = {
        "at": "2026-11-22T11:59:55.5Z",
        "filters": [f"t/{number}" for number in range(60)],
        "live": {"inflight": 3},
        "none": [],
    }
    Output("table", stream).record(record)
    text = stream.getvalue()
    assert "2026-11-22 11:59:55 (" in text
    assert "live.inflight  3" in text
    assert "and 10 more" in text
    whole = io.StringIO()
    Output("json", whole).record(record)
    assert "t/59" in whole.getvalue()
    assert "2026-11-22T11:59:55.5Z" in whole.getvalue()


def test_payloads_are_not_changed() -> None:
    stream = Terminal()
    Output("table", stream).rows((Column("payload"),), [{"payload": "2026-11-22T11:59:55Z"}])
    assert "2026-11-22T11:59:55Z" in stream.getvalue()


def test_no_rows() -> None:
    stream = io.StringIO()
    print_table(stream, ["one thing", "two"], [], [False, True], [False, True])
    assert stream.getvalue().splitlines()[0].startswith("one")


def test_many_numbers_stand_closer() -> None:
    stream = Terminal()
    headings = [f"heading{number:02}" for number in range(8)]
    print_table(stream, headings, [["1"] * 8], [True] * 8, [True] * 8)
    assert max(len(line) for line in stream.getvalue().splitlines()) == 79


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("日本", 4),
        ("e\u0301", 1),
        ("\u2764\ufe0f", 1),  # a selector, of combining class 0
        ("\u0915\u093f\u0947", 2),  # a vowel sign of its own width, and one above it
        ("1\u20e3", 1),
        ("שלום", 4),
    ],
)
def test_marks_take_no_column(text: str, columns: int) -> None:
    assert cell_len(text) == columns


def test_a_mark_does_not_lose_its_letter() -> None:
    assert shortened("abcdef" + "e\u0301" + "gh", 5) == "ab…gh"
