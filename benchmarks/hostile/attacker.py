"""One attack as a process: ``python -m benchmarks.hostile.attacker NAME HOST SECONDS PORTS``.

Prints how much it did as one number.
"""

from __future__ import annotations

import json
import os
import sys

# Imported for the attacks that they add.
import benchmarks.hostile.contents
import benchmarks.hostile.costly
import benchmarks.hostile.crowds
import benchmarks.hostile.encrypted
import benchmarks.hostile.exchanges
import benchmarks.hostile.floods
import benchmarks.hostile.instants
import benchmarks.hostile.openings  # noqa: F401
from benchmarks.hostile.registry import ATTACKS
from benchmarks.hostile.wire import Attacker

__all__ = ["ATTACKS", "main"]

NICE = 10
"""An attacker would be on another machine: it must not take the core that the broker needs."""


def main(name: str, host: str, seconds: str, ports: str) -> int:
    """Attack."""
    os.nice(NICE)
    attacker = Attacker(host, json.loads(ports), float(seconds))
    try:
        ATTACKS[name][1](attacker)
    except OSError as error:
        print(f"{name}: {error}", file=sys.stderr)
    print(attacker.done)
    return 0


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))
