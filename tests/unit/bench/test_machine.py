"""What a record says of the machine."""

from __future__ import annotations

import platform
from pathlib import Path

from perdure.bench.machine import describe


def test_the_machine_without_names_and_paths(tmp_path: Path) -> None:
    machine = describe(tmp_path)
    assert machine.cores >= 1
    assert machine.memory_bytes > 1 << 28
    assert machine.cpu
    assert machine.disk
    assert platform.python_version() in machine.python
    assert platform.node() not in machine.kernel
