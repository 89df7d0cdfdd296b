"""The file in the data directory that hands the broker's time to the next process.

It is replaced as a whole and not synced: it is written every ten seconds, and an older one costs
no more than the time that some deadlines are late. One with a wrong digit would cost all
sessions: it has a checksum.

How long ago it was written is told by the kernel's count since it started, as long as it is the
same start: the wall clock may have been set in between.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

import msgspec

from perdure.clock import ClockState
from perdure.observe.logs import get_logger

log = get_logger("server")

CLOCK_FILE: Final = "broker.clock"

_BTIME: Final = re.compile(r"^btime (\d+)$", re.MULTILINE)

SHOWN_US_MAX: Final = 5_000_000
"""How far what the kernel tells in files may be off: they have seconds, and are read in turn."""


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content; see ``ClockState``.

    Attributes:
        checksum: CRC-32 of the others, as JSON; None = written by a release that had none.
        boot: which start of the kernel it was written in; empty = not known.
        since_boot_us: how long after that.
    """

    steady_us: int
    skew_us: int
    earlier: list[tuple[int, int]]
    checksum: int | None = None
    boot: str = ""
    since_boot_us: int = 0

    def summed(self) -> int:
        """What the checksum should be."""
        values: list[object] = [self.steady_us, self.skew_us, self.earlier]
        if self.boot:
            values += [self.boot, self.since_boot_us]
        return zlib.crc32(msgspec.json.encode(values))


def uptime(*, proc: Path = Path("/proc")) -> tuple[str, int]:
    """Which start of the kernel this is, and how long ago it was, microseconds, suspended or not.

    An empty name = that is not known here; or this process is shown another time than the kernel
    has (libfaketime), and that one counts: whoever sets it wants to see time pass.
    """
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        since_boot_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        counted_us = int(float((proc / "uptime").read_text(encoding="ascii").split()[0]) * 1e6)
        (begun,) = _BTIME.findall((proc / "stat").read_text(encoding="ascii"))
    except (OSError, ValueError, AttributeError):
        return "", 0
    wall_us = time.time_ns() // 1000
    if (
        abs(since_boot_us - counted_us) > SHOWN_US_MAX
        or abs(wall_us - int(begun) * 1_000_000 - counted_us) > SHOWN_US_MAX
    ):
        return "", 0
    return boot, since_boot_us


_decoder = msgspec.json.Decoder(_Kept)


@final
class ClockFile:
    """``broker.monitor.clock_watch.ClockMemory`` in a file.

    Args:
        directory: the data directory.
        uptime: as the function of that name.
    """

    def __init__(self, directory: Path, *, uptime: Callable[[], tuple[str, int]] = uptime) -> None:
        self._path = directory / CLOCK_FILE
        self._uptime = uptime
        self._failed = False

    def load(self) -> ClockState | None:
        """What was kept; None = there is nothing that can be read."""
        try:
            kept = _decoder.decode(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("clock.file_unreadable", path=str(self._path), error=str(error))
            return None
        if kept.checksum not in (None, kept.summed()):
            log.warning("clock.file_unreadable", path=str(self._path), error="checksum mismatch")
            return None
        boot, since_boot_us = self._uptime()
        elapsed_us = since_boot_us - kept.since_boot_us if boot and boot == kept.boot else -1
        return ClockState(
            kept.steady_us,
            kept.skew_us,
            kept.earlier,
            elapsed_us if elapsed_us >= 0 else None,
        )

    def save(self, state: ClockState) -> None:
        """Replace the file; a failure is told once."""
        boot, since_boot_us = self._uptime()
        kept = _Kept(
            state.steady_us,
            state.skew_us,
            state.earlier,
            boot=boot,
            since_boot_us=since_boot_us,
        )
        data = msgspec.json.encode(msgspec.structs.replace(kept, checksum=kept.summed()))
        beside = self._path.with_name(f".{CLOCK_FILE}.new")
        try:
            handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            beside.replace(self._path)
        except OSError as error:
            if not self._failed:
                log.warning("clock.file_unwritable", path=str(self._path), error=error.strerror)
            self._failed = True
        else:
            self._failed = False
