"""Files that appear whole, and the count meanwhile."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from perdure.cli.exit_codes import CommandFailed
from perdure.cli.exporting import counting, lines_to, silent


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", ["lines", "lines.gz"])
def test_a_file_appears_once_it_is_complete(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    target.write_bytes(b"before")
    with lines_to(target) as file:
        file.write("ä\n")
        assert target.read_bytes() == b"before"
    found = target.read_bytes()
    assert (gzip.decompress(found) if name.endswith(".gz") else found) == "ä\n".encode()
    assert list(tmp_path.iterdir()) == [target]


def test_what_ends_early_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "lines.gz"

    def end_early() -> None:
        with lines_to(target) as file:
            file.write("x\n")
            raise KeyError

    with pytest.raises(KeyError):
        end_early()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CommandFailed), lines_to(tmp_path / "no" / "such"):
        pass


def test_progress_is_for_who_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    with counting("{n} rows", target=Path("x"), wanted=True, n=0) as tell:
        assert tell is silent
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with counting("{n} rows", target=Path("x"), wanted=True, total=2.0, n=0) as tell:
        tell(1.0, n=7)
    assert "7 rows" in terminal.getvalue()
    with counting("{n} rows", target=Path("x"), wanted=False, n=0) as tell:
        assert tell is silent
    monkeypatch.setattr("sys.stdout", Terminal())
    with counting("{n} rows", target=None, wanted=True, n=0) as tell:
        assert tell is silent, "the lines themselves go there"
