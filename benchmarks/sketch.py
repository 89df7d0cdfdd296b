"""The first part of the page: what one message takes, on which stage, and where the limit is."""

from __future__ import annotations

import msgspec

from benchmarks.record import Record
from benchmarks.stages import LOADS, Found
from benchmarks.targets import figure
from perdure.bench.compare import Spread
from perdure.config.schema import StorageConfig

_SOCKETS = ("kernel: read from sockets", "kernel: write to sockets", "kernel: wait for sockets")
_LEAST_SHARE = 0.01


def render(record: Record) -> str:
    """Sketch, stages and limit, from the record of ``stages``."""
    loads = {load: msgspec.convert(record.values[load], Found) for load in LOADS}
    machine = record.machine
    return "\n".join(
        (
            "## What a message takes",
            "",
            (
                "p2p, 1000 pairs, 64 B, QoS 1, durable sessions, PUBACK after the sync; Perdure "
                f"{machine.perdure}, {machine.cpu}, {machine.cores} cores, data on "
                f"{machine.disk}, {record.started_at[:10]}. Each message is a PUBLISH in and one "
                "out, a PUBACK out and one in, and a record in the log; counted by the kernel's "
                "trace points while the load runs."
            ),
            "",
            *_table(loads),
            "",
            "The CPU for a message, by where the samples of a profiler fall:",
            "",
            *_stages(loads),
            "",
            *_limit(record, loads),
            "",
        )
    )


def _table(loads: dict[str, Found]) -> list[str]:
    def row(what: str, *cells: str) -> str:
        return f"| {what} | {' | '.join(cells)} |"

    found = list(loads.values())
    return [
        row("for a message", *loads),
        "|---|" + "---|" * len(loads),
        row("system calls", *(_calls(one) for one in found)),
        row("syncs of the disk", *(_syncs(one) for one in found)),
        row(
            "bytes",
            *(
                f"{one.read_bytes:,.0f} read, {one.written_bytes:,.0f} written, of them "
                f"{one.disk_bytes:,.0f} to the disk"
                for one in found
            ),
        ),
        row(
            "microseconds of CPU",
            *(
                f"{figure(one.cpu_us)}, of them {figure(one.loop_us)} in the thread of the loop"
                for one in found
            ),
        ),
        row("messages per second meanwhile", *(f"{one.per_s:,.0f}" for one in found)),
    ]


def _calls(found: Found) -> str:
    parts = [
        f"{figure(count)} {what}"
        for what, count in found.calls.items()
        if what not in ("system calls", "syncs") and count >= 0.001
    ]
    return f"{figure(found.calls['system calls'])}: {', '.join(parts)}"


def _syncs(found: Found) -> str:
    syncs = found.calls.get("syncs", 0.0)
    return f"1 for {1 / syncs:,.0f} messages" if syncs else "none seen"


def _stages(loads: dict[str, Found]) -> list[str]:
    names = dict.fromkeys(
        name for one in loads.values() for name, share in one.share.items() if share >= _LEAST_SHARE
    )
    lines = [f"| stage | {' | '.join(f'{load}, us' for load in loads)} |"]
    lines.append("|---|" + "---|" * len(loads))
    for name in names:
        cells = [
            f"{figure(share * one.cpu_us)} ({share:.0%})"
            for one in loads.values()
            for share in (one.share.get(name, 0.0),)
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _limit(record: Record, loads: dict[str, Found]) -> list[str]:
    saturated, sparse = loads["saturated"], loads["sparse"]
    sync, pair = _floor(record, "floor: write"), _floor(record, "floor: 64 B")
    sockets = sum(saturated.share.get(name, 0.0) for name in _SOCKETS) * saturated.cpu_us
    syncs = saturated.calls.get("syncs", 0.0) * saturated.per_s
    interval_ms = StorageConfig().commit_interval_us / 1000
    megabytes = saturated.disk_bytes * saturated.per_s / 1e6
    return [
        "Where the limit is:",
        "",
        (
            f"- Saturated, one thread runs the loop: {figure(saturated.loop_us)} us of it for a "
            f"message bound one process to {1e6 / saturated.loop_us:,.0f} messages/s. "
            f"{figure(sockets)} us are the kernel's for its sockets, which no broker saves; with "
            f"nothing else the bound would be {1e6 / sockets:,.0f}/s."
        ),
        (
            f"- The disk is not it: a sync takes {sync.median:,.0f} us here ({sync.low:,.0f} to "
            f"{sync.high:,.0f}) and {syncs:,.0f} are made in a second, beside the loop; "
            f"{megabytes:,.0f} MB/s are written."
        ),
        (
            "- At a fixed rate each message comes and goes through four system calls at "
            f"{figure(pair.median)} us for each pair of them. That floor is "
            f"{figure(2 * pair.median)} of the {figure(sparse.cpu_us)} us; wake-ups, which the "
            f"broker shares among the messages of {interval_ms:g} ms while its loop rests, the "
            "interpreter and commits are the rest."
        ),
    ]


def _floor(record: Record, begins: str) -> Spread:
    check = next(check for check in record.checks if check.what.startswith(begins))
    return Spread(check.found, check.low, check.high)
