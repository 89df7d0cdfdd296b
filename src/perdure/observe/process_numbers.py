"""What the system knows of this process; nothing here takes longer the more connections there are.

The library's collector lists all open files to count them, a millisecond for a thousand.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_PROCESS: Final = Path("/proc/self")
_DESCRIPTORS: Final = _PROCESS / "fd"


def open_files() -> int | None:
    """Descriptors that are open; None = the system does not tell."""
    try:
        # Linux 6.2 and newer tell the count.
        count = _DESCRIPTORS.stat().st_size
        return count or len(os.listdir(_DESCRIPTORS))  # noqa: PTH208 - no Path for each
    except OSError:
        return None


def memory_bytes() -> tuple[int, int] | None:
    """Virtual and resident memory; None = the system does not tell."""
    try:
        pages = (_PROCESS / "statm").read_text().split()
        size = resource.getpagesize()
        return int(pages[0]) * size, int(pages[1]) * size
    except (OSError, ValueError, IndexError):
        return None


def cpu_s() -> float:
    """CPU that was used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _started_s() -> float | None:
    """When the process began, since the epoch."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
        booted = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
        # The name of the program may have spaces and brackets in it.
        fields = (_PROCESS / "stat").read_text().rpartition(")")[2].split()
        return booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


@final
class ProcessCollector(Collector):
    """The standard metrics of a process, with the names that Prometheus gives them."""

    def __init__(self) -> None:
        self._started_s = _started_s()

    def collect(self) -> Iterator[Metric]:
        """Those that the system tells."""
        memory = memory_bytes()
        if memory is not None:
            yield _gauge("virtual_memory_bytes", "Virtual memory size in bytes.", memory[0])
            yield _gauge("resident_memory_bytes", "Resident memory size in bytes.", memory[1])
        if self._started_s is not None:
            about = "Start time of the process since unix epoch in seconds."
            yield _gauge("start_time_seconds", about, self._started_s)
        about = "Total user and system CPU time spent in seconds."
        yield CounterMetricFamily("process_cpu_seconds_total", about, cpu_s())
        count = open_files()
        if count is not None:
            yield _gauge("open_fds", "Number of open file descriptors.", count)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit != resource.RLIM_INFINITY:
            yield _gauge("max_fds", "Maximum number of open file descriptors.", limit)


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"process_{name}", about, value)
