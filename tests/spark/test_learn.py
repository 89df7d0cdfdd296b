"""What Spark learns of a log that a broker is writing, the broker takes up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.spark.broker import Broker, publish

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("default"),
]


def test_a_running_broker_takes_a_proposal_up(spark: Any, tmp_path: Path) -> None:
    from perdure.pipeline.jobs.learn import propose
    from perdure.pipeline.options import ReadOptions
    from perdure.pipeline.spark_jobs import count_patterns

    with Broker(tmp_path, hides=False) as broker:

        def perdure(*command: str) -> Any:
            done = subprocess.run(
                [sys.executable, "-m", "perdure", *command, "--data", str(broker.data), "--json"],
                check=True,
                capture_output=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            return json.loads(done.stdout)

        count = publish(broker.port, 500)
        counts = count_patterns(spark, ReadOptions(str(broker.data), rows_per_partition=100))
        before = [row["pattern"] for row in perdure("storage", "streams")]
        found = propose(counts, before, database="", through_offset=0)
        # The broker learned in the order in which topics came.
        assert {"plant/0/metric/0", "plant/+/metric/1"} < set(before)
        assert [(each.pattern, each.messages) for each in found.structures[:1]] == [
            ("plant/+/metric/0", sum(1 for number in range(count) if number % 3 == 0))
        ]
        file = tmp_path / "proposal.json"
        file.write_bytes(msgspec.json.encode(found))
        assert perdure("storage", "rotate", "--proposal", str(file))["generation"] == 2
        publish(broker.port, 100)
        after = [row["pattern"] for row in perdure("storage", "streams", "--generation", "2")]
        # What administrators do is in the log as well, below $audit.
        learned = sorted(pattern for pattern in after if not pattern.startswith("$"))
        assert learned == [f"plant/+/metric/{number}" for number in range(3)]
