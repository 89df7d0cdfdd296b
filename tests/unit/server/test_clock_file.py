"""The broker's time in a file: whole, private, and no reason not to start."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from perdure.clock import ClockState
from perdure.server.clock_file import CLOCK_FILE, ClockFile, uptime


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    file = ClockFile(tmp_path)
    assert file.load() is None
    file.save(ClockState(1, 2, [(3, -4)]))
    file.save(ClockState(5, -6, [(7, 8), (9, 10)]))
    found = ClockFile(tmp_path).load()
    assert found is not None
    assert (found.steady_us, found.skew_us, found.earlier) == (5, -6, [(7, 8), (9, 10)])
    assert [path.name for path in tmp_path.iterdir()] == [CLOCK_FILE]
    assert (tmp_path / CLOCK_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"steady_us": "x"}', b"\xff"])
def test_a_damaged_file_is_told_and_no_more(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CLOCK_FILE).write_bytes(content)
    with capture_logs() as told:
        assert ClockFile(tmp_path).load() is None
    assert [entry["event"] for entry in told] == ["clock.file_unreadable"]


def test_no_flipped_bit_is_taken_for_another_time(tmp_path: Path) -> None:
    """With a clock that is years ahead every session would have expired."""
    path = tmp_path / CLOCK_FILE
    ClockFile(tmp_path).save(ClockState(1_795_747_691_563_672, -2, [(3, 4)]))
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with capture_logs():
            assert ClockFile(tmp_path).load() is None, bytes(damaged)


def test_a_file_of_a_release_without_checksums(tmp_path: Path) -> None:
    (tmp_path / CLOCK_FILE).write_bytes(b'{"steady_us":5,"skew_us":-6,"earlier":[[7,8]]}')
    found = ClockFile(tmp_path).load()
    assert found is not None
    assert (found.steady_us, found.skew_us, found.earlier) == (5, -6, [(7, 8)])


def test_a_directory_that_takes_nothing_is_told_once(tmp_path: Path) -> None:
    file = ClockFile(tmp_path / "gone")
    with capture_logs() as told:
        file.save(ClockState(1))
        file.save(ClockState(2))
    assert [entry["event"] for entry in told] == ["clock.file_unwritable"]


def test_how_long_ago_it_was_is_told_by_the_kernel(tmp_path: Path) -> None:
    """The wall clock may have been set in between; not if the machine was started anew."""
    ClockFile(tmp_path, uptime=lambda: ("a", 1_000)).save(ClockState(5))
    for now, elapsed_us in {
        ("a", 1_000): 0,
        ("a", 4_000): 3_000,
        ("a", 999): None,  # another container, whose clock is set apart
        ("b", 4_000): None,
        ("", 0): None,
    }.items():
        found = ClockFile(tmp_path, uptime=lambda now=now: now).load()
        assert found is not None
        assert found.elapsed_us == elapsed_us
    ClockFile(tmp_path, uptime=lambda: ("", 0)).save(ClockState(5))
    found = ClockFile(tmp_path, uptime=lambda: ("", 0)).load()
    assert found is not None
    assert found.elapsed_us is None
    boot, since_us = uptime()
    assert bool(boot) == (since_us > 0)


def test_a_time_that_only_this_process_is_shown_counts(tmp_path: Path) -> None:
    """A month off that somebody simulates is not undone by the kernel, which knows better."""
    proc = tmp_path / "proc"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text("a\n")
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    begun = time.time() - since_boot

    def shown(*, wall_ahead_s: int = 0, boot_ahead_s: int = 0) -> str:
        since_s = since_boot - boot_ahead_s
        (proc / "uptime").write_text(f"{since_s:.2f} 7.00\n")
        btime = int(begun + boot_ahead_s - wall_ahead_s)
        (proc / "stat").write_text(f"cpu  1 2 3\nbtime {btime}\nprocesses 4\n")
        return uptime(proc=proc)[0]

    assert shown() == "a"
    assert shown(wall_ahead_s=30 * 86_400) == ""
    assert shown(wall_ahead_s=-86_400) == ""
    assert shown(boot_ahead_s=86_400) == ""
    (proc / "stat").write_text("cpu  1 2 3\n")
    assert uptime(proc=proc) == ("", 0)
