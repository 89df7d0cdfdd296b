"""The newest record of each name is kept, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import record
from benchmarks.record import check, place, write


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "records"
    monkeypatch.setattr(record, "DIRECTORY", found)
    return found


def test_an_older_record_of_the_name_goes(directory: Path) -> None:
    directory.mkdir()
    for name in ("2026-11-19-p2p.json", "2026-11-19-p2p.md", "2026-11-19-fast-p2p.json"):
        (directory / name).touch()
    assert place("p2p", "2026-11-20T08:00:00+00:00") == directory / "2026-11-20-p2p"
    assert [path.name for path in directory.iterdir()] == ["2026-11-19-fast-p2p.json"]


def test_a_record_is_written_and_told(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = [check("start", [1, 2, 9], "s", most=5), check("size", [7], "KiB", most=3)]
    kept = write(
        "restart", "2026-11-20T08:00:00", data=tmp_path, settings={}, checks=checks, values={}
    )
    assert not kept
    assert [path.name for path in directory.iterdir()] == ["2026-11-20-restart.json"]
    assert capsys.readouterr().out.splitlines() == [
        "ok     start: 2 s (1 to 9)  must be <= 5 s",
        "MISSED size: 7 KiB (7 to 7)  must be <= 3 KiB",
    ]
