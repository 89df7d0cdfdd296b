"""What the record of Spark's reads says of some times."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
from benchmarks.spark_read import Taken, best, checks

NAMES = (
    *("full", "topic_and_payload", "one_percent_by_filter", "one_device"),
    *("one_percent_by_time", "url_full", "parquet_full", "empty_query", "stats", "kafka_full"),
)


def test_a_read_of_a_part_is_held_against_the_whole() -> None:
    times = {name: [Taken(0.5, 0.9), Taken(0.4, 1.0)] for name in NAMES}
    times["one_percent_by_filter"] = [Taken(0.1, 0.2), Taken(0.05, 0.1)]
    found = {check.what: check for check in checks(1.5e6, times, 1_000_000)}
    whole = found["all columns, from a directory"]
    assert (whole.low, whole.high, whole.is_met) == (2e6, 2.5e6, True)
    part = found["one percent by a hundred filters against all"]
    assert (part.low, part.high, part.is_met) == (5.0, 8.0, True)
    assert not found["one percent by time against all"].is_met
    assert found["stats, with its start"].is_met
    assert found["the same rows from Kafka: kafka_full"].found == 450
    assert found["the decoder alone, of one core"].found == 1.5e6


def test_the_best_is_of_each_kind_of_time() -> None:
    assert best([Taken(1.0, 4.0), Taken(2.0, 3.0)]) == Taken(1.0, 3.0)
