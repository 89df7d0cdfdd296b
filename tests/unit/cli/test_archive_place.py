"""``--to``: what cannot be written to is refused at once, and says what can."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import click
import pytest

from perdure.cli import archive_place as places
from perdure.cli.archive_place import archive_place, make_place
from perdure.cli.exit_codes import CommandFailed, ExitCode


def place(text: str) -> Path:
    option = click.Option(["--to"])
    return archive_place(click.Context(click.Command("archive")), option, text)


@pytest.mark.parametrize("scheme", ["s3", "s3a", "gs", "abfs", "abfss", "hdfs", "https", "S3"])
def test_stores_are_refused(scheme: str) -> None:
    for text in (f"{scheme}://bucket/path", f"{scheme}:/bucket/path"):
        with pytest.raises(click.BadParameter) as caught:
            place(text)
        assert f"{scheme.lower()}:// is not supported" in caught.value.message
        assert "written to a directory" in caught.value.message


def test_files(tmp_path: Path) -> None:
    assert place("archive") == Path("archive")
    assert place("a:b/c") == Path("a:b/c")
    assert place(f"file://{tmp_path}/a%20b") == tmp_path / "a b"
    assert place(f"file://localhost{tmp_path}") == tmp_path
    assert place(f"file:{tmp_path}") == tmp_path
    for text in ("file://host/a", " ", ""):
        with pytest.raises(click.BadParameter):
            place(text)
    (tmp_path / "file").touch()
    with pytest.raises(click.BadParameter, match="no directory"):
        place(str(tmp_path / "file"))


def test_a_new_directory_is_made(tmp_path: Path) -> None:
    make_place(tmp_path / "a" / "b", tmp_path / "data")
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("inside", ["data", "data/archive", "link/archive"])
def test_not_inside_the_data_directory(tmp_path: Path, inside: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    with pytest.raises(CommandFailed, match="inside the data directory") as caught:
        make_place(tmp_path / inside, tmp_path / "data")
    assert caught.value.exit_code == ExitCode.USAGE
    assert not (tmp_path / "data" / "archive").exists()
    make_place(tmp_path / "database", tmp_path / "data")


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EACCES, ExitCode.NOT_PERMITTED),
        (errno.EROFS, ExitCode.NOT_PERMITTED),
        (errno.ENOSPC, ExitCode.TEMPORARY),
        (errno.EIO, ExitCode.UNAVAILABLE),
    ],
)
def test_one_that_takes_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: ExitCode
) -> None:
    def refuses(**_: Any) -> Any:
        raise OSError(number, "refused")

    monkeypatch.setattr(places.tempfile, "NamedTemporaryFile", refuses)
    with pytest.raises(CommandFailed, match="takes no files: refused") as caught:
        make_place(tmp_path, None)
    assert caught.value.exit_code == code
