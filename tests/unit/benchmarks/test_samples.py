"""Samples fall into stages: by system call, by room, by library."""

from __future__ import annotations

import pytest
from benchmarks.samples import OTHER, Frame, Sample, parse, rooms, shares, stage

SCRIPT = """\
python 10838
\tffffffff822010c9 _raw_spin_unlock_irqrestore ([kernel.kallsyms])
\tffffffff81e2cd59 sock_write_iter ([kernel.kallsyms])
\t    7f00deadbeef uv__write (/site/uvloop/loop.cpython-311-x86_64-linux-gnu.so)

rocksdb:high 10843
\t    7f00aa rocksdb::CompactionIterator::NextFromInput (a::b) (/x/rocksdict.cpython-311.so)

python 10838

"""
MODULES = rooms(["perdure/broker/shared.py", "perdure/topic/shared.py", "perdure/mqtt/decode.py"])
MYPYC = "58b32c__mypyc.cpython-311-x86_64-linux-gnu.so"
KERNEL = "[kernel.kallsyms]"


def test_samples_are_read_from_what_perf_prints() -> None:
    written, compacted, unseen = parse(SCRIPT.splitlines())
    assert (written.thread, written.tid) == ("python", 10838)
    assert written.frames[1] == ("sock_write_iter", KERNEL)
    assert written.frames[2] == ("uv__write", "loop.cpython-311-x86_64-linux-gnu.so")
    assert (compacted.thread, len(compacted.frames)) == ("rocksdb:high", 1)
    assert unseen.frames == []


def test_the_last_sample_may_have_no_empty_line_after_it() -> None:
    (one,) = parse(SCRIPT.splitlines()[:3])
    assert len(one.frames) == 2


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([("_raw_spin", KERNEL), ("sock_write_iter", KERNEL)], "kernel: write to sockets"),
        ([("copy", KERNEL), ("tcp_recvmsg", KERNEL)], "kernel: read from sockets"),
        ([("x", KERNEL), ("ext4_sync_file", KERNEL)], "kernel: write to the disk"),
        ([("schedule", KERNEL), ("do_epoll_wait", KERNEL)], "kernel: wait for sockets"),
        ([("x", KERNEL), ("futex_wake", KERNEL)], "kernel: wake threads"),
        ([("clear_page", KERNEL), ("handle_mm_fault", KERNEL)], "kernel: memory"),
        ([("x", KERNEL), ("sock_write_iter", "libc.so.6")], "kernel: other"),
        ([("CPyDef_decode___Decoder___feed", MYPYC)], "code: mqtt"),
        ([("CPyPy_topic___shared___parse", MYPYC)], "code: topic"),
        ([("CPyDef_broker___shared___Group___take", MYPYC)], "code: broker"),
        ([("CPyBytes_Concat", MYPYC)], "code: shared parts"),
        ([("rocksdb::Insert", "rocksdict.cpython-311-x86_64-linux-gnu.so")], "RocksDB"),
        ([("uv_run", "loop.cpython-311-x86_64-linux-gnu.so")], "event loop (uvloop)"),
        ([("_PyObject_Malloc", "libpython3.11.so.1.0")], "CPython: objects, dicts, memory"),
        ([("memmove", "libc.so.6")], "libc: copies, memory"),
        ([("inflate", "libz.so.1")], OTHER),
        ([], OTHER),
    ],
)
def test_the_stage_of_a_sample(frames: list[Frame], expected: str) -> None:
    assert stage(Sample("python", 1, frames), MODULES) == expected


def test_a_name_that_two_rooms_share_belongs_to_none() -> None:
    assert MODULES["shared"] == OTHER
    assert MODULES["decode"] == MODULES["mqtt___decode"] == "mqtt"


def test_shares_add_up_and_the_largest_is_first() -> None:
    found = [Sample("python", 1, [("memmove", "libc.so.6")])] * 3 + [Sample("python", 1, [])]
    assert shares(found, MODULES) == {"libc: copies, memory": 0.75, OTHER: 0.25}
    assert shares([], MODULES) == {}
