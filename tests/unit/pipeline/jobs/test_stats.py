"""Statistics that equal a count by hand, without Spark; ``tests/spark`` has both engines agree."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure.pipeline.options import ReadOptions
from tests.unit.pipeline.logs import SECOND, START, append, open_log

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
from perdure.pipeline.jobs import stats
from perdure.pipeline.jobs.stats_here import HereEngine

HOUR = 3_600 * SECOND


def collected(path: Path, **options: int) -> stats.Statistics:
    with HereEngine(ReadOptions(str(path), **options), memory="100MB") as engine:
        return stats.collect(engine, top=5)


def test_counts(tmp_path: Path) -> None:
    database = open_log(tmp_path)
    try:
        empty = collected(tmp_path)
        assert empty.totals == {
            "messages": 0,
            "bytes": 0,
            "clients": 0,
            "structures": 0,
            "first": None,
            "last": None,
        }
        # client-0 to client-2 in turn, a message each second; then client-0 alone, hours later.
        append(database, ["a/b"] * 60, at=START, step=SECOND)
        late = append(database, ["x"], at=START + 3 * HOUR)
        found = collected(tmp_path)
        assert found.totals["messages"] == 61
        assert found.totals["bytes"] == sum(len(str(n)) for n in range(60)) + 1
        assert (found.totals["clients"], found.totals["structures"]) == (3, 2)
        assert [(row["structure"], row["messages"]) for row in found.structures] == [
            ("a/b", 60),
            ("x", 1),
        ]
        assert [
            (row["client_id"], row["messages"], row["structures"]) for row in found.clients
        ] == [
            ("client-0", 21, 2),
            ("client-1", 20, 1),
            ("client-2", 20, 1),
        ]
        hour = datetime.fromtimestamp(START // SECOND, UTC).replace(minute=0, second=0)
        assert found.hours[0]["hour"] == hour
        assert [row["messages"] for row in found.hours] == [60, 1]
        assert [(row["client_id"], row["interval_s"]) for row in found.silent] == [
            ("client-1", 3.0),
            ("client-2", 3.0),
        ]
        assert found.silent[0]["silent_s"] == 3 * 3_600 - 58
        assert collected(tmp_path, after_offset=late[0].offset - 1).totals["messages"] == 1
    finally:
        database.close()
