"""Where CPU samples fall: from what ``perf script`` prints to the stages of a message's way.

A sample is a thread and a stack, innermost frame first. In the kernel, the system call decides
(network, disk, polling, waking threads). In the compiled modules, the module decides: mypyc names
functions ``CPyDef_<module>___...`` and calls what a module shares with others by other names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

Frame = tuple[str, str]
"""(symbol, library without its path)."""


class Sample(msgspec.Struct, frozen=True):
    """One sample.

    Attributes:
        thread: its name.
        tid: its number; the first thread of a process has the process's.
        frames: innermost first; empty where nothing was to be seen.
    """

    thread: str
    tid: int
    frames: list[Frame]


_HEAD: Final = re.compile(r"^(?P<thread>.*\S)\s+(?P<tid>\d+)\s*$")
_FRAME: Final = re.compile(r"^\s+[0-9a-f]+ (?P<symbol>.*) \((?P<library>[^()]*|\[.*\])\)$")
_KERNEL: Final = "[kernel.kallsyms]"

_SYSTEM_CALLS: Final[tuple[tuple[str, str], ...]] = (
    ("sock_read_iter|sock_recvmsg|tcp_recvmsg", "kernel: read from sockets"),
    ("sock_write_iter|sock_sendmsg|tcp_sendmsg", "kernel: write to sockets"),
    ("ext4_|xfs_|btrfs_|blk_|fdatasync|fsync|file_write|filemap_", "kernel: write to the disk"),
    ("epoll|sock_poll", "kernel: wait for sockets"),
    ("futex", "kernel: wake threads"),
    ("exc_page_fault|do_user_addr_fault|handle_mm_fault", "kernel: memory"),
)
_CALLS: Final = [(re.compile(pattern), stage) for pattern, stage in _SYSTEM_CALLS]

# In this order: extension modules are named after the Python that they are for.
_LIBRARIES: Final[Mapping[str, str]] = {
    "rocksdict": "RocksDB",
    "loop.cpython": "event loop (uvloop)",
    "__mypyc": "code: shared parts",
    "libc.": "libc: copies, memory",
    "libm.": "libc: copies, memory",
    "[vdso]": "libc: copies, memory",
    "python": "CPython: objects, dicts, memory",
}
OTHER: Final = "other"


def parse(lines: Iterable[str]) -> Iterator[Sample]:
    """Samples from ``perf script -F comm,tid,ip,sym,dso``."""
    head: re.Match[str] | None = None
    frames: list[Frame] = []
    for line in lines:
        if not line.strip():
            if head is not None:
                yield Sample(head["thread"], int(head["tid"]), frames)
            head, frames = None, []
        elif head is None:
            head = _HEAD.match(line)
        elif frame := _FRAME.match(line):
            frames.append((frame["symbol"], frame["library"].rpartition("/")[2]))
    if head is not None:
        yield Sample(head["thread"], int(head["tid"]), frames)


def rooms(compiled: Iterable[str]) -> dict[str, str]:
    """Room by the name that mypyc gives a module: the end of its path, as long as it must be.

    Args:
        compiled: paths of modules, as in ``compiled.txt``.
    """
    found: dict[str, str] = {}
    for path in compiled:
        parts = path.removesuffix(".py").split("/")
        for length in range(1, len(parts) + 1):
            # A short name that two modules could have belongs to none: mypyc lengthens it.
            name = "___".join(parts[-length:])
            found[name] = parts[1] if found.get(name, parts[1]) == parts[1] else OTHER
    return found


def stage(sample: Sample, modules: Mapping[str, str]) -> str:
    """The stage that a sample belongs to."""
    if not sample.frames:
        return OTHER
    symbol, library = sample.frames[0]
    if library.startswith("[kernel"):
        names = " ".join(name for name, where in sample.frames if where.startswith("[kernel"))
        return next((what for pattern, what in _CALLS if pattern.search(names)), "kernel: other")
    if "__mypyc" in library and symbol.startswith(("CPyDef_", "CPyPy_")):
        words = symbol.split("_", 1)[1].split("___")
        for length in range(len(words), 0, -1):
            room = modules.get("___".join(words[:length]))
            if room is not None:
                return f"code: {room}"
    return next((what for part, what in _LIBRARIES.items() if part in library), OTHER)


def shares(samples: Iterable[Sample], modules: Mapping[str, str]) -> dict[str, float]:
    """Share of the samples in each stage, the largest first."""
    counted = Counter(stage(sample, modules) for sample in samples)
    total = sum(counted.values())
    return {name: count / total for name, count in counted.most_common()}
