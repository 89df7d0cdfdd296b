"""Maintenance leaves rows and positions as they are, whenever it is stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.model import Message
from perdure.storage.rocksdb import RocksDatabase
from tests.unit.pipeline.logs import SECOND, START, append

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")
from perdure.errors import StorageConflict
from perdure.pipeline.archive_state import load_state
from perdure.pipeline.jobs import maintain as job
from perdure.pipeline.jobs.maintain import maintain, small_groups
from perdure.pipeline.sinks.contract import DataFile, Sink
from perdure.pipeline.tables import TableSpec
from tests.unit.pipeline.jobs.test_archive import FORMATS, archive_of, check, rows, sink_of

pytestmark = pytest.mark.filterwarnings("default")

NOW = 4_000_000_000_000_000
"""After all files that a test makes."""

PAYLOADS = (b'{"a": 1}', b'{"a": 2, "b": "x"}', b"no json", b'{"a": 3.5}')


def fill(database: RocksDatabase, tmp_path: Path, sink: Sink, rounds: int = 4) -> list[Message]:
    """An archive of several rounds, with a file for each."""
    written: list[Message] = []
    for number in range(rounds):
        at = START + number * SECOND
        payloads = [PAYLOADS[number % 4]] * 3
        written += append(database, ["d/1/t", "d/2/t", "other/1"], at=at, payloads=payloads)
        archive_of(tmp_path, sink).run_round()
    return written


def specs(tmp_path: Path) -> Sequence[TableSpec]:
    state = load_state(tmp_path)
    assert state is not None
    return state.tables


@pytest.mark.parametrize("kind", FORMATS)
def test_small_files_become_one(kind: str, database: RocksDatabase, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    sink = sink_of(kind, root, database.format.database_id)
    written = fill(database, tmp_path, sink)
    before = rows(kind, root, "devices")
    told: list[tuple[int, int]] = []
    done = [
        maintain(sink, spec, before_us=NOW, progress=lambda *counts: told.append(counts))
        for spec in specs(tmp_path)
    ]
    assert [(each.table, each.files_before, each.files_after) for each in done] == [
        ("devices", 4, 1),
        ("messages", 4, 1),
    ]
    assert told == [(0, 1), (1, 1)] * 2
    assert done[0].rows == 8
    assert done[0].bytes_after < done[0].bytes_before
    assert done[0].files_removed >= (0 if kind == "parquet" else 4)
    assert (done[0].snapshots_removed > 0) == (kind == "iceberg")
    assert rows(kind, root, "devices") == before
    # Nothing lies about, and the archive goes on where it was.
    assert len(list((root).rglob("*.parquet"))) - (kind == "delta") * 2 <= 2
    written += append(database, ["d/1/t", "other/1"], at=START + 100 * SECOND)
    assert archive_of(tmp_path, sink).run_round().rows == 2
    check(kind, root, written)
    (again,) = [maintain(sink, spec, before_us=0) for spec in specs(tmp_path)[:1]]
    assert (again.files_before, again.files_after, again.files_removed) == (2, 1, 0)
    check(kind, root, written)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("kind", FORMATS)
def test_stopped_anywhere(
    kind: str, database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call that changes a directory is the last one once."""
    root = tmp_path / "tables"
    identity = database.format.database_id
    written = fill(database, tmp_path, sink_of(kind, root, identity))
    left = [0]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return function(*arguments, **named)

        return call

    stops = 0
    for step in range(1, 60):
        with monkeypatch.context() as patch:
            for name in ("rename", "replace", "unlink"):
                patch.setattr(Path, name, counted(getattr(Path, name)))
            patch.setattr(os, "fsync", counted(os.fsync))
            patch.setattr(os, "link", counted(os.link))
            left[0] = step
            try:
                for spec in specs(tmp_path):
                    maintain(sink_of(kind, root, identity), spec, before_us=NOW)
                break
            except Killed:
                stops += 1
    assert stops >= 2
    sink = sink_of(kind, root, identity)
    for spec in specs(tmp_path):
        maintain(sink, spec, before_us=NOW)
    check(kind, root, written)
    assert all(len(sink.files(spec.name)) == 1 for spec in specs(tmp_path))
    written += append(database, ["d/1/t"], at=START + 100 * SECOND)
    assert archive_of(tmp_path, sink).run_round().rows == 1
    check(kind, root, written)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_archive_may_come_between(
    kind: str, database: RocksDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "tables"
    identity = database.format.database_id
    written = fill(database, tmp_path, sink_of(kind, root, identity))
    comes = [True]
    plain = job.joined

    def joined(*arguments: Any, **named: Any) -> list[DataFile]:
        made: list[DataFile] = plain(*arguments, **named)
        if comes.pop() if comes else False:
            written.extend(append(database, ["d/1/t", "other/1"], at=START + 100 * SECOND))
            archive_of(tmp_path, sink_of(kind, root, identity)).run_round()
        return made

    monkeypatch.setattr(job, "joined", joined)
    done = maintain(sink_of(kind, root, identity), specs(tmp_path)[0], before_us=0)
    assert (done.files_before, done.files_after) == (4, 2)
    check(kind, root, written)


@pytest.mark.parametrize("kind", FORMATS)
def test_maintenance_may_come_between(kind: str, database: RocksDatabase, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    identity = database.format.database_id
    written = fill(database, tmp_path, sink_of(kind, root, identity))
    inner = sink_of(kind, root, identity)

    class Interrupted:
        """A sink whose table is maintained before each commit."""

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def commit(self, table: str, files: Sequence[DataFile], **named: Any) -> None:
            spec = next(spec for spec in specs(tmp_path) if spec.name == table)
            maintain(sink_of(kind, root, identity), spec, before_us=0)
            inner.commit(table, files, **named)

    written += append(database, ["d/1/t", "other/1"], at=START + 100 * SECOND)
    assert archive_of(tmp_path, Interrupted()).run_round().rows == 2
    check(kind, root, written)


def test_a_replacement_of_what_is_gone_is_refused(database: RocksDatabase, tmp_path: Path) -> None:
    for kind in FORMATS:
        home = tmp_path / kind
        home.mkdir()
        sink = sink_of(kind, home / "tables", database.format.database_id)
        spec = TableSpec("messages")
        schema = job.table_schema(spec)
        sink.begin("messages", schema)
        gone = DataFile("messages", str(home / "tables" / "messages" / "x" / "y.parquet"), 1, 1)
        with pytest.raises(StorageConflict):
            sink.replace("messages", [gone], [], schema=schema, expected=0)
        with pytest.raises(StorageConflict, match="was moved"):
            sink.replace("messages", [], [], schema=schema, expected=7)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_young_is_kept(kind: str, database: RocksDatabase, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    sink = sink_of(kind, root, database.format.database_id)
    fill(database, tmp_path, sink)
    directory = Path(sink.data_directory("devices"))
    stray = directory / "stray.parquet"
    stray.write_bytes(b"a task that is being run")
    before_us = time.time_ns() // 1_000 - 3_600_000_000
    assert maintain(sink, specs(tmp_path)[0], before_us=before_us).files_removed == 0
    assert stray.exists()


def test_groups_are_of_small_files_and_of_a_size() -> None:
    def file(number: int, size: int) -> DataFile:
        return DataFile("t", f"{number}", 1, size, number, number)

    files = [file(3, 40), file(1, 30), file(2, 51), file(4, 40), file(5, 40), file(6, 40)]
    groups = list(small_groups(files, 100))
    assert [[each.path for each in group] for group in groups] == [["1", "3"], ["4", "5"]]
    assert list(small_groups([file(1, 1)], 100)) == []
