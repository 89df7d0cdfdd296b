"""perdure tokens and perdure plan, on an embedded store and by arithmetic."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from perdure.cli.main import run

Capture = pytest.CaptureFixture[str]


def issue(capsys: Capture, store: Path, *args: str) -> str:
    assert run(["tokens", "issue", "ada", "--store", str(store), *args]) == 0
    return capsys.readouterr().out.strip()


def given(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_token_is_issued_shown_and_revoked(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "tokens.db"
    options = ("--client-id", "pump-*", "--right", "read public/#", "--right", "write d/%c")
    token = issue(capsys, store, "--expires", "2h", *options)
    assert len(token) == 40
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    where = ["--store", str(store), "--token-file", str(file)]
    assert run(["tokens", "show", *where, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["identity"] == "ada"
    assert (shown["client_id"], shown["rights"]) == ("pump-*", ["read public/#", "write d/%c"])
    given(monkeypatch, token)
    assert run(["tokens", "revoke", "--store", str(store)]) == 0
    assert run(["tokens", "show", *where]) == 67
    assert "does not hold" in capsys.readouterr().err
    assert run(["tokens", "revoke", *where]) == 67
    assert run(["tokens", "maintain", "--store", str(store), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": 0, "kept": 0}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--expires", "soon"), "duration"),
        (("--expires", "0s"), "in the future"),
        (("--right", "fly a/b"), "fly"),
        (("--right", "read a/#/b"), "#"),
        (("--client-id", "c" * 300), "pattern"),
    ],
)
def test_what_cannot_be_issued_is_refused(
    args: tuple[str, ...], said: str, tmp_path: Path, capsys: Capture
) -> None:
    store = tmp_path / "tokens.db"
    assert run(["tokens", "issue", "ada", "--store", str(store), *args]) == 64
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "short", "z" * 40])
def test_what_is_no_token_is_refused(
    text: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, text)
    assert run(["tokens", "show", "--store", str(tmp_path / "t.db")]) == 65
    assert "40 hexadecimal" in capsys.readouterr().err
    missing = ["--store", str(tmp_path / "t.db"), "--token-file", str(tmp_path / "none")]
    assert run(["tokens", "show", *missing]) == 65


def test_a_plan_for_a_hundred_million(capsys: Capture) -> None:
    assert run(["plan", "sessions", "--count", "100M", "--json"]) == 0
    rows = {row["layout"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["planned"]["partitions"] == 1 << 18
    assert rows["planned"]["bytes_each"] < 40
    assert rows["planned"]["total_bytes"] < rows["json"]["total_bytes"] / 5
    # The seed: 65,536 partitions are worse than no partitions at that size.
    assert rows["partitioned:65536"]["bytes_each"] > rows["packed"]["bytes_each"]
    assert run(["plan", "sessions", "--count", "3k", "--entries", "512", "--json"]) == 0
    small = json.loads(capsys.readouterr().out)
    assert small[-1]["partitions"] == 8


@pytest.mark.parametrize("count", ["", "0", "-5", "1.5M", "many", "2000G", "٣"])
def test_a_count_that_is_none_is_refused(count: str, capsys: Capture) -> None:
    for command in ("plan", "bench"):
        assert run([command, "sessions", "--count", count]) == 64
        assert "--count" in capsys.readouterr().err
