"""Time as an argument: the ``Clock`` protocol and the one that reads the system.

Pure floors take ``now_us`` as an argument; shells hold a ``Clock``. Only ``server`` makes one.
"""

from __future__ import annotations

import time
from typing import Protocol, final


class Clock(Protocol):
    """A source of time."""

    def now_us(self) -> int:
        """Wall time, microseconds since the epoch (UTC)."""
        ...

    def monotonic_us(self) -> int:
        """Monotonic time in microseconds; never stored, only subtracted."""
        ...


@final
class SystemClock:
    """The clock of the machine."""

    def now_us(self) -> int:
        """Wall time, microseconds since the epoch (UTC)."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """Monotonic time in microseconds."""
        return time.monotonic_ns() // 1000
