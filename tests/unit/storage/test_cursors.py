"""Cursors of pipelines: kept, replaced, forgotten, and never taken for more than they are."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from perdure.errors import ConfigError, StorageUnavailable
from perdure.storage import cursors
from perdure.storage.cursors import (
    DIRECTORY,
    PipelineCursor,
    check_name,
    forget_cursors,
    load_cursors,
    save_cursor,
)
from perdure.storage.pipeline_runs import PipelineRun, RunState, load_reports, save_report


def cursor(offset: int, *, name: str = "archive", place: str = "/a") -> PipelineCursor:
    return PipelineCursor(name, place, "db", offset, 1)


def test_one_for_each_name_and_place(tmp_path: Path) -> None:
    assert load_cursors(tmp_path) == ([], [])
    for each in (cursor(1), cursor(5), cursor(3, place="/b"), cursor(9, name="other")):
        save_cursor(tmp_path, each)
    assert load_cursors(tmp_path) == (
        [cursor(5), cursor(3, place="/b"), cursor(9, name="other")],
        [],
    )
    assert forget_cursors(tmp_path, "archive", "/a") == 1
    assert forget_cursors(tmp_path, "archive") == 1
    assert load_cursors(tmp_path) == ([cursor(9, name="other")], [])


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"name":', b"\xff"])
def test_a_damaged_one_is_named(tmp_path: Path, damage: bytes) -> None:
    save_cursor(tmp_path, cursor(5))
    [path] = (tmp_path / DIRECTORY).glob("*.json")
    path.write_bytes(damage)
    assert load_cursors(tmp_path) == ([], ["archive"])
    assert forget_cursors(tmp_path, "archive") == 1


def test_one_that_has_told_only_of_its_jobs_is_forgotten(tmp_path: Path) -> None:
    save_report(tmp_path, PipelineRun("archive", "/a", RunState()))
    assert forget_cursors(tmp_path, "archive") == 1
    assert forget_cursors(tmp_path, "archive") == 0
    save_report(tmp_path, PipelineRun("archive", "/a", RunState()))
    save_cursor(tmp_path, cursor(1))
    assert forget_cursors(tmp_path, "archive") == 1


def test_no_flipped_bit_ends_the_look_at_them(tmp_path: Path) -> None:
    """Retention looks at them: some bytes are no UTF-8 then."""
    save_cursor(tmp_path, cursor(5))
    [path] = (tmp_path / DIRECTORY).glob("*.json")
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        found, broken = load_cursors(tmp_path)
        assert len(found) + len(broken) == 1


def test_one_of_a_later_release_is_not_understood(tmp_path: Path) -> None:
    save_cursor(tmp_path, msgspec.structs.replace(cursor(5), version=2))
    assert load_cursors(tmp_path) == ([], ["archive"])


@pytest.mark.parametrize("name", ["", "A", "a/b", "../a", "a" * 65, "-a", "a.b"])
def test_a_name_that_is_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="no name of a pipeline"):
        check_name(name)
    with pytest.raises(ConfigError):
        save_cursor(tmp_path, cursor(1, name=name))


def test_there_are_not_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "CURSORS_MAX", 2)
    save_cursor(tmp_path, cursor(1))
    save_cursor(tmp_path, cursor(1, place="/b"))
    with pytest.raises(ConfigError, match="the most there may be"):
        save_cursor(tmp_path, cursor(1, place="/c"))
    save_cursor(tmp_path, cursor(2))


def test_a_place_that_takes_no_writes(tmp_path: Path) -> None:
    (tmp_path / DIRECTORY).write_text("a file")
    with pytest.raises(StorageUnavailable, match="takes no cursor"):
        save_cursor(tmp_path, cursor(1))


def test_a_place_that_may_not_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of the cursors is its owner's alone, whoever may read the log."""

    def refused(_: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "exists", refused)
    with pytest.raises(StorageUnavailable, match="takes no cursor: Permission denied"):
        save_cursor(tmp_path, cursor(1))


@pytest.mark.parametrize(
    "ask",
    [
        load_cursors,
        load_reports,
        lambda data: forget_cursors(data, "archive"),
        lambda data: save_cursor(data, cursor(1)),
    ],
    ids=["cursors", "reports", "forget", "save"],
)
def test_a_place_that_may_not_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Path], object]
) -> None:
    """Nothing is found there by nobody: that there is nothing would be a lie."""

    def refused(_: Path) -> Iterator[Path]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(StorageUnavailable, match=r"cannot be listed \(Permission denied\)"):
        ask(tmp_path)


def test_what_a_pipeline_tells_of_its_jobs(tmp_path: Path) -> None:
    assert load_reports(tmp_path) == []
    state = RunState(holder="h", rows=3)
    state.schedule({"archive": 60.0}, 5)
    state.begin("archive", 10)
    state.end("archive", 30, "x" * 600, due_at_us=90)
    for place in ("/b", "/a"):
        save_report(tmp_path, PipelineRun("archive", place, state))
    save_cursor(tmp_path, cursor(5))
    found = load_reports(tmp_path)
    assert [each.place for each in found] == ["/a", "/b"]
    job = found[0].state.jobs["archive"]
    assert (job.every_s, job.due_at_us, job.failures, len(job.last_error)) == (60.0, 90, 1, 500)
    [one, _] = (tmp_path / DIRECTORY).glob("*.run")
    one.write_bytes(b"{")
    assert len(load_reports(tmp_path)) == 1
    with pytest.raises(ConfigError, match="no name of a pipeline"):
        save_report(tmp_path, PipelineRun("../x", "/a", state))
    assert forget_cursors(tmp_path, "archive") == 2
    assert load_reports(tmp_path) == []
