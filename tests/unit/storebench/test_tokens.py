"""The comparison of token layouts on a real server, small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.bench.errors import BenchError
from perdure.cli.main import run
from perdure.storebench import token_report
from perdure.storebench.tokens import compare
from perdure.tokens import LAYOUTS
from tests import servers

pytestmark = pytest.mark.redis


def test_layouts_are_filled_measured_and_removed_again(tmp_path: Path) -> None:
    server = servers.redis()
    told: list[float] = []
    found = compare(3_000, LAYOUTS, url=server.url, progress=lambda what, done: told.append(done))
    assert server.command("KEYS", "bench*") == []
    rows = {row.layout: row for row in found.rows}
    assert list(rows) == list(LAYOUTS)
    assert rows["planned"].of_json < rows["packed"].of_json < rows["json"].of_json == 1.0
    for row in found.rows:
        counts = [count for count, _ in row.curve]
        assert counts == sorted(counts)
        assert row.curve[-1] == (3_000, row.total_bytes)
        assert row.save_us > 0
        assert row.find_us > 0
    assert told == sorted(told)
    assert told[-1] == 1.0
    page = token_report.render(found)
    assert all(f"{layout}" in page for layout in LAYOUTS)
    assert "<svg" in page


def test_a_server_is_started_where_none_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["bench", "sessions", "--count", "500", "--layouts", "planned,json", "--json"]
    assert run(args) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["layout"] for row in found["rows"]] == ["planned", "json"]
    assert found["hash_entries"] == 128


def test_a_layout_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "sessions", "--layouts", "planned,best"]) == 64
    assert "'best'" in capsys.readouterr().err
    with pytest.raises(BenchError, match="best"):
        compare(10, ["best"])
    assert run(["bench", "sessions", "--layouts", ","]) == 64
