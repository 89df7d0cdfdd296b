"""How far a number of wanted rows of an archive reaches, in files that overlap."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from perdure.storage.rocksdb import RocksDatabase
from perdure.topic.matching import matches
from tests.unit.pipeline.logs import START

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("deltalake")
from perdure.pipeline.archive_state import load_state
from perdure.pipeline.archived import Archived
from perdure.pipeline.jobs.archive import Archive, Wanted, execute_here
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.tables import parse_table
from tests.unit.pipeline.jobs.test_archive import sink_of
from tests.unit.pipeline.past.test_reader import FILTERS, record

pytestmark = pytest.mark.filterwarnings("default")


def test_a_bound_has_no_more_rows_than_are_wanted(database: RocksDatabase, tmp_path: Path) -> None:
    chance = random.Random(1)
    written = record(database, 600, at=START, chance=chance)
    job = Archive(
        ReadOptions(str(tmp_path / "db"), rows_per_partition=40),
        sink_of("parquet", tmp_path / "to", database.format.database_id),
        # Each table has a file for the same offsets.
        Wanted((parse_table("as=a/#"), parse_table("bs=b/+/t")), format="parquet"),
        directory=tmp_path / "to",
        execute=execute_here,
        rows_per_round=150,
    )
    while job.run_round().rows:
        pass
    state = load_state(tmp_path / "to")
    assert state is not None
    archived = Archived(Lake(str(tmp_path / "to")), state)
    end = written[-1].offset
    for _ in range(200):
        topic_filter, rows_max = chance.choice(FILTERS), chance.choice((1, 5, 40, 1_000))
        after = chance.choice((0, chance.choice(written).offset))
        until = chance.choice((end, min(end, after + 100_000)))
        bound = archived.bound(after, until, rows_max, ((topic_filter,),))
        wanted = [
            each.offset
            for each in written
            if after < each.offset <= until and matches(topic_filter, each.topic)
        ]
        # As many as may be, and not one more.
        expected = wanted[rows_max - 1] if len(wanted) > rows_max else until
        assert bound == expected, (topic_filter, rows_max, after, until)
