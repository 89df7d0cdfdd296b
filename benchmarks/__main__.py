"""``python -m benchmarks [NAME...]``: run all of them, or some, and write the page anew.

Exit code 1 if a promise was missed.
"""

from __future__ import annotations

import sys
import time
import traceback
from importlib.util import find_spec

from benchmarks import (
    cluster,
    cluster_join,
    dashboard,
    filters,
    fleet,
    layouts,
    persistence,
    profiles,
    registry,
    sessions,
    stages,
    suite,
    summary,
)
from benchmarks.ending import end_in_order

BENCHMARKS = {**suite.ALL, **stages.ALL, **sessions.ALL, "layouts": layouts.run}
BENCHMARKS |= {
    **profiles.ALL,
    "persistence": persistence.run,
    "filters": filters.run,
    "fleet": fleet.run,
    "cluster": cluster.run,
    "cluster-join": cluster_join.run,
    "dashboard": dashboard.run,
    "registry": registry.run,
}
if find_spec("pyspark") is not None:
    from benchmarks import spark_read

    BENCHMARKS["spark-read"] = spark_read.run


def main(names: list[str]) -> int:
    """Run benchmarks by name; one that fails does not keep the others from the page."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are {' '.join(BENCHMARKS)}", file=sys.stderr)
        return 64
    missed = [name for name in names or BENCHMARKS if not _is_kept(name)]
    summary.write()
    if missed:
        print(f"missed or failed: {' '.join(missed)}", file=sys.stderr)
    return int(bool(missed))


def _is_kept(name: str) -> bool:
    """Run one; whether it kept what it promises."""
    print(f"== {name}", flush=True)
    begun = time.monotonic()
    try:
        kept = BENCHMARKS[name]()
    except Exception:  # noqa: BLE001 - whatever stops one, the records of the others are there
        traceback.print_exc()
        kept = False
    print(f"== {name}: {time.monotonic() - begun:.0f} s", flush=True)
    return kept


if __name__ == "__main__":
    end_in_order()
    sys.exit(main(sys.argv[1:]))
