"""What the kernel tells of processes, under ``/proc``; of one that is gone it tells nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")

GONE: Final = "X"
_ENDED: Final = "ZX"


def stat_fields(pid: int) -> list[str]:
    """The fields of its ``stat`` from the third on, the state; empty = it is gone."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8")
    except OSError:
        return []
    # After the name, which may hold anything.
    return stat[stat.rindex(")") + 2 :].split()


def state(pid: int) -> str:
    """The kernel's letter for what a process does."""
    fields = stat_fields(pid)
    return fields[0] if fields else GONE


def lives(pid: int) -> bool:
    """Whether the process still runs; one that only waits to be reaped does not."""
    return state(pid) not in _ENDED


def children(pid: int) -> list[int]:
    """Its living children."""
    found: list[int] = []
    try:
        for task in (PROC / str(pid) / "task").iterdir():
            listed = (task / "children").read_text(encoding="utf-8")
            found += [int(child) for child in listed.split()]
    except OSError:
        # It ended meanwhile; what was found may live on.
        return found
    return found


def family(pid: int) -> list[int]:
    """The process and its living descendants."""
    found = [pid]
    for each in found:
        found += children(each)
    return found
