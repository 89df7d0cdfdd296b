"""Stores beside each other (``perdure bench persistence``), as a record of this repository."""

from __future__ import annotations

from pathlib import Path

from benchmarks.record import Check, write
from perdure.storebench.contestants import Servers
from perdure.storebench.report import memory_fields, row_fields
from perdure.storebench.run import Comparison, Ratio, Settings, compare

ROUNDS = 3
SECONDS = 1.0


def checks(found: Comparison) -> list[Check]:
    """Ratios with their bounds, then rates and sizes."""
    lines = [_check(ratio) for ratio in found.ratios]
    for row in row_fields(found):
        cpu = (row["server_cpu_us"] or 0) + row["client_cpu_us"]
        what = f"{row['contestant']}, {row['shape']}, {row['durability']}"
        note = f"p99 {row['cycle_p99_ms']:g} ms, {cpu:.0f} us of CPU each"
        rates = [float(row[name]) for name in ("cycles_per_s", "low", "high")]
        lines.append(Check(what, rates[0], rates[1], rates[2], "cycles/s", note=note))
    for row in memory_fields(found):
        what = f"{row['contestant']}: a message, {found.settings.queued} queued for each client"
        size = float(row["bytes_each"])
        lines.append(Check(what, size, size, size, "B", note=row["where"]))
    return lines


def _check(ratio: Ratio) -> Check:
    must = ""
    if ratio.wanted:
        must = f"{'<=' if ratio.is_most else '>='} {ratio.wanted:.3g} x"
    found, low, high = (float(f"{each:.4g}") for each in (ratio.found, ratio.low, ratio.high))
    return Check(ratio.what, found, low, high, "x", must, ratio.is_met)


def run() -> bool:
    """Measure and write the record; whether every promise was kept."""
    settings = Settings(rounds=ROUNDS, seconds=SECONDS)
    found = compare(settings, Servers(), progress=lambda what, _: print(what, flush=True))
    return write(
        "persistence",
        found.started_at,
        data=Path(),
        settings={
            "clients": settings.clients,
            "bytes": settings.payload_bytes,
            "seconds": settings.seconds,
            "rounds": settings.rounds,
        },
        checks=checks(found),
        values={},
    )
