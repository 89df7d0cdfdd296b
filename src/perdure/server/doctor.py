"""Checks a machine for a broker: limits, disk, clock, versions. What the configuration names is
looked at by ``preflight``.

Each check says what it found, and what to do if that is not enough. Nothing is changed but a file
that is written for a moment to time the disk.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

import msgspec

from perdure.config.schema import Config

Verdict: TypeAlias = Literal["ok", "warning", "problem"]

FILES_SPARE: Final = 512
"""Open files that a broker needs beside its connections: tables of the store, logs, sockets."""

FSYNCS: Final = 16
FSYNC_SLOW_MS: Final = 20.0
"""Above it a publisher by itself is slow: the best disks need 0.1 ms, good ones 2."""

ROOM_MIN: Final = 1 << 30
ROOM_SHARE_MIN: Final = 0.05
CLOCK_FLOOR_S: Final = 1_735_689_600
"""2025-01-01: a clock before it was never set."""

PYTHON_MIN: Final = (3, 11)
_SOMAXCONN: Final = Path("/proc/sys/net/core/somaxconn")
_BACKLOG_MIN: Final = 1_024


@final
class Check(msgspec.Struct, frozen=True):
    """One check.

    Attributes:
        check: its name.
        verdict: ``ok``, ``warning`` (it works, or may not later) or ``problem``.
        found: what is there.
        remedy: what to do; empty = nothing.
    """

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""


def examine_machine(config: Config) -> Iterator[Check]:
    """All checks of the machine, in order.

    Args:
        config: of the broker; its directory need not be there yet.
    """
    yield _files(config)
    yield _backlog()
    if config.storage.traits.is_directory:
        directory = _existing(Path(config.storage.path).absolute())
        yield _room(directory)
        yield _fsync(directory)
    yield _clock()
    yield _versions()


def _files(config: Config) -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = config.limits.connections_max + FILES_SPARE
    found = f"{soft} open files, {hard} at most"
    if soft in (resource.RLIM_INFINITY, -1) or hard == resource.RLIM_INFINITY or hard >= wanted:
        return Check("open files", "ok", found)
    return Check(
        "open files",
        "warning",
        f"{found}; {config.limits.connections_max} connections need {wanted}",
        f"LimitNOFILE={wanted} in the systemd unit, or ulimit -n {wanted}; or a smaller "
        "limits.connections_max",
    )


def _backlog() -> Check:
    try:
        value = int(_SOMAXCONN.read_text())
    except (OSError, ValueError):
        return Check("listen backlog", "ok", "not known on this system")
    if value >= _BACKLOG_MIN:
        return Check("listen backlog", "ok", f"{value} connections wait to be accepted at most")
    return Check(
        "listen backlog",
        "warning",
        f"{value} connections wait to be accepted at most: a fleet that reconnects is refused",
        "sysctl -w net.core.somaxconn=4096",
    )


def _existing(path: Path) -> Path:
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def _room(directory: Path) -> Check:
    usage = shutil.disk_usage(directory)
    share = usage.free / usage.total if usage.total else 0.0
    found = f"{usage.free / (1 << 30):.1f} GiB free of {usage.total / (1 << 30):.1f} at {directory}"
    if usage.free >= ROOM_MIN and share >= ROOM_SHARE_MIN:
        return Check("disk space", "ok", found)
    return Check("disk space", "warning", found, "make room, or bound the log: retention.bytes")


def _fsync(directory: Path) -> Check:
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            times = []
            for _ in range(FSYNCS):
                file.write(b"perdure" * 64)
                file.flush()
                begun = time.perf_counter()
                os.fsync(file.fileno())
                times.append((time.perf_counter() - begun) * 1e3)
    except OSError as error:
        return Check(
            "disk sync",
            "problem",
            f"{directory} takes no file: {error.strerror}",
            "run this as the broker's user; the directory must be that user's",
        )
    middle = sorted(times)[FSYNCS // 2]
    found = f"{middle:.1f} ms, the slowest of {FSYNCS} {max(times):.1f} ms"
    if middle <= FSYNC_SLOW_MS:
        return Check("disk sync", "ok", found)
    return Check(
        "disk sync",
        "warning",
        found,
        "a local SSD; many publishers share a sync, one by itself waits for each",
    )


def _clock() -> Check:
    now_s = time.time()
    found = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))
    if now_s >= CLOCK_FLOOR_S:
        return Check("clock", "ok", found)
    return Check("clock", "problem", f"{found}: it was never set", "chronyd or systemd-timesyncd")


def _versions() -> Check:
    found = f"Python {platform.python_version()} on {platform.system()} {platform.release()}"
    if sys.version_info[:2] >= PYTHON_MIN and platform.system() == "Linux":
        return Check("versions", "ok", found)
    return Check("versions", "warning", found, "Linux and Python 3.11 or later are tested")
