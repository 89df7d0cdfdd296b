"""Records: what was measured, where, against which bound."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from perdure.bench.machine import describe
from perdure.bench.result import Machine

DIRECTORY = Path(__file__).with_name("records")


class Check(msgspec.Struct, frozen=True):
    """One promise and what was found.

    Attributes:
        what: one sentence.
        found: median of the rounds.
        low, high: the least and the most.
        unit: of all of them.
        must: the bound in words; empty = stated, not promised.
        is_met: the median keeps it.
        note: what limits it or disturbed it.
    """

    what: str
    found: float
    low: float
    high: float
    unit: str
    must: str = ""
    is_met: bool = True
    note: str = ""


class Record(msgspec.Struct, frozen=True):
    """What one benchmark wrote."""

    name: str
    started_at: str
    machine: Machine
    settings: Mapping[str, object]
    checks: list[Check]
    values: Mapping[str, object]


def now() -> str:
    """UTC, RFC 3339."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def check(
    what: str,
    values: Sequence[float],
    unit: str,
    *,
    most: float | None = None,
    least: float | None = None,
    note: str = "",
) -> Check:
    """Median and extremes of some rounds, against a bound."""
    found = statistics.median(values)
    met = (most is None or found <= most) and (least is None or found >= least)
    must = f"<= {most:g} {unit}" if most is not None else ""
    must = f">= {least:g} {unit}" if least is not None else must
    median, low, high = (float(f"{value:.4g}") for value in (found, min(values), max(values)))
    return Check(what, median, low, high, unit, must.strip(), met, note)


def place(name: str, started_at: str) -> Path:
    """Where a record goes, without the end of its name.

    Older records of the name are removed: history has them.
    """
    DIRECTORY.mkdir(exist_ok=True)
    for path in DIRECTORY.glob(f"*-{name}.*"):
        # A date and a hyphen come before the name; another name may end alike.
        if path.stem[11:] == name:
            path.unlink()
    return DIRECTORY / f"{started_at[:10]}-{name}"


def write(
    name: str,
    started_at: str,
    *,
    data: Path,
    settings: Mapping[str, object],
    checks: list[Check],
    values: Mapping[str, object],
) -> bool:
    """Write a record and show its checks; returns whether every promise was kept."""
    record = Record(name, started_at, describe(data), settings, checks, values)
    path = place(name, started_at).with_suffix(".json")
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    for one in checks:
        verdict = "ok    " if one.is_met else "MISSED"
        bound = f"  must be {one.must}" if one.must else ""
        print(
            f"{verdict} {one.what}: {one.found:g} {one.unit} ({one.low:g} to {one.high:g}){bound}"
        )
    sys.stdout.flush()
    return all(one.is_met for one in checks)
