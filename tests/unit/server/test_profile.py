"""Samples weigh what a thread spent, and a file holds them as collapsed stacks."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.server.profile import STACK_MAX, Profiler


class Worker:
    """A thread that is in a known function until it is let go."""

    def __init__(self, name: str) -> None:
        self.inside, self.leave = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.outer, name=name)
        self.thread.start()
        self.inside.wait()

    def outer(self) -> None:
        self.inner()

    def inner(self) -> None:
        self.inside.set()
        self.leave.wait()


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker("commit 1;2")
    yield made
    made.leave.set()
    made.thread.join()


class Kernel:
    """What the kernel would say of threads."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def spent(self, thread: threading.Thread, nanoseconds: int) -> None:
        folder = self.directory / str(thread.native_id)
        folder.mkdir(exist_ok=True)
        (folder / "schedstat").write_text(f"{nanoseconds} 1 2\n")


def test_a_stack_weighs_what_its_thread_has_spent_since(tmp_path: Path, worker: Worker) -> None:
    kernel = Kernel(tmp_path)
    profiler = Profiler(tmp_path / "profile", tasks=tmp_path)
    for spent_ns in (9_000_000, 9_500_000, 9_500_000, 10_250_000):
        kernel.spent(worker.thread, spent_ns)
        profiler.sample()
    (line,) = profiler.collapsed().splitlines()
    stack, weight = line.rsplit(" ", 1)
    assert weight == "1250"
    frames = stack.split(";")
    assert frames[0] == "commit 1,2"
    where = frames.index("server/test_profile:Worker.outer")
    assert frames[where + 1] == "server/test_profile:Worker.inner"
    assert frames[-1].startswith("python3") or frames[-1].endswith("wait")


def test_a_thread_that_waits_and_one_that_is_gone_weigh_nothing(
    tmp_path: Path, worker: Worker
) -> None:
    profiler = Profiler(tmp_path / "profile", tasks=tmp_path)
    for _ in range(3):
        profiler.sample()
    assert profiler.collapsed() == ""


def test_a_deep_stack_is_cut_at_its_outer_end(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    profiler = Profiler(tmp_path / "profile", tasks=tmp_path)
    inside, leave = threading.Event(), threading.Event()

    def descend(depth: int) -> None:
        if depth:
            descend(depth - 1)
        else:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=descend, args=(STACK_MAX + 50,), name="deep")
    thread.start()
    inside.wait()
    for spent_ns in (1_000, 5_000):
        kernel.spent(thread, spent_ns)
        profiler.sample()
    leave.set()
    thread.join()
    (line,) = profiler.collapsed().splitlines()
    assert line.count(";") == STACK_MAX
    assert "wait" in line.rsplit(";", 1)[1]


@pytest.mark.slow
def test_a_busy_thread_is_found_and_the_file_is_whole_at_any_time(tmp_path: Path) -> None:
    path = tmp_path / "profile.collapsed"
    with Profiler(path, interval_s=0.001):
        assert path.read_text() == ""
        for _ in range(400):
            hashlib.pbkdf2_hmac("sha256", b"a", b"b", 1_000)
    text = path.read_text()
    assert "test_a_busy_thread_is_found_and_the_file_is_whole_at_any_time" in text
    assert "profiler" not in text.replace("test_profile", "").split(";", 1)[0]
    assert [file.name for file in tmp_path.iterdir()] == ["profile.collapsed"]


def test_a_file_that_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Profiler(tmp_path / "none" / "profile").start()
