"""The file in the data directory that hands the broker's time to the next process.

It is replaced as a whole and not synced: it is written every ten seconds, and an older one costs
no more than the time that some deadlines are late. One with a wrong digit would cost all
sessions: it has a checksum.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Final, final

import msgspec

from perdure.clock import ClockState
from perdure.observe.logs import get_logger

log = get_logger("server")

CLOCK_FILE: Final = "broker.clock"


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content; see ``ClockState``.

    Attributes:
        checksum: CRC-32 of the others, as JSON; None = written by a release that had none.
    """

    steady_us: int
    skew_us: int
    earlier: list[tuple[int, int]]
    checksum: int | None = None

    def summed(self) -> int:
        """What the checksum should be."""
        return zlib.crc32(msgspec.json.encode([self.steady_us, self.skew_us, self.earlier]))


_decoder = msgspec.json.Decoder(_Kept)


@final
class ClockFile:
    """``broker.monitor.clock_watch.ClockMemory`` in a file.

    Args:
        directory: the data directory.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / CLOCK_FILE
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
        return ClockState(kept.steady_us, kept.skew_us, kept.earlier)

    def save(self, state: ClockState) -> None:
        """Replace the file; a failure is told once."""
        kept = _Kept(state.steady_us, state.skew_us, state.earlier)
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
