"""The first part of the page says what the record of the stages says."""

from __future__ import annotations

import msgspec
from benchmarks.record import Record, check
from benchmarks.sketch import render
from benchmarks.stages import Found

from tests.unit.bench.samples import result


def found(*, cpu_us: float, syncs: float) -> Found:
    return Found(
        per_s=100_000,
        cpu_us=cpu_us,
        loop_us=4.0,
        calls={"system calls": 0.25, "reads": 0.1, "futex calls": 0.0001, "syncs": syncs},
        read_bytes=250,
        written_bytes=500,
        disk_bytes=400,
        share={"kernel: write to sockets": 0.25, "RocksDB": 0.744, "other": 0.006},
    )


def test_the_sketch() -> None:
    loads = {"saturated": found(cpu_us=8, syncs=0.0002), "sparse": found(cpu_us=50, syncs=0.0)}
    record = Record(
        "stages",
        "2026-11-20T08:00:00+00:00",
        result().machine,
        {},
        [check("floor: write 16 KiB", [150], "us"), check("floor: 64 B", [6], "us")],
        {load: msgspec.to_builtins(one) for load, one in loads.items()},
    )
    text = render(record)
    assert "| system calls | 0.25: 0.1 reads | 0.25: 0.1 reads |" in text
    assert "| syncs of the disk | 1 for 5,000 messages | none seen |" in text
    assert "| bytes | 250 read, 500 written, of them 400 to the disk |" in text
    assert "| microseconds of CPU | 8, of them 4 in the thread of the loop | 50, " in text
    assert "| kernel: write to sockets | 2 (25%) | 12.5 (25%) |" in text
    assert "other" not in text
    assert "bound one process to 250,000 messages/s" in text
    assert "the bound would be 500,000/s" in text
    assert "a sync takes 150 us here" in text
    assert "20 are made in a second" in text
    assert "40 MB/s are written" in text
    assert "That floor is 12 of the 50 us" in text
