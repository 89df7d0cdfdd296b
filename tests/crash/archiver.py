"""Archives a log round after round until it is killed: ``archiver.py <data> <archive> <format>``.

Small rounds, so that a kill finds it in any step of one, and between any two.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from perdure.pipeline.jobs.archive import Archive, Wanted, execute_here
from perdure.pipeline.lake.lake import Lake
from perdure.pipeline.log_index import opened
from perdure.pipeline.options import ReadOptions
from perdure.pipeline.sinks.opening import open_sink
from perdure.pipeline.tables import parse_table

ROWS_PER_ROUND = 1_100


def main() -> None:
    """Until killed; says when it begins."""
    data, to, kind = sys.argv[1:]
    options = ReadOptions(data, rows_per_partition=500)
    with opened(options) as index:
        database_id = index.database_id
    Path(to).mkdir(exist_ok=True)
    job = Archive(
        options,
        open_sink(Lake(to, kind), database_id),
        Wanted((parse_table("cellar=rooms/cellar/{sensor}"),), format=kind),
        directory=Path(to),
        execute=execute_here,
        rows_per_round=ROWS_PER_ROUND,
    )
    print("begins", flush=True)
    while True:
        if not job.run_round().rows:
            print("idle", flush=True)
            time.sleep(0.02)


if __name__ == "__main__":
    main()
