"""What a stream passes over is told."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perdure.pipeline import offsets, passed_over
from perdure.pipeline.options import parse_options
from perdure.storage.rocksdb import RocksDatabase
from perdure.storage.rocksdb.bulk import LogFiles
from tests.unit.pipeline.logs import SECOND, START, append


def test_the_offsets_are_told_with_their_times() -> None:
    told = passed_over.span(START, START + SECOND)
    assert told.startswith(f"offsets {START + 1} to {START + SECOND} (20")
    assert passed_over.span(0, START).startswith(f"offsets up to {START} (20")


@pytest.mark.parametrize("catalog", ["", "archive"])
def test_what_was_dropped_before_a_micro_batch_is_told_once(
    database: RocksDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture, catalog: str
) -> None:
    written = append(database, ["a"] * 9, at=START)
    database.rotate(START + SECOND)
    kept = append(database, ["b"], at=START + 2 * SECOND)
    checked = parse_options({"path": str(tmp_path / "db"), "failOnDataLoss": "false"}, START)
    checked = msgspec.structs.replace(checked, catalog=catalog)

    def told(after: int, until: int) -> list[str]:
        caplog.clear()
        files = LogFiles(tmp_path / "db")
        try:
            start = offsets.position(files.database_id, 1, after)
            passed_over.tell_unread(
                files, start, offsets.position(files.database_id, 2, until), checked
            )
        finally:
            files.close()
        return [record.getMessage() for record in caplog.records]

    assert told(written[3].offset, kept[0].offset) == []
    database.drop_generation(1)
    if catalog:
        assert told(written[3].offset, kept[0].offset) == []
        return
    # One micro-batch ends before the log begins: the next one tells of the rest.
    (first,) = told(written[3].offset, written[6].offset)
    assert f"offsets {written[3].offset + 1} to {written[6].offset} (" in first
    assert str(tmp_path / "db") in first
    (second,) = told(written[6].offset, kept[0].offset)
    assert f"offsets {written[6].offset + 1} to " in second
    assert told(kept[0].offset - 1, kept[0].offset) == []
