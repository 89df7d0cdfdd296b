"""``python -m benchmarks [NAME...]``: run all of them, or some, and write the page anew.

Exit code 1 if a promise was missed.
"""

from __future__ import annotations

import sys
import time

from benchmarks import layouts, persistence, sessions, stages, suite, summary

BENCHMARKS = {**suite.ALL, **stages.ALL, **sessions.ALL, "layouts": layouts.run}
BENCHMARKS["persistence"] = persistence.run


def main(names: list[str]) -> int:
    """Run benchmarks by name."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are {' '.join(BENCHMARKS)}", file=sys.stderr)
        return 64
    missed = False
    for name in names or BENCHMARKS:
        print(f"== {name}", flush=True)
        begun = time.monotonic()
        missed |= not BENCHMARKS[name]()
        print(f"== {name}: {time.monotonic() - begun:.0f} s", flush=True)
    summary.write()
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
