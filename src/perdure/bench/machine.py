"""The machine that a record names: no host name, no user, no path."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import perdure
from perdure.bench.result import Machine
from perdure.pure import build


def describe(directory: Path) -> Machine:
    """This machine, and the file system on which a broker's directory lies."""
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        perdure=f"{perdure.__version__} {build()}",
        disk=_file_system(directory),
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """Type of the file system: an fsync costs what that and its disk make of it."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    target = str(directory.resolve())
    for line in mounts:
        point, type_ = line.split(" ")[1:3]
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, type_
    return kind
