"""``--to``: what cannot be written to is refused at once, and says what can."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from perdure.cli import archive_place as places
from perdure.cli.archive_place import archive_lake, make_place
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.config.schema import TablesConfig
from perdure.pipeline.lake.lake import Lake


def place(text: str, **tables: str) -> Lake:
    return archive_lake(TablesConfig(**tables), text)  # type: ignore[arg-type]


def test_stores_need_what_they_need() -> None:
    assert place("s3://bucket/a/", catalog_type="rest", catalog_uri="http://c").place == (
        "s3://bucket/a"
    )
    assert place("gs://bucket/a", format="delta").catalog == ""
    for text, tables, wrong in (
        ("s3://bucket/a", {}, "need a catalog"),
        ("s3://bucket/a", {"format": "parquet"}, "renaming"),
        ("s3:///a", {"format": "delta"}, "expected a directory"),
        ("https://host/a", {}, "expected a directory"),
        ("a", {"format": "delta", "catalog": "x"}, "for the format iceberg"),
        ("a", {"partition": ("day(",)}, "expected day"),
        ("a", {"properties": ("secret-value",)}, "entry 1: expected name=value"),
    ):
        with pytest.raises(CommandFailed, match=wrong) as caught:
            place(text, **tables)  # type: ignore[arg-type]
        assert caught.value.exit_code == ExitCode.USAGE
        assert caught.value.hint
        assert "secret-value" not in str(caught.value)


def test_files(tmp_path: Path) -> None:
    here = Path.cwd()
    assert place("archive").place == str(here / "archive")
    assert place("", place="archive").place == str(here / "archive")
    assert place(f"file://{tmp_path}/a%20b").place == str(tmp_path / "a b")
    assert place(f"file:{tmp_path}").place == str(tmp_path)
    with pytest.raises(CommandFailed, match="no directory"):
        place("")
    (tmp_path / "file").touch()
    with pytest.raises(CommandFailed, match="no directory"):
        place(str(tmp_path / "file"))


def test_a_new_directory_is_made(tmp_path: Path) -> None:
    make_place(place(str(tmp_path / "a" / "b")), tmp_path / "data")
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("inside", ["data", "data/archive", "link/archive"])
def test_not_inside_the_data_directory(tmp_path: Path, inside: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    with pytest.raises(CommandFailed, match="inside the data directory") as caught:
        make_place(place(str(tmp_path / inside)), tmp_path / "data")
    assert caught.value.exit_code == ExitCode.USAGE
    assert not (tmp_path / "data" / "archive").exists()
    make_place(place(str(tmp_path / "database")), tmp_path / "data")


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
        make_place(place(str(tmp_path)), None)
    assert caught.value.exit_code == code
