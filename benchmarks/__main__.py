"""``python -m benchmarks [NAME...]``: run all of them, or some; exit 1 if a promise was missed."""

from __future__ import annotations

import sys

from benchmarks import layouts, sessions

BENCHMARKS = {"layouts": layouts.run, **sessions.ALL}


def main(names: list[str]) -> int:
    """Run benchmarks by name."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are {' '.join(BENCHMARKS)}", file=sys.stderr)
        return 64
    missed = False
    for name in names or BENCHMARKS:
        print(f"== {name}", flush=True)
        missed |= not BENCHMARKS[name]()
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
